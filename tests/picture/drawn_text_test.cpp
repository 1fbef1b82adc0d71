#include "regard/drawn_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

bool has_ink(const Tensor<float>& picture, Index column) {
  for (Index y = 0; y < picture.size(0); ++y)
    if (picture[y * picture.size(1) + column] < 0.5f) return true;
  return false;
}

double mean_of(const Tensor<float>& picture) {
  double sum = 0;
  for (float grey : picture.values()) sum += static_cast<double>(grey);
  return sum / static_cast<double>(picture.count());
}

TEST(DrawnText, characters_follow_each_other_between_the_margins) {
  const TextDrawer drawer;
  for (double stretch : {1.0, 1.3})
    for (double size : {14.0, 20.0}) {
      const auto drawn = drawer.draw("wide7", {.size = size, .left = 5, .right = 7, .stretch = stretch});
      ASSERT_EQ(drawn.characters.size(), 5u);
      EXPECT_EQ(drawn.picture.size(0), 32);
      EXPECT_NEAR(drawn.characters.front().left, 5, 0.1);
      for (std::size_t i = 1; i < 5; ++i)
        EXPECT_NEAR(drawn.characters[i].left, drawn.characters[i - 1].right, 0.1) << i;
      // The width is rounded up to whole pixels.
      const double right = static_cast<double>(drawn.picture.size(1)) - drawn.characters.back().right;
      EXPECT_GE(right, 6.9);
      EXPECT_LT(right, 8.1);
    }
}

TEST(DrawnText, ink_is_where_its_character_is) {
  // Bars with an empty character between them.
  const auto drawn = TextDrawer().draw("m m", {});
  const Tensor<float>& picture = drawn.picture;
  Index first = 0, last = 0;
  for (Index x = 0; x < picture.size(1); ++x) {
    const double middle = static_cast<double>(x) + 0.5;
    const bool gap = middle > drawn.characters[1].left + 1 && middle < drawn.characters[1].right - 1;
    EXPECT_FALSE(gap && has_ink(picture, x)) << x;
    first += has_ink(picture, x) && middle < drawn.characters[0].right;
    last += has_ink(picture, x) && middle > drawn.characters[2].left;
  }
  EXPECT_GT(first, 8);
  EXPECT_EQ(first, last);
}

TEST(DrawnText, spacing_widens_every_character_by_as_many_pixels) {
  const TextDrawer drawer;
  for (double stretch : {1.0, 1.25}) {
    const auto narrow = drawer.draw("abc", {.stretch = stretch}),
               wide = drawer.draw("abc", {.spacing = 3, .stretch = stretch});
    const auto middle = [](const DrawnText& drawn) { return drawn.characters[1].right - drawn.characters[1].left; };
    EXPECT_NEAR(middle(wide) - middle(narrow), 3, 0.1);
  }
}

TEST(DrawnText, slant_moves_the_top_to_the_right_and_angle_lifts_the_end) {
  const TextDrawer drawer;
  const auto centre = [](const Tensor<float>& picture, Index top, Index bottom) {
    double sum = 0, moment = 0;
    for (Index y = top; y < bottom; ++y)
      for (Index x = 0; x < picture.size(1); ++x) {
        const double ink = 1 - static_cast<double>(picture[y * picture.size(1) + x]);
        sum += ink;
        moment += ink * static_cast<double>(x);
      }
    return moment / sum;
  };
  // Rows six apart move three pixels apart, whatever their ink (without it they stay).
  const auto slanted = drawer.draw("l", {.font = "DejaVu Sans Mono", .slant = 0.5}).picture;
  const auto plain = drawer.draw("l", {.font = "DejaVu Sans Mono"}).picture;
  const auto moved = [&](Index top) { return centre(slanted, top, top + 2) - centre(plain, top, top + 2); };
  EXPECT_NEAR(moved(10) - moved(16), 3, 0.3);
  const auto turned = drawer.draw("mmmmmm", {.angle = 5}).picture;
  const auto height = [&](Index left, Index right) {
    double sum = 0, moment = 0;
    for (Index y = 0; y < 32; ++y)
      for (Index x = left; x < right; ++x) {
        const double ink = 1 - static_cast<double>(turned[y * turned.size(1) + x]);
        sum += ink;
        moment += ink * static_cast<double>(y);
      }
    return moment / sum;
  };
  const Index width = turned.size(1);
  EXPECT_GT(height(0, width / 2) - height(width / 2, width), 0.5 * std::tan(5 * 3.14159 / 180) * width / 2);
}

TEST(DrawnText, noise_and_contrast_have_the_size_asked_for_and_blur_keeps_the_ink) {
  const TextDrawer drawer;
  const auto noisy = drawer.draw(" ", {.left = 200, .right = 200, .ground = 0.5, .noise = 0.05, .seed = 7}).picture;
  double squares = 0;
  for (float grey : noisy.values()) squares += std::pow(static_cast<double>(grey) - 0.5, 2);
  // 13,000 pixels: the deviation is known to 1 %.
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(noisy.count())), 0.05, 0.0015);
  EXPECT_NEAR(mean_of(noisy), 0.5, 0.002);
  const auto pale = drawer.draw("MMM", {.ink = 0.25, .ground = 0.75}).picture;
  const auto [least, most] = std::minmax_element(pale.values().begin(), pale.values().end());
  EXPECT_NEAR(*least, 0.25f, 0.003f);
  EXPECT_NEAR(*most, 0.75f, 0.003f);
  const TextStyle roomy{.left = 8, .right = 8};
  TextStyle blurred = roomy;
  blurred.blur = 1.5;
  const auto sharp = drawer.draw("o", roomy).picture, soft = drawer.draw("o", blurred).picture;
  EXPECT_NEAR(mean_of(sharp), mean_of(soft), 0.001);
  EXPECT_GT(*std::min_element(soft.values().begin(), soft.values().end()), 0.2f);
}

TEST(DrawnText, the_same_seed_gives_the_same_picture) {
  const TextDrawer drawer, other;
  const auto draw = [](const TextDrawer& with, std::uint64_t seed) {
    Random random(seed);
    return with.draw("same", random_style("DejaVu Serif", 1, random));
  };
  const auto one = draw(drawer, 5), same = draw(other, 5), different = draw(drawer, 6);
  EXPECT_EQ(one.picture.shape(), same.picture.shape());
  EXPECT_TRUE(std::equal(one.picture.values().begin(), one.picture.values().end(), same.picture.values().begin()));
  EXPECT_FALSE(
      one.picture.shape() == different.picture.shape() &&
      std::equal(one.picture.values().begin(), one.picture.values().end(), different.picture.values().begin()));
  Random random(1);
  const TextStyle plain = random_style("DejaVu Serif", 0, random);
  EXPECT_EQ(plain.size, TextStyle{}.size);
  EXPECT_EQ(plain.noise, 0);
  EXPECT_EQ(plain.slant, 0);
}

TEST(DrawnText, what_would_be_drawn_in_another_way_is_refused) {
  const TextDrawer drawer;
  EXPECT_NO_THROW(drawer.require("DejaVu Sans Mono Bold Oblique"));
  expect_contains(message_of([&] { drawer.require("No Such Family Bold"); }), "'No Such Family Bold' is not installed");
  expect_contains(message_of([&] { drawer.draw("", {}); }), "the text is empty");
  expect_contains(message_of([&] { drawer.draw("a\xff", {}); }), "not valid UTF-8");
  expect_contains(message_of([&] { drawer.draw("a", {.size = 0}); }), "size is 0");
  expect_contains(message_of([&] { drawer.draw("a", {.noise = 2}); }), "noise is 2");
  // Pango counts 1024ths of a pixel in 31 bits: these numbers don't fit into it.
  for (double huge : {1e300, -1e300, 1e7, std::nan("")}) {
    expect_contains(message_of([&] { drawer.draw("a", {.shift = huge}); }), "shift is");
    expect_contains(message_of([&] { drawer.draw("ab", {.spacing = huge}); }), "spacing is");
  }
  expect_contains(message_of([&] { drawer.draw(std::string(10'001, 'm'), {.size = 1}); }), "10001 bytes");
  expect_contains(message_of([&] { drawer.draw(std::string(9000, 'm'), {.size = 100}); }), "the picture's width");
  Random random(1);
  expect_contains(message_of([&] { random_style("DejaVu Sans", 1.5, random); }), "distortion is 1.5");
}

}  // namespace
}  // namespace regard
