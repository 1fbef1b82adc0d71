// Faults of numerics: large scores, infinities, dropout, and what a row's bits
// may depend on.
#include <cmath>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

// One query of 1 and keys that are the scores themselves.
AttendResult softmax_of(const std::vector<float>& scores) {
  const auto n = static_cast<Index>(scores.size());
  const Tensor<float> q({1, 1, 1, 1}, {1}), k({1, 1, n, 1}, scores), v({1, 1, n, 1});
  return attend(q, k, v, {.scale = 1.0f, .observe = {.lse = true, .weights = true}});
}

// 1 / (1 + e) and e / (1 + e).
TEST(numerics, the_maximum_is_removed_before_exponentials) {
  on_each_instruction_set([] {
    const auto large = softmax_of({1000, 1001}), low = softmax_of({-10000, -10000});
    expect_near(list(large.weights), {0.2689414213699951, 0.7310585786300049}, 1e-6);
    EXPECT_NEAR(large.lse[0], 1001.3132617, 1e-4);
    EXPECT_EQ(list(low.weights), (std::vector<float>{0.5f, 0.5f}));
    EXPECT_NEAR(low.lse[0], -9999.30685282, 1e-3);
  });
}

TEST(numerics, large_entries_do_not_overflow_before_the_scale) {
  on_each_instruction_set([] {
    for (const auto& [head_dim, entry] : {std::pair<Index, float>{64, 64.0f}, {128, 256.0f}}) {
      const Tensor<float> q({1, 1, 1, head_dim}, entry), k({1, 1, 4, head_dim}, entry), v({1, 1, 4, 1}, {1, 2, 3, 6});
      EXPECT_EQ(attend(q, k, v).out[0], 3.0f);
    }
  });
}

TEST(numerics, long_uniform_sums_do_not_stick) {
  on_each_instruction_set([] {
    const Tensor<float> q({1, 1, 1, 4}), k({1, 1, 512, 4}), v({1, 1, 512, 1}, 1.0f);
    const auto got = attend(q, k, v, {.observe = {.weights = true}});
    EXPECT_EQ(got.out[0], 1.0f);
    for (float weight : got.weights.values()) EXPECT_EQ(weight, 1.0f / 512);
  });
}

TEST(numerics, a_visible_infinity_or_nan_poisons_its_own_row_only) {
  on_each_instruction_set([] {
    for (float poison : {infinity, not_a_number})
      for (const Index key : {Index{0}, Index{130}, Index{199}}) {
        const auto in = random_inputs({.q_len = 50, .kv_len = 200});
        Tensor<float> bias({1, 1, 50, 200});
        const auto clean = attend(in.q, in.k, in.v, {.observe = {.lse = true, .entropy = true}});
        bias[20 * 200 + key] = poison;
        const auto got = attend(in.q, in.k, in.v,
                                {.bias = std::as_const(bias).view<4>(), .observe = {.lse = true, .entropy = true}});
        for (Index i = 0; i < 50; ++i) {
          if (i != 20) {
            ASSERT_EQ(row_of(got.out, i), row_of(clean.out, i)) << i;
            ASSERT_EQ(got.lse[i], clean.lse[i]) << i;
            continue;
          }
          for (float value : row_of(got.out, i)) EXPECT_TRUE(std::isnan(value)) << poison << " at key " << key;
          EXPECT_TRUE(std::isnan(got.lse[i]) && std::isnan(got.entropy[i])) << poison << " at key " << key;
        }
      }
  });
}

// Decoding, short and streaming sizes.
const std::vector<std::pair<Index, Index>> lengths_of_every_path{{1, 300}, {8, 8}, {100, 200}};

// Its weight is 0 by the rules, not by rounding: the value behind it is not met.
TEST(numerics, a_score_that_comes_out_as_minus_infinity_hides_its_pair) {
  on_each_instruction_set([] {
    for (const auto& [q_len, kv_len] : lengths_of_every_path) {
      Inputs in = random_inputs({.q_len = q_len, .kv_len = kv_len});
      for (float& x : in.q.values()) x = std::abs(x) + 0.1f;
      Tensor<std::uint8_t> allowed({q_len, kv_len}, 1);
      for (Index i = 0; i < q_len; ++i) allowed[i * kv_len + 5] = 0;
      const auto wanted = attend(in.q, in.k, in.v, {.mask = boolean(std::as_const(allowed).view<2>())});
      in.k[5 * in.k.size(3)] = -infinity;
      std::fill_n(in.v.data() + 5 * in.v.size(3), in.v.size(3), not_a_number);
      const auto got = attend(in.q, in.k, in.v, {.observe = {.lse = true}});
      EXPECT_LE(errors(got.out, widen(wanted.out)).largest_error, 1e-6) << q_len;
      EXPECT_TRUE(all_finite(got.out) && all_finite(got.lse)) << q_len;
      const auto by_rule = reference::attend(widen(in.q), widen(in.k), widen(in.v));
      EXPECT_LE(errors(got.out, by_rule.out).largest_error, 1e-6) << q_len;
    }
  });
}

// The same on the way back, where a key or a query is infinite.
TEST(numerics, a_pair_hidden_by_its_own_score_passes_nothing_back) {
  on_each_instruction_set([] {
    for (const auto& [q_len, kv_len] : lengths_of_every_path)
      for (const bool of_query : {false, true}) {
        Inputs in = random_inputs({.q_len = q_len, .kv_len = kv_len});
        for (float& x : in.q.values()) x = std::abs(x) + 0.1f;
        if (of_query)
          for (float& x : in.k.values()) x = std::abs(x) + 0.1f;
        (of_query ? in.q[0] : in.k[5 * in.k.size(3)]) = -infinity;
        const auto dout = normal({1, 1, q_len, in.v.size(3)}, 9);
        const auto got = answer_to(in, dout, {}).gradients;
        EXPECT_TRUE(all_finite(got.dq) && all_finite(got.dk) && all_finite(got.dv)) << q_len << " " << of_query;
      }
  });
}

TEST(numerics, a_dropped_weight_is_a_factor_of_zero) {
  on_each_instruction_set([] {
    for (const auto& [q_len, kv_len] : lengths_of_every_path) {
      Inputs in = random_inputs({.q_len = q_len, .kv_len = kv_len});
      std::fill_n(in.v.data() + 5 * in.v.size(3), in.v.size(3), infinity);
      const Dropout dropout{0.5, 7};
      const auto got = attend(in.q, in.k, in.v, {.dropout = dropout});
      const auto wanted = reference::attend(widen(in.q), widen(in.k), widen(in.v), {.dropout = dropout});
      for (Index i = 0; i < got.out.count(); ++i) {
        EXPECT_EQ(std::isnan(got.out[i]), std::isnan(wanted.out[i])) << q_len << " at " << i;
        EXPECT_FALSE(std::isfinite(got.out[i]));
      }
    }
  });
}

TEST(numerics, entropy_of_equal_scores_is_the_logarithm_of_their_number) {
  on_each_instruction_set([] {
    const auto in = Inputs{Tensor<float>({1, 1, 300, 4}), normal({1, 1, 300, 4}, 2), normal({1, 1, 300, 4}, 3)};
    const auto got = attend(in.q, in.k, in.v, {.mask = causal(), .observe = {.entropy = true}});
    for (Index i = 0; i < 300; ++i) EXPECT_NEAR(got.entropy[i], std::log(static_cast<double>(i + 1)), 1e-5) << i;
  });
}

TEST(numerics, a_batch_entry_alone_has_the_same_bits) {
  on_each_instruction_set([] {
    const auto in =
        random_inputs({.batch = 3, .q_heads = 4, .kv_heads = 2, .q_len = 70, .kv_len = 210, .head_dim = 24});
    const auto dout = normal({3, 4, 70, 8}, 9);
    const AttendOptions options{.mask = causal(), .score = softcap(3)};
    const auto all = attend(in.q, in.k, in.v, options);
    const auto gradients = backward_of(in, dout, options);
    for (Index b = 0; b < 3; ++b) {
      const auto entry = [b](const Tensor<float>& x) { return packed(x.view<4>().slice(0, b, b + 1)); };
      const Inputs one{entry(in.q), entry(in.k), entry(in.v)};
      EXPECT_TRUE(same_bits(attend(one.q, one.k, one.v, options).out, entry(all.out)));
      const auto own = backward_of(one, entry(dout), options);
      EXPECT_TRUE(same_bits(own.dq, entry(gradients.dq)));
      EXPECT_TRUE(same_bits(own.dk, entry(gradients.dk)));
      EXPECT_TRUE(same_bits(own.dv, entry(gradients.dv)));
    }
  });
}

TEST(numerics, a_query_alone_has_the_same_bits_as_among_many) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 130, .kv_len = 300, .head_dim = 33, .value_dim = 17});
    const auto all = attend(in.q, in.k, in.v, {.observe = {.lse = true}});
    for (const Index i : {0, 1, 5, 23, 24, 95, 96, 129}) {
      const auto one = attend(std::as_const(in.q).view<4>().slice(2, i, i + 1), in.k, in.v, {.observe = {.lse = true}});
      EXPECT_EQ(row_of(one.out, 0), row_of(all.out, i)) << i;
      EXPECT_EQ(one.lse[0], all.lse[i]) << i;
    }
  });
}

// The pattern as the rules state it, drawn here word by word.
TEST(dropout, keeps_what_philox_says_and_scales_it) {
  const std::uint64_t seed = 0x123456789ABCDEFull;
  const double p = 0.3;
  const auto threshold = static_cast<std::uint32_t>(std::floor(p * 4294967296.0));
  on_each_instruction_set([&] {
    const Index keys = 205, rows = 27;
    const Inputs in{Tensor<float>({2, 2, rows, 4}), Tensor<float>({2, 2, keys, 4}), Tensor<float>({2, 2, keys, keys})};
    Tensor<float> v = in.v;
    for (Index head = 0; head < 4; ++head)
      for (Index j = 0; j < keys; ++j) v[(head * keys + j) * keys + j] = 1.0f;  // the output is the weights
    const auto got = attend(in.q, in.k, v, {.dropout = {p, seed}, .observe = {.weights = true}});
    for (Index at = 0; at < got.out.count(); ++at) {
      const Index j = at % keys, i = at / keys % rows, head = at / keys / rows;
      const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                                 static_cast<std::uint32_t>(head % 2), static_cast<std::uint32_t>(head / 2)},
                                seed);
      const double wanted = words[static_cast<std::size_t>(j % 4)] >= threshold ? 1.0 / (1 - p) / keys : 0.0;
      ASSERT_NEAR(got.out[at], wanted, 1e-7) << at;
      ASSERT_NEAR(got.weights[at], 1.0 / keys, 1e-8);
    }
  });
}

// Causal row 0 has one key: dropped it gives 0, kept v / (1 - p), never 0 / 0.
TEST(dropout, comes_after_the_normaliser) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_heads = 40, .kv_heads = 40, .q_len = 2, .kv_len = 2});
    const AttendOptions plain{.mask = causal(), .observe = {.lse = true, .weights = true}};
    AttendOptions dropping = plain;
    dropping.dropout = {0.5, 11};
    const auto got = attend(in.q, in.k, in.v, dropping), whole = attend(in.q, in.k, in.v, plain);
    EXPECT_TRUE(same_bits(got.lse, whole.lse));
    EXPECT_TRUE(same_bits(got.weights, whole.weights));
    Index dropped = 0;
    for (Index h = 0; h < 40; ++h) {
      const auto out = row_of(got.out, 0, h), value = row_of(in.v, 0, h);
      if (out == zeros(8)) {
        ++dropped;
        continue;
      }
      for (std::size_t d = 0; d < 8; ++d) EXPECT_EQ(out[d], 2 * value[d]);
    }
    EXPECT_GT(dropped, 8);
    EXPECT_LT(dropped, 32);
  });
}

TEST(dropout, of_probability_zero_is_none) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 9, .kv_len = 9});
    EXPECT_TRUE(same_bits(attend(in.q, in.k, in.v, {.dropout = {0.0, 7}}).out, attend(in.q, in.k, in.v).out));
  });
}

}  // namespace
}  // namespace regard
