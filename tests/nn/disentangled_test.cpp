#include "regard/disentangled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "refusal.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::message_of;
using testing::random_tensor;
using testing::shaken_parameters;

DisentangledAttention<double> layer_of(const DisentangledConfig& config) {
  Random random(1);
  return DisentangledAttention<double>("deberta", config, random);
}

constexpr DisentangledConfig small{.model_dim = 4, .heads = 2, .buckets = 2, .max_distance = 6};

TEST(Disentangled, gradients_are_exact_with_padding_and_dropout) {
  auto config = small;
  config.dropout = 0.3;
  auto layer = layer_of(config);
  const Tensor<std::int64_t> ids({2, 6}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0});
  expect_exact_gradients(
      {{random_tensor<double>({2, 6, 4}, 2), random_tensor<double>({4, 4}, 3)},
       shaken_parameters(layer),
       [&](auto& tape, const auto& x) { return layer.forward(tape, x[0], x[1], {.mask = padding(ids, 0)}); }});
}

// Worked by hand for 8 buckets up to distance 32: 4 + ceil(3 ln(n / 4) / ln(31 / 4)).
TEST(Disentangled, buckets_are_distances_then_logarithms) {
  const Index wanted[] = {0, 1, 2, 3, 4, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7};
  for (Index distance = 0; distance <= 20; ++distance) {
    EXPECT_EQ(disentangled_bucket(distance, 8, 32), wanted[distance]) << distance;
    EXPECT_EQ(disentangled_bucket(-distance, 8, 32), -wanted[distance]) << distance;
  }
  EXPECT_EQ(disentangled_bucket(31, 8, 32), 7);
  EXPECT_EQ(disentangled_bucket(511, 256, 512), 255);
}

// The three terms of the paper, pair by pair.
TEST(Disentangled, scores_have_three_terms) {
  auto layer = layer_of(small);
  shaken_parameters(layer);
  const auto x = random_tensor<double>({1, 5, 4}, 2), relative = random_tensor<double>({4, 4}, 3);
  Tape<double> tape;
  HeadWeights<double> seen;
  layer.forward(tape, tape.node(x), tape.node(relative), {.seen = &seen});
  const auto project = [](const double* row, const Linear<double>& linear, Index column) {
    double sum = linear.bias.value[column];
    for (Index i = 0; i < 4; ++i) sum += row[i] * linear.weight.value[i * linear.out() + column];
    return sum;
  };
  // 2 buckets up to distance 6: distances beyond 1 have 1 + ceil(0) = 1.
  const auto table_row = [&](Index i, Index j) { return relative.data() + (2 + (i > j) - (i < j)) * 4; };
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 5; ++i) {
      std::vector<double> scores;
      double total = 0;
      for (Index j = 0; j < 5; ++j) {
        double score = 0;
        for (Index d = 2 * h; d < 2 * h + 2; ++d) {
          const double q = project(x.data() + i * 4, layer.query, d), k = project(x.data() + j * 4, layer.key_value, d);
          score +=
              q * k + q * project(table_row(i, j), layer.key_value, d) + k * project(table_row(i, j), layer.query, d);
        }
        scores.push_back(std::exp(score / std::sqrt(6.0)));
        total += scores.back();
      }
      for (Index j = 0; j < 5; ++j)
        EXPECT_NEAR(seen.weights[(h * 5 + i) * 5 + j], scores[static_cast<std::size_t>(j)] / total, 1e-12);
    }
}

TEST(Disentangled, what_does_not_fit_is_refused) {
  auto layer = layer_of(small);
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({1, 3, 4}, 1)), table = tape.node(random_tensor<double>({3, 4}, 1));
  EXPECT_EQ(message_of([&] { layer.forward(tape, x, table); }),
            "DisentangledAttention: relative [3,4] but [4,4] is needed");
  EXPECT_THROW(layer_of({.model_dim = 5, .heads = 2}), ArgumentError);
  EXPECT_THROW(layer_of({.model_dim = 4, .heads = 2, .buckets = 8, .max_distance = 5}), ArgumentError);
  EXPECT_THROW(layer_of({.model_dim = 4, .heads = 2, .buckets = 1}), ArgumentError);
}

}  // namespace
}  // namespace regard
