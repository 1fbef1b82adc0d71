#include "regard/pair_bias.h"

#include "attention/cases.h"
#include "regard/relative_bias.h"
#include "regard/tree.h"

namespace regard {
namespace {

using testing::answer_to;
using testing::expect_contains;
using testing::message_of;
using testing::normal;

// Buckets from -1 (no number) to beyond the table.
Tensor<std::int32_t> random_pairs(Shape shape, std::int32_t most) {
  Random random(7);
  Tensor<std::int32_t> pairs(std::move(shape));
  for (std::int32_t& bucket : pairs.values())
    bucket = static_cast<std::int32_t>(random.uniform() * static_cast<double>(most + 2)) - 1;
  return pairs;
}

// The same as a bias tensor [batch, heads, q_len, kv_len].
Tensor<float> as_bias(const Tensor<float>& table, const Tensor<std::int32_t>& pairs) {
  const Index heads = table.size(1), pair_count = pairs.size(1) * pairs.size(2);
  Tensor<float> bias({pairs.size(0), heads, pairs.size(1), pairs.size(2)});
  for (Index i = 0; i < bias.count(); ++i) {
    const Index b = i / pair_count / heads, h = i / pair_count % heads;
    const std::int32_t bucket = pairs[b * pair_count + i % pair_count];
    if (bucket >= 0) bias[i] = table[std::min<Index>(bucket, table.size(0) - 1) * heads + h];
  }
  return bias;
}

class PairBiasCase : public ::testing::TestWithParam<std::tuple<Index, Index>> {};

TEST_P(PairBiasCase, modifier_and_tensor_agree_with_the_reference) {
  const auto [q_len, kv_len] = GetParam();
  const auto table = normal({6, 4}, 20);
  const auto pairs = random_pairs({2, q_len, kv_len}, 8);
  testing::on_each_instruction_set([&, q_len = q_len, kv_len = kv_len] {
    testing::Composition c{"pair bias",
                           normal({2, 4, q_len, 16}, 1),
                           normal({2, 2, kv_len, 16}, 2),
                           normal({2, 2, kv_len, 24}, 3),
                           {},
                           {},
                           {},
                           {.mask = window(-1, 9), .score = softcap(8) + pair_bias(table, pairs), .scale = 1.0f}};
    testing::expect_matches_reference(c);
  });
  const testing::Inputs in{normal({2, 4, q_len, 16}, 1), normal({2, 2, kv_len, 16}, 2), normal({2, 2, kv_len, 24}, 3)};
  const auto dout = normal({2, 4, q_len, 24}, 5), bias = as_bias(table, pairs);
  const auto by_modifier = answer_to(in, dout, {.mask = causal(), .score = pair_bias(table, pairs)});
  const auto by_tensor = answer_to(in, dout, {.mask = causal(), .bias = bias.view<4>()});
  for (Index i = 0; i < by_tensor.forward.out.count(); ++i)
    EXPECT_NEAR(by_modifier.forward.out[i], by_tensor.forward.out[i], 1e-5);
  // A number's gradient is the sum of those of its pairs.
  std::vector<double> wanted(24);
  const Index pair_count = q_len * kv_len;
  for (Index i = 0; i < bias.count(); ++i)
    if (const std::int32_t bucket = pairs[i / pair_count / 4 * pair_count + i % pair_count]; bucket >= 0)
      wanted[static_cast<std::size_t>(std::min(bucket, 5) * 4 + i / pair_count % 4)] +=
          static_cast<double>(by_tensor.gradients.dbias[i]);
  for (std::size_t n = 0; n < wanted.size(); ++n)
    EXPECT_NEAR(by_modifier.gradients.dparameters[0][n], wanted[n], 1e-4 * (1 + std::abs(wanted[n]))) << n;
}

INSTANTIATE_TEST_SUITE_P(lengths, PairBiasCase,
                         ::testing::Values(std::tuple{1, 70}, std::tuple{5, 5}, std::tuple{61, 30},
                                           std::tuple{100, 300}));

// T5's buckets are one choice of pairs among others.
TEST(pair_bias, by_distance_it_is_the_relative_bias) {
  const RelativeBuckets rule{8, 20, true};
  const auto table = normal({8, 2}, 21);
  Tensor<std::int32_t> pairs({30, 30});
  for (Index i = 0; i < 30; ++i)
    for (Index j = 0; j < 30; ++j) pairs[i * 30 + j] = static_cast<std::int32_t>(relative_bucket(j - i, rule));
  const auto in = testing::random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = 30, .kv_len = 30});
  EXPECT_TRUE(testing::same_bits(attend(in.q, in.k, in.v, {.score = pair_bias(table, pairs)}).out,
                                 attend(in.q, in.k, in.v, {.score = relative_bias(table, rule)}).out));
}

TEST(pair_bias, an_entry_of_minus_infinity_hides_its_pairs) {
  Tensor<float> table({3, 1});
  table[2] = -testing::infinity;
  const std::vector<Index> chain{-1, 0, 1, 2};
  const auto in = testing::random_inputs({.q_len = 4, .kv_len = 4});
  const auto got =
      attend(in.q, in.k, in.v, {.score = pair_bias(table, tree_distances(chain)), .observe = {.weights = true}});
  EXPECT_EQ(testing::seen(got.weights), "1100\n1110\n0111\n0011\n") << "2 edges and more share the last entry";
}

TEST(pair_bias, what_does_not_fit_is_named) {
  const auto in = testing::random_inputs({.batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 5});
  const auto refusal = [&](const Shape& table, const Shape& pairs) {
    return message_of<ArgumentError>(
        [&] { attend(in.q, in.k, in.v, {.score = pair_bias(Tensor<float>(table), Tensor<std::int32_t>(pairs))}); });
  };
  expect_contains(refusal({4, 3}, {3, 5}), "3 heads but q has 2");
  expect_contains(refusal({4, 2}, {5, 3}), "[1,5,3]");
  expect_contains(refusal({4, 2}, {3, 3, 5}), "[2,3,5]");
  expect_contains(refusal({4, 2}, {15}), "[15]");
  expect_contains(refusal({0, 2}, {3, 5}), "no rows");
  EXPECT_NO_THROW(attend(in.q, in.k, in.v, {.score = pair_bias(Tensor<float>({4, 2}), Tensor<std::int32_t>({3, 5}))}));
}

}  // namespace
}  // namespace regard
