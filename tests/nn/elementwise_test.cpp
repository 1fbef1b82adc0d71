// The loops of nn/elementwise.h against plain arithmetic in double, at sizes
// around the widths of vectors.
#include "nn/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "nn/matmul.h"
#include "regard/random.h"

namespace regard::detail {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> random_values(Index count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = 2.0f * random.uniform() - 1.0f;
  return values;
}

TEST(elementwise, sums_in_place_too) {
  for (const Index count : {0, 1, 7, 8, 33}) {
    const auto a = random_values(count, 1), b = random_values(count, 2);
    auto to = a;
    sum(to.data(), to.data(), b.data(), count);
    for (std::size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], a[i] + b[i]);
  }
}

TEST(elementwise, dropped_values_are_gone_whatever_they_were) {
  const std::vector<float> x{1, 2, infinity, std::nanf(""), 5, 6, 7, -8, 9};
  const std::vector<std::uint8_t> kept{1, 0, 0, 0, 1, 1, 0, 1, 0};
  const std::vector<float> base{10, 20, 30, 40, 50, 60, 70, 80, 90};
  std::vector<float> to(9);
  write_dropped<float>(to.data(), {x.data(), kept.data(), 2.0f}, 9);
  EXPECT_EQ(to, (std::vector<float>{2, 0, 0, 0, 10, 12, 0, -16, 0}));
  add_dropped<float>(to.data(), base.data(), {x.data(), kept.data(), 2.0f}, 9);
  EXPECT_EQ(to, (std::vector<float>{12, 20, 30, 40, 60, 72, 70, 64, 90}));
}

TEST(elementwise, halves_of_words_are_compared_low_half_first) {
  const std::vector<std::uint32_t> words{0x00050004u, 0xFFFF0000u, 0x00040005u};
  std::vector<std::uint8_t> kept(6);
  compare_halves(kept.data(), words.data(), 5, 3);
  EXPECT_EQ(kept, (std::vector<std::uint8_t>{0, 1, 0, 1, 1, 0}));
}

TEST(elementwise, rectifying_passes_what_is_positive) {
  std::vector<float> y{-1, 0, 2, -0.5f, 3, 4, -7, 8, 9};
  const std::vector<float> bias{2, 0, -3, 0.25f, 1, 1, 1, 1, 1};
  add_and_rectify(y.data(), bias.data(), 9);
  EXPECT_EQ(y, (std::vector<float>{1, 0, 0, 0, 4, 5, 0, 9, 10}));
  std::vector<float> dy{1, 2, 3, 4, 5, 6, 7, 8, 9};
  rectify_backward(dy.data(), y.data(), 9);
  EXPECT_EQ(dy, (std::vector<float>{1, 0, 0, 0, 5, 6, 0, 8, 9}));
}

// Small integers: sums are exact in any order.
TEST(elementwise, rows_add_up_whatever_their_number) {
  for (const Index rows : {0, 1, 3, 4, 11}) {
    constexpr Index cols = 19, stride = 23;
    std::vector<float> x(static_cast<std::size_t>(rows * stride)), sums(cols, 1.0f);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17);
    add_rows(sums.data(), x.data(), stride, rows, cols);
    for (std::size_t j = 0; j < cols; ++j) {
      float expected = 1;
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) expected += x[i * stride + j];
      EXPECT_EQ(sums[j], expected);
    }
  }
}

double distance_of_product(Index rows, Index inner, Index cols) {
  const auto a = random_values(rows * inner, 3), b = random_values(rows * cols, 4);
  auto c = random_values(inner * cols, 5);
  const auto before = c;
  add_transposed_product<float>({a.data(), rows, inner}, {b.data(), rows, cols}, {c.data(), inner, cols});
  double worst = 0;
  for (Index i = 0; i < inner; ++i)
    for (Index j = 0; j < cols; ++j) {
      double expected = static_cast<double>(before[static_cast<std::size_t>(i * cols + j)]);
      for (Index k = 0; k < rows; ++k)
        expected += static_cast<double>(a[static_cast<std::size_t>(k * inner + i)]) *
                    static_cast<double>(b[static_cast<std::size_t>(k * cols + j)]);
      worst = std::max(worst, std::abs(expected - static_cast<double>(c[static_cast<std::size_t>(i * cols + j)])));
    }
  return worst;
}

// 512 columns make pieces and copies with gaps, on either side.
TEST(matmul, gradients_of_weights_are_right_whichever_side_is_wide) {
  for (const auto& [inner, cols] : {std::pair<Index, Index>{24, 512}, {512, 24}, {130, 130}, {5, 3}})
    EXPECT_LT(distance_of_product(67, inner, cols), 2e-5) << inner << " x " << cols;
}

TEST(matmul, products_with_wide_weights_are_right) {
  constexpr Index rows = 70, depth = 9, cols = 512;
  const auto a = random_values(rows * depth, 6), b = random_values(depth * cols, 7);
  std::vector<float> c(rows * cols);
  multiply<float>({a.data(), rows, depth}, {b.data(), depth, cols}, {c.data(), rows, cols});
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) {
      double expected = 0;
      for (Index k = 0; k < depth; ++k)
        expected += static_cast<double>(a[static_cast<std::size_t>(i * depth + k)]) *
                    static_cast<double>(b[static_cast<std::size_t>(k * cols + j)]);
      ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * cols + j)]), expected, 2e-6);
    }
}

}  // namespace
}  // namespace regard::detail
