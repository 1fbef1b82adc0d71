#include "regard/ink.h"

#include <gtest/gtest.h>

#include <cmath>

#include "refusal.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

// Expected by hand: median, sign of the third moment, root of the mean square.
void expect_ink(const std::vector<float>& greys, double background, int direction, double deviation) {
  const Ink ink = ink_of(Tensor<float>({1, static_cast<Index>(greys.size())}, greys));
  EXPECT_NEAR(ink.background, background, 1e-7);
  EXPECT_EQ(ink.direction, direction);
  EXPECT_NEAR(ink.deviation, deviation, 1e-7);
}

TEST(Ink, is_what_is_rare) {
  expect_ink({0.25f, 0.25f, 0.25f, 1.0f, 0.625f}, 0.25, 1, std::sqrt((0.75 * 0.75 + 0.375 * 0.375) / 5));
  expect_ink({1, 1, 0, 1}, 1, -1, 0.5);
  expect_ink({0.5f, 0.5f, 0.5f, 0.5f}, 0.5, 0, 0);
  expect_ink({0.5f}, 0.5, 0, 0);
}

TEST(Ink, of_two_greys_in_the_middle_the_one_away_from_the_ink_is_background) {
  // Middle 0.5; cubes -0.125 - 0.015625 + 0.015625 + 0.421875 > 0.
  expect_ink({0, 0.25f, 0.75f, 1.25f}, 0.25, 1, std::sqrt((0.0625 + 0 + 0.25 + 1) / 4));
}

TEST(Ink, of_exactly_half_the_pixels_is_what_the_first_pixel_is_not) {
  expect_ink({0, 1, 1, 0}, 0, 1, std::sqrt(0.5));
  expect_ink({1, 0, 0, 1}, 1, -1, std::sqrt(0.5));
  // The first pixel is in the middle and says nothing: the second decides.
  expect_ink({0.5f, 1, 0}, 0.5, -1, std::sqrt(0.5 / 3));
}

// Every picture of four pixels of three greys: its negative and a paler one have the same ink.
TEST(Ink, is_the_same_in_a_negative_and_with_less_contrast) {
  const float greys[] = {0, 0.5f, 1};
  for (Index code = 0; code < 81; ++code) {
    Tensor<float> picture({2, 2}), negative = picture, paler = picture;
    for (Index i = 0, rest = code; i < 4; ++i, rest /= 3) {
      picture[i] = greys[rest % 3];
      negative[i] = 1 - picture[i];
      paler[i] = 0.25f + 0.5f * picture[i];
    }
    const Ink ink = ink_of(picture), turned = ink_of(negative), pale = ink_of(paler);
    for (Index i = 0; i < 4; ++i) {
      EXPECT_NEAR(ink.above(picture[i]), turned.above(negative[i]), 1e-7) << code << " at " << i;
      EXPECT_NEAR(0.5 * ink.above(picture[i]), pale.above(paler[i]), 1e-7) << code << " at " << i;
    }
  }
}

TEST(Ink, needs_finite_pixels_in_two_dimensions) {
  expect_contains(message_of([] { ink_of(Tensor<float>({0, 3})); }), "[0,3]");
  expect_contains(message_of([] { ink_of(Tensor<float>({1, 2, 2}, 1.0f)); }), "need [height, width]");
  expect_contains(message_of([] { ink_of(Tensor<float>({1, 2}, {0, NAN})); }), "not a finite number");
  expect_contains(message_of([] { ink_of(Tensor<float>({1, 2}, {0, INFINITY})); }), "not a finite number");
}

}  // namespace
}  // namespace regard
