#include "regard/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::random_tensor;

// softmax of (0, ln 3) is (1/4, 3/4).
TEST(CrossEntropy, is_minus_log_p_without_smoothing) {
  const Tensor<double> logits({1, 1, 2}, {0.0, std::log(3.0)});
  const Tensor<std::int64_t> target({1, 1}, {1});
  EXPECT_NEAR(cross_entropy<double>(logits, target, -1, 0.0, nullptr).sum, std::log(4.0 / 3.0), 1e-12);
}

// 0.9 on the target and 0.1 shared by both: 0.95 and 0.05.
TEST(CrossEntropy, smoothing_shares_among_all_classes) {
  const Tensor<double> logits({1, 1, 2}, {0.0, std::log(3.0)});
  const Tensor<std::int64_t> target({1, 1}, {1});
  EXPECT_NEAR(cross_entropy<double>(logits, target, -1, 0.1, nullptr).sum,
              0.95 * std::log(4.0 / 3.0) + 0.05 * std::log(4.0), 1e-12);
}

TEST(CrossEntropy, gradient_of_the_mean_is_exact_and_ignored_rows_get_none) {
  auto logits = random_tensor<double>({2, 3, 5}, 1);
  const Tensor<std::int64_t> targets({2, 3}, {1, 4, 0, 2, 0, 0});
  Tensor<double> gradient;
  const Loss loss = cross_entropy(logits, targets, 0, 0.1, &gradient);
  EXPECT_EQ(loss.tokens, 3);
  for (Index i = 0; i < logits.count(); ++i) {
    const double before = logits[i], step = 1e-6;
    logits[i] = before + step;
    const double above = cross_entropy<double>(logits, targets, 0, 0.1, nullptr).mean();
    logits[i] = before - step;
    const double below = cross_entropy<double>(logits, targets, 0, 0.1, nullptr).mean();
    logits[i] = before;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * step), 1e-8) << i;
    if (targets[i / 5] == 0) {
      ASSERT_EQ(gradient[i], 0.0);
    }
  }
}

TEST(CrossEntropy, large_logits_neither_overflow_nor_vanish) {
  const Tensor<float> logits({1, 2, 2}, {1000.0f, 0.0f, -1000.0f, 0.0f});
  const Loss loss = cross_entropy<float>(logits, Tensor<std::int64_t>({1, 2}, {1, 1}), -1, 0.0, nullptr);
  EXPECT_NEAR(loss.sum, 1000.0, 1e-3);
}

TEST(CrossEntropy, nothing_but_padding_costs_nothing) {
  Tensor<float> gradient;
  const Loss loss =
      cross_entropy(random_tensor<float>({1, 2, 3}, 1), Tensor<std::int64_t>({1, 2}, {0, 0}), 0, 0.1, &gradient);
  EXPECT_EQ(loss.tokens, 0);
  EXPECT_EQ(loss.mean(), 0);
  for (float value : gradient.values()) EXPECT_EQ(value, 0);
}

TEST(CrossEntropy, a_target_outside_the_classes_is_refused) {
  const auto logits = random_tensor<float>({1, 1, 3}, 1);
  EXPECT_THROW(cross_entropy<float>(logits, Tensor<std::int64_t>({1, 1}, {3}), 0, 0.0, nullptr), ArgumentError);
  EXPECT_THROW(cross_entropy<float>(logits, Tensor<std::int64_t>({1, 2}, {1, 1}), 0, 0.0, nullptr), ArgumentError);
}

}  // namespace
}  // namespace regard
