// Rollout against products of whole matrices, and where algebra knows the shares.
#include "regard/rollout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "regard/error.h"

namespace regard {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0.0));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix half_sum(const Matrix& a, const Matrix& b) {
  Matrix c = a;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) c[i][j] = (a[i][j] + b[i][j]) / 2;
  return c;
}

Matrix square(std::size_t n, bool identity) {
  Matrix m(n, std::vector<double>(n, 0.0));
  for (std::size_t i = 0; i < n && identity; ++i) m[i][i] = 1;
  return m;
}

Matrix mean_of(const Tensor<float>& weights) {
  const Index heads = weights.size(0), q = weights.size(1), k = weights.size(2);
  Matrix m(static_cast<std::size_t>(q), std::vector<double>(static_cast<std::size_t>(k), 0.0));
  for (Index at = 0; at < weights.count(); ++at)
    m[static_cast<std::size_t>(at / k % q)][static_cast<std::size_t>(at % k)] +=
        weights[at] / static_cast<double>(heads);
  return m;
}

AttentionMap random_map(AttentionKind kind, Index layer, Index q, Index k, std::mt19937& random) {
  AttentionMap map{.kind = kind, .layer = layer};
  map.weights = Tensor<float>({3, q, k});
  std::exponential_distribution<double> draw(1);
  for (Index row = 0; row < 3 * q; ++row) {
    const Index seen = kind == AttentionKind::decoder ? row % q + 1 : k;
    double sum = 0;
    std::vector<double> values;
    for (Index j = 0; j < seen; ++j) sum += values.emplace_back(draw(random));
    for (Index j = 0; j < seen; ++j)
      map.weights[row * k + j] = static_cast<float>(values[static_cast<std::size_t>(j)] / sum);
  }
  return map;
}

// Three encoder and two decoder layers over 5 source and 4 target tokens.
Trace random_trace() {
  std::mt19937 random(11);
  Trace trace;
  trace.source = {"a", "b", "c", "d", "e"};
  trace.target = {"<s>", "A", "B", "C"};
  for (Index layer = 0; layer < 3; ++layer)
    trace.maps.push_back(random_map(AttentionKind::encoder, layer, 5, 5, random));
  for (Index layer = 0; layer < 2; ++layer) {
    trace.maps.push_back(random_map(AttentionKind::decoder, layer, 4, 4, random));
    trace.maps.push_back(random_map(AttentionKind::cross, layer, 4, 5, random));
  }
  return trace;
}

void expect_rows(const Matrix& right, const Tensor<float>& got, const std::string& what) {
  for (std::size_t i = 0; i < right.size(); ++i)
    for (std::size_t j = 0; j < right[0].size(); ++j)
      EXPECT_NEAR(got[static_cast<Index>(i * right[0].size() + j)], right[i][j], 1e-6) << what << " " << i << " " << j;
}

TEST(Rollout, rows_that_stream_down_equal_the_product_of_whole_matrices) {
  const Trace trace = random_trace();
  const Trace rolled = rollout_trace(trace);
  EXPECT_EQ(rolled.quantity, MapQuantity::rollout);
  Matrix encoder = square(5, true);
  for (Index layer = 0; layer < 3; ++layer) {
    encoder = half_sum(encoder, product(mean_of(trace.find(AttentionKind::encoder, layer)->weights), encoder));
    expect_rows(encoder, rolled.find(AttentionKind::encoder, layer)->weights, "encoder");
  }
  // What is in the decoder's stream of the source and of the target, upwards.
  Matrix source(4, std::vector<double>(5, 0.0)), target = square(4, true);
  for (Index layer = 0; layer < 2; ++layer) {
    const Matrix self = mean_of(trace.find(AttentionKind::decoder, layer)->weights);
    const Matrix cross = mean_of(trace.find(AttentionKind::cross, layer)->weights);
    source = half_sum(source, product(self, source));
    target = half_sum(target, product(self, target));
    source = half_sum(source, product(cross, encoder));
    target = half_sum(target, Matrix(4, std::vector<double>(4, 0.0)));
    expect_rows(source, rolled.find(AttentionKind::cross, layer)->weights, "cross");
    expect_rows(target, rolled.find(AttentionKind::decoder, layer)->weights, "decoder");
    const RolloutRow row = rollout(trace, AttentionKind::cross, layer, 2);
    double sum = 0;
    for (double share : row.source) sum += share;
    for (double share : row.target) sum += share;
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

// Heads that look one token back: the share of the token k back is the binomial
// chance of k steps in as many layers.
TEST(Rollout, of_previous_token_heads_is_binomial) {
  const Index n = 9, layers = 4;
  Trace trace;
  trace.source.assign(static_cast<std::size_t>(n), "x");
  for (Index layer = 0; layer < layers; ++layer) {
    AttentionMap map{.layer = layer};
    map.weights = Tensor<float>({2, n, n});
    for (Index row = 0; row < 2 * n; ++row) map.weights[row * n + std::max<Index>(0, row % n - 1)] = 1;
    trace.maps.push_back(map);
  }
  const double binomial[] = {1, 4, 6, 4, 1};
  const RolloutRow row = rollout(trace, AttentionKind::encoder, layers - 1, 8);
  EXPECT_TRUE(row.target.empty());
  for (Index key = 0; key < n; ++key) {
    const Index back = 8 - key;
    EXPECT_NEAR(row.source[static_cast<std::size_t>(key)], back <= 4 ? binomial[back] / 16 : 0, 1e-12) << key;
  }
}

TEST(Rollout, what_the_trace_lacks_is_refused_and_named) {
  Trace trace = random_trace();
  EXPECT_THROW(rollout(trace, AttentionKind::encoder, 3, 0), ArgumentError);
  EXPECT_THROW(rollout(trace, AttentionKind::encoder, 0, 5), ArgumentError);
  EXPECT_THROW(rollout(trace, AttentionKind::cross, 0, -1), ArgumentError);
  trace.maps[1].weights = {};
  try {
    rollout(trace, AttentionKind::cross, 1, 0);
    FAIL() << "a layer without weights was taken";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "rollout: the trace holds no weights of encoder self-attention, layer 1");
  }
}

}  // namespace
}  // namespace regard
