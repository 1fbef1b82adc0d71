#include "regard/patches.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "refusal.h"
#include "regard/error.h"
#include "regard/random.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

// White but for the named pixels, which are black.
Tensor<float> with_ink(Index height, Index width, const std::vector<Index>& ink) {
  Tensor<float> picture({height, width}, 1.0f);
  for (Index pixel : ink) picture[pixel] = 0;
  return picture;
}

Tensor<float> random_picture(Index height, Index width) {
  Random random(5);
  Tensor<float> picture({height, width}, 0.9f);
  for (float& grey : picture.values())
    if (random.uniform() < 0.3f) grey = 0.8f * random.uniform();
  return picture;
}

TEST(Patches, are_cut_column_by_column_from_top_to_bottom) {
  // Four high and seven wide in patches of 2 x 3: two rows, three columns of patches,
  // the last of which is one pixel wide. Ink at (1, 4) and (3, 6).
  const auto patches = patches_of(with_ink(4, 7, {1 * 7 + 4, 3 * 7 + 6}), {4, 2, 3});
  ASSERT_EQ(patches.shape(), (Shape{6, 6}));
  // Two of 28 pixels differ from the background by 1: the mean square is 2 / 28.
  const double ink = std::sqrt(14.0);
  for (Index i = 0; i < patches.count(); ++i) {
    // (1, 4): column of patches 1, row 0, so patch 2; in it y 1, x 1.
    // (3, 6): column 2, row 1, so patch 5; in it y 1, x 0.
    const bool there = i == 2 * 6 + 1 * 3 + 1 || i == 5 * 6 + 1 * 3 + 0;
    EXPECT_NEAR(patches[i], there ? ink : 0.0, 1e-6) << i;
  }
  EXPECT_EQ(patch_count({4, 2, 3}, 7), 6);
  EXPECT_EQ(patch_count({4, 2, 3}, 6), 4);
  EXPECT_EQ(patch_count({4, 4, 1}, 5), 5);
}

TEST(Patches, contrast_brightness_and_white_on_black_leave_nothing_behind) {
  const Tensor<float> picture = random_picture(8, 20);
  Tensor<float> paler = picture, negative = picture;
  for (float& grey : paler.values()) grey = 0.3f + 0.4f * grey;
  for (float& grey : negative.values()) grey = 1 - grey;
  const PatchSizes sizes{8, 8, 4};
  const auto patches = patches_of(picture, sizes), same = patches_of(paler, sizes), other = patches_of(negative, sizes);
  double squares = 0, sum = 0;
  for (Index i = 0; i < patches.count(); ++i) {
    EXPECT_NEAR(patches[i], same[i], 1e-4);
    EXPECT_NEAR(patches[i], other[i], 1e-4);
    squares += patches[i] * patches[i];
    sum += patches[i];
  }
  EXPECT_NEAR(squares / static_cast<double>(picture.count()), 1, 1e-5);
  EXPECT_GT(sum, 0);
}

TEST(Patches, so_many_are_had_by_pictures_up_to_the_widest) {
  for (const PatchSizes& sizes : {PatchSizes{32, 32, 4}, PatchSizes{32, 16, 4}, PatchSizes{32, 8, 3}}) {
    const Index widest = widest_picture(sizes, 41);
    EXPECT_LE(patch_count(sizes, widest), 41);
    EXPECT_GT(patch_count(sizes, widest + 1), 41);
  }
}

TEST(Patches, of_exactly_half_ink_are_those_of_the_negative_too) {
  // Mean square 1 with half the pixels 0: the others are the root of 2.
  const Tensor<float> picture({2, 2}, {0, 1, 1, 0}), negative({2, 2}, {1, 0, 0, 1});
  for (const Tensor<float>& one : {picture, negative}) {
    const auto patches = patches_of(one, {2, 2, 2});
    for (Index i = 0; i < 4; ++i) EXPECT_NEAR(patches[i], i == 1 || i == 2 ? std::sqrt(2.0) : 0, 1e-6) << i;
  }
}

TEST(Patches, a_picture_of_one_grey_is_background) {
  const auto patches = patches_of(Tensor<float>({4, 5}, 0.3f), {4, 4, 2});
  for (float value : patches.values()) EXPECT_EQ(value, 0);
}

TEST(Patches, what_can_not_be_cut_is_refused) {
  const PatchSizes sizes{4, 2, 3};
  expect_contains(message_of([&] { patches_of(Tensor<float>({5, 7}, 1.0f), sizes); }), "picture is [5,7]");
  expect_contains(message_of([&] { patches_of(Tensor<float>({4, 0}), sizes); }), "[4, width]");
  Tensor<float> broken({4, 7}, 1.0f);
  broken[3] = NAN;
  expect_contains(message_of([&] { patches_of(broken, sizes); }), "not a finite number");
  expect_contains(message_of([] { check_patches({32, 12, 4}); }), "12 does not divide the pictures' height 32");
  expect_contains(message_of([] { check_patches({32, 0, 4}); }), "must be at least 1");
  expect_contains(message_of([] { check_patches({32, 32, 32768}); }), "32768 pixels are more than 32767");
  // The sum with a picture's width would overflow.
  expect_contains(message_of([] { check_patches({32, 32, std::numeric_limits<Index>::max()}); }), "more than 32767");
}

}  // namespace
}  // namespace regard
