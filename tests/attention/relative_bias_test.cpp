// Relative buckets: published values, whole numbers as an oracle, and the
// modifier against the tensor, forward and backward.
#include "regard/relative_bias.h"

#include "attention/cases.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

TEST(relative_bias, causal_buckets_have_their_published_numbers) {
  const RelativeBuckets causal_rule{32, 128, false};
  const auto bucket = [&](Index back) { return relative_bucket(-back, causal_rule); };
  for (Index n = 0; n < 16; ++n) EXPECT_EQ(bucket(n), n);
  EXPECT_EQ(bucket(16), 16);
  EXPECT_EQ(bucket(17), 16);
  EXPECT_EQ(bucket(20), 17);
  EXPECT_EQ(bucket(32), 21);
  EXPECT_EQ(bucket(64), 26);
  for (Index far : {127, 128, 200, 1000}) EXPECT_EQ(bucket(far), 31) << far;
  EXPECT_EQ(relative_bucket(5, causal_rule), 0);
}

TEST(relative_bias, two_sided_buckets_have_their_published_numbers) {
  for (const auto& [distance, bucket] : {std::pair<Index, Index>{-1, 1}, {1, 17}, {8, 24}, {-8, 8}, {16, 26}, {64, 30}})
    EXPECT_EQ(relative_bucket(distance), bucket) << distance;
  for (Index far : {127, 128, 200, 1000, 2000}) {
    EXPECT_EQ(relative_bucket(far), 31) << far;
    EXPECT_EQ(relative_bucket(-far - 1), 15) << far;
  }
}

// 8 + 8 log(d/8)/log(16) = 8 + 2 log2(d/8): bucket 8 + n begins where d^2 >= 64 * 2^n.
TEST(relative_bias, buckets_begin_where_whole_numbers_say) {
  for (Index d = 8; d < 2000; ++d) {
    Index n = 0;
    while (n < 7 && d * d >= 64 * (Index{1} << (n + 1))) ++n;
    EXPECT_EQ(relative_bucket(-d), 8 + n) << d;
    EXPECT_EQ(relative_bucket(d), 24 + n) << d;
  }
}

TEST(relative_bias, every_distance_stays_inside_the_table) {
  for (Index buckets : {4, 6, 10, 32, 64})
    for (bool both : {false, true}) {
      const RelativeBuckets rule{buckets, 40, both};
      for (Index d = -300; d <= 300; ++d) {
        EXPECT_GE(relative_bucket(d, rule), 0);
        EXPECT_LT(relative_bucket(d, rule), buckets);
      }
    }
}

class BiasCase : public ::testing::TestWithParam<std::tuple<Index, Index>> {};

// Score modifier = bias tensor, on every path of the operator: forward, and the
// gradient of the table.
TEST_P(BiasCase, modifier_and_tensor_agree_with_the_reference) {
  const auto [q_len, kv_len] = GetParam();
  const RelativeBuckets rule{16, 50, true};
  const auto table = normal({16, 4}, 20);
  testing::on_each_instruction_set([&, q_len = q_len, kv_len = kv_len] {
    testing::Composition c{"relative bias",
                           normal({2, 4, q_len, 16}, 1),
                           normal({2, 2, kv_len, 16}, 2),
                           normal({2, 2, kv_len, 24}, 3),
                           {},
                           {},
                           {},
                           {.mask = window(-1, 9), .score = softcap(8) + relative_bias(table, rule), .scale = 1.0f}};
    testing::expect_matches_reference(c);
  });
  const testing::Inputs in{normal({2, 4, q_len, 16}, 1), normal({2, 2, kv_len, 16}, 2), normal({2, 2, kv_len, 24}, 3)};
  const auto dout = normal({2, 4, q_len, 24}, 5);
  const auto tensor = relative_bias_tensor(table, rule, q_len, kv_len);
  const auto by_modifier = testing::answer_to(in, dout, {.mask = causal(), .score = relative_bias(table, rule)});
  const auto by_tensor = testing::answer_to(in, dout, {.mask = causal(), .bias = tensor.view<4>()});
  for (Index i = 0; i < by_tensor.forward.out.count(); ++i)
    EXPECT_NEAR(by_modifier.forward.out[i], by_tensor.forward.out[i], 1e-5);
  const auto from_tensor = relative_bias_backward(by_tensor.gradients.dbias, rule, QueryStart(kv_len - q_len));
  for (Index n = 0; n < table.count(); ++n)
    EXPECT_NEAR(by_modifier.gradients.dparameters[0][static_cast<std::size_t>(n)], from_tensor[n],
                1e-4 * (1 + std::abs(from_tensor[n])));
}

INSTANTIATE_TEST_SUITE_P(lengths, BiasCase,
                         ::testing::Values(std::tuple{1, 70}, std::tuple{5, 5}, std::tuple{30, 61}, std::tuple{61, 30},
                                           std::tuple{100, 300}));

// A decoder step with a cache: the last row of the whole.
TEST(relative_bias, one_query_against_a_cache_reads_the_last_row) {
  const auto table = normal({8, 2}, 21);
  const auto whole = relative_bias_tensor(table, {8, 20, false}, 12, 12);
  const auto step = relative_bias_tensor(table, {8, 20, false}, 1, 12);
  for (Index h = 0; h < 2; ++h)
    for (Index j = 0; j < 12; ++j) EXPECT_EQ(step[h * 12 + j], whole[(h * 12 + 11) * 12 + j]);
}

TEST(relative_bias, a_table_entry_of_minus_infinity_hides_its_pairs) {
  Tensor<float> table({4, 1});
  table[1] = -testing::infinity;  // two-sided, 4 buckets: distance -1 and before
  const auto in = testing::random_inputs({.q_len = 3, .kv_len = 3});
  const auto got =
      attend(in.q, in.k, in.v, {.score = relative_bias(table, {4, 2, true}), .observe = {.weights = true}});
  EXPECT_EQ(testing::seen(got.weights), "111\n011\n001\n");
}

TEST(relative_bias, what_does_not_fit_is_named) {
  const auto table = normal({32, 3}, 22);
  const auto in = testing::random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 3});
  EXPECT_NE(message_of([&] { attend(in.q, in.k, in.v, {.score = relative_bias(table)}); }).find("3 heads but q has 2"),
            std::string::npos);
  EXPECT_NE(message_of([&] { relative_bias(table, {8, 20, true}); }).find("[32,3]"), std::string::npos);
  EXPECT_THROW(relative_bucket(1, {7, 20, true}), ArgumentError);
  EXPECT_THROW(relative_bucket(1, {2, 20, true}), ArgumentError);
  EXPECT_THROW(relative_bucket(1, {32, 8, true}), ArgumentError);
  EXPECT_EQ(relative_bucket(-(Index{1} << 24), {32, Index{1} << 24, true}), 15);
  EXPECT_THROW(relative_bucket(1, {32, Index{1} << 40, true}), ArgumentError);
  EXPECT_THROW(relative_bias_tensor(table, {}, 2, 2, QueryStart(std::vector<Index>{0, 1})), ArgumentError);
}

// B62: log2 of the slopes.
TEST(alibi, slopes_of_any_number_of_heads_are_the_authors) {
  const auto expect_powers = [](Index heads, const std::vector<double>& powers) {
    const auto slopes = alibi_slopes(heads);
    ASSERT_EQ(slopes.size(), powers.size());
    for (std::size_t h = 0; h < powers.size(); ++h)
      EXPECT_FLOAT_EQ(slopes[h], std::exp2(static_cast<float>(powers[h])));
  };
  expect_powers(8, {-1, -2, -3, -4, -5, -6, -7, -8});
  expect_powers(12, {-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5});
  expect_powers(6, {-2, -4, -6, -8, -1, -3});
  expect_powers(3, {-4, -8, -2});
  expect_powers(1, {-8});
}

}  // namespace
}  // namespace regard
