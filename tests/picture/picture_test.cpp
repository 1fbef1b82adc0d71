#include "regard/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "files.h"
#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::expect_file_error;
using testing::message_of;

Tensor<float> ramp(Index height, Index width) {
  Tensor<float> picture({height, width});
  for (Index i = 0; i < picture.count(); ++i) picture[i] = static_cast<float>(i * 255 / (picture.count() - 1)) / 255;
  return picture;
}

TEST(Picture, a_file_holds_the_256_greys_as_they_are) {
  const testing::Folder folder;
  const Tensor<float> picture = ramp(8, 40);
  const Tensor<float> back = read_picture(folder.write("x.png", picture_png(picture)));
  ASSERT_EQ(back.shape(), picture.shape());
  for (Index i = 0; i < back.count(); ++i) ASSERT_NEAR(back[i], picture[i], 1e-6) << i;
}

TEST(Picture, damaged_files_are_refused_in_one_line) {
  const testing::Folder folder;
  const std::string whole = picture_png(ramp(8, 40));
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    const std::string path = folder.write("bad.png", bytes);
    expect_file_error(path, part, [&] { read_picture(path); });
  };
  refused("", "no PNG");
  refused("GIF89a", "no PNG");
  refused(whole.substr(0, 20), "cut off");
  for (std::size_t length : {std::size_t{30}, whole.size() / 2, whole.size() - 20})
    refused(whole.substr(0, length), "damaged or cut off");
  std::string flipped = whole;
  flipped[60] ^= 0x55;
  refused(flipped, "damaged");
  std::string huge = whole;
  huge[16] = 0x40;  // a thousand million pixels wide
  refused(huge, "too large");
  expect_file_error(folder / "none.png", "none.png", [&] { read_picture(folder / "none.png"); });
  expect_file_error(folder.path(), "", [&] { read_picture(folder.path()); });
}

TEST(Picture, is_scaled_in_proportion_and_keeps_its_greys) {
  Tensor<float> halves({20, 60}, 1.0f);
  for (Index y = 0; y < 20; ++y)
    for (Index x = 0; x < 30; ++x) halves[y * 60 + x] = 0;
  for (Index height : {10, 20, 40}) {
    const Tensor<float> scaled = scaled_to_height(halves, height);
    ASSERT_EQ(scaled.shape(), (Shape{height, 3 * height}));
    double sum = 0;
    for (float grey : scaled.values()) sum += static_cast<double>(grey);
    EXPECT_NEAR(sum / static_cast<double>(scaled.count()), 0.5, 0.01);
    EXPECT_NEAR(scaled[0], 0, 0.01);
    EXPECT_NEAR(scaled[scaled.count() - 1], 1, 0.01);
  }
  EXPECT_EQ(scaled_to_height(Tensor<float>({500, 1}, 1.0f), 5).shape(), (Shape{5, 1}));
  expect_contains(message_of([&] { scaled_to_height(halves, 0); }), "height must be at least 1");
  expect_contains(message_of([&] { scaled_to_height(Tensor<float>({2, 0}), 5); }), "has no pixels");
  expect_contains(message_of([&] { scaled_to_height(Tensor<float>({1, 2000}, 1.0f), 32); }), "32767 pixels a side");
}

TEST(Picture, pixels_that_are_no_numbers_are_refused) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    Tensor<float> picture({2, 3}, 1.0f);
    picture[4] = bad;
    expect_contains(message_of([&] { picture_png(picture); }), "[2,3] is not a finite number");
    expect_contains(message_of([&] { scaled_to_height(picture, 4); }), "not a finite number");
    expect_contains(message_of([&] { scaled_to_height(picture, 2); }), "not a finite number");
  }
}

}  // namespace
}  // namespace regard
