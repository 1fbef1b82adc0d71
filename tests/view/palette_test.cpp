#include "regard/palette.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace regard {
namespace {

TEST(Palette, lightness_of_black_grey_and_white_is_that_of_the_standard) {
  EXPECT_NEAR(lightness({0, 0, 0}), 0, 1e-9);
  EXPECT_NEAR(lightness({255, 255, 255}), 100, 1e-3);
  EXPECT_NEAR(lightness({119, 119, 119}), 50, 0.2);  // the usual mid grey
}

TEST(Palette, sequential_ramp_darkens_evenly_from_almost_white) {
  EXPECT_GT(lightness(sequential_colour(0)), 95);
  EXPECT_LT(lightness(sequential_colour(1)), 25);
  const double step = (lightness(sequential_colour(0)) - lightness(sequential_colour(1))) / 50;
  for (int i = 0; i < 50; ++i) {
    const double fall = lightness(sequential_colour(i / 50.0)) - lightness(sequential_colour((i + 1) / 50.0));
    EXPECT_GT(fall, 0.5 * step) << i;
    EXPECT_LT(fall, 1.5 * step) << i;
  }
}

TEST(Palette, diverging_ramp_is_blue_below_and_orange_above_and_equally_dark) {
  for (double value : {0.25, 0.5, 1.0}) {
    const Colour below = diverging_colour(-value), above = diverging_colour(value);
    EXPECT_GT(below.blue, below.red);
    EXPECT_GT(above.red, above.blue);
    EXPECT_NEAR(lightness(below), lightness(above), 3);
  }
  EXPECT_GT(lightness(diverging_colour(0)), 95);
}

TEST(Palette, hidden_and_invalid_cells_have_colours_of_their_own) {
  for (int i = -100; i <= 100; ++i) {
    EXPECT_NE(sequential_colour(i / 100.0), hidden_colour());
    EXPECT_NE(diverging_colour(i / 100.0), hidden_colour());
    EXPECT_NE(diverging_colour(i / 100.0), invalid_colour());
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(sequential_colour(nan), invalid_colour());
  EXPECT_EQ(diverging_colour(nan), invalid_colour());
  EXPECT_EQ(ascii_ramp(nan), '?');
  EXPECT_GT(lightness(sequential_colour(0)) - lightness(hidden_colour()), 10);
}

TEST(Palette, values_outside_the_range_are_clamped) {
  EXPECT_EQ(sequential_colour(-1), sequential_colour(0));
  EXPECT_EQ(sequential_colour(2), sequential_colour(1));
  EXPECT_EQ(diverging_colour(-9), diverging_colour(-1));
  EXPECT_EQ(sequential_16(2), sequential_16(1));
  EXPECT_EQ(diverging_16(-9), 4);
}

TEST(Palette, entries_of_256_colours_are_the_nearest_ones) {
  EXPECT_EQ(nearest_256({0, 0, 0}), 16);
  EXPECT_EQ(nearest_256({255, 255, 255}), 231);
  EXPECT_EQ(nearest_256({255, 0, 0}), 196);      // 16 + 36 x 5
  EXPECT_EQ(nearest_256({95, 135, 175}), 67);    // 16 + 36 x 1 + 6 x 2 + 3
  EXPECT_EQ(nearest_256({128, 128, 128}), 244);  // 8 + 10 x 12
}

TEST(Palette, poorer_ramps_go_from_light_to_dark) {
  EXPECT_EQ(sequential_16(0), 15);
  EXPECT_EQ(sequential_16(1), 4);
  EXPECT_EQ(diverging_16(0), 15);
  EXPECT_EQ(diverging_16(1), 3);
  EXPECT_EQ(ascii_ramp(0), ' ');
  EXPECT_EQ(ascii_ramp(1), '@');
}

TEST(Palette, text_is_black_on_light_and_white_on_dark) {
  EXPECT_EQ(text_colour_on(sequential_colour(0)), (Colour{0, 0, 0}));
  EXPECT_EQ(text_colour_on(sequential_colour(1)), (Colour{255, 255, 255}));
}

}  // namespace
}  // namespace regard
