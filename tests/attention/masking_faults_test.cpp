// Faults of masking and of causal alignment that attention software has had,
// each with the right value worked out by hand.
#include <cmath>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

Inputs inputs_with_values(Index q_len, Index kv_len, const std::vector<float>& values) {
  return {Tensor<float>({1, 1, q_len, 4}), Tensor<float>({1, 1, kv_len, 4}), Tensor<float>({1, 1, kv_len, 1}, values)};
}

std::string seen_by(Index q_len, Index kv_len, AttendOptions options) {
  const auto in = random_inputs({.q_len = q_len, .kv_len = kv_len});
  options.observe.weights = true;
  return seen(attend(in.q, in.k, in.v, options).weights);
}

TEST(masking, a_row_without_keys_is_zero_and_leaves_the_others_alone) {
  Tensor<std::uint8_t> allowed({6, 10});
  for (Index i = 0; i < 5; ++i)
    for (Index j = 0; j <= i; ++j) allowed[i * 10 + j] = 1;
  on_each_instruction_set([&] {
    const auto in = random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = 6, .kv_len = 10});
    const auto all =
        attend(in.q, in.k, in.v, {.mask = boolean(std::as_const(allowed).view<2>()), .observe = {.lse = true}});
    const auto q = std::as_const(in.q).view<4>().slice(2, 0, 5);
    const auto five = attend(q, in.k, in.v, {.mask = boolean(std::as_const(allowed).view<2>().slice(0, 0, 5))});
    for (Index h = 0; h < 2; ++h) {
      EXPECT_EQ(row_of(all.out, 5, h), zeros(8));
      EXPECT_EQ(all.lse[h * 6 + 5], -infinity);
      for (Index i = 0; i < 5; ++i) EXPECT_EQ(row_of(all.out, i, h), row_of(five.out, i, h));
    }
  });
}

TEST(masking, a_wholly_masked_row_is_not_the_average_of_the_values) {
  on_each_instruction_set([] {
    const auto in = inputs_with_values(1, 4, {1, 2, 3, 4});
    const Tensor<std::uint8_t> nothing({1, 4});
    EXPECT_EQ(list(attend(in.q, in.k, in.v).out), (std::vector<float>{2.5f}));
    EXPECT_EQ(list(attend(in.q, in.k, in.v, {.mask = boolean(nothing.view<2>())}).out), zeros(1));
    const Tensor<float> bias({1, 1, 1, 4}, -infinity);
    EXPECT_EQ(list(attend(in.q, in.k, in.v, {.bias = bias.view<4>()}).out), zeros(1));
  });
}

TEST(masking, asking_for_weights_with_one_head_masked_changes_nothing) {
  Tensor<std::uint8_t> allowed({1, 3, 5, 5}, std::uint8_t{1});
  for (Index i = 50; i < 75; ++i) allowed[i] = 0;
  on_each_instruction_set([&] {
    const auto in =
        random_inputs({.q_heads = 3, .kv_heads = 3, .q_len = 5, .kv_len = 5, .head_dim = 1, .value_dim = 1});
    const Mask mask = boolean(std::as_const(allowed).view<4>());
    const auto without = attend(in.q, in.k, in.v, {.mask = mask});
    const auto with = attend(in.q, in.k, in.v, {.mask = mask, .observe = {.weights = true}});
    EXPECT_TRUE(same_bits(without.out, with.out));
    for (Index row = 0; row < 15; ++row) {
      double sum = 0;
      for (Index j = 0; j < 5; ++j) sum += with.weights[row * 5 + j];
      EXPECT_NEAR(sum, row < 10 ? 1.0 : 0.0, row < 10 ? 1e-6 : 0.0);
    }
  });
}

TEST(masking, a_forbidden_key_may_hold_anything) {
  const Tensor<float> x({1, 1, 2, 4}, {0, 1, 2, 3, 4, 5, 6, 7});
  const Tensor<std::uint8_t> first_only({1, 2}, {1, 0});
  on_each_instruction_set([&] {
    for (float poison : {5.0f, 1e10f, not_a_number, infinity, -infinity}) {
      Tensor<float> k = x, v = x;
      k[4] = v[5] = poison;
      const auto out = attend(x, k, v, {.mask = boolean(first_only.view<2>())}).out;
      EXPECT_EQ(list(out), (std::vector<float>{0, 1, 2, 3, 0, 1, 2, 3})) << poison;
    }
  });
}

TEST(masking, padding_and_causal_are_anded_not_added) {
  const Tensor<std::int64_t> ids({1, 5}, {0, 0, 0, 1, 1});
  on_each_instruction_set([&] {
    EXPECT_EQ(seen_by(5, 5, {.mask = causal() & padding(ids, 0)}), "00000\n00000\n00000\n00010\n00011\n");
    const auto in = inputs_with_values(5, 5, {1, 2, 3, 4, 8});
    EXPECT_EQ(list(attend(in.q, in.k, in.v, {.mask = causal() & padding(ids, 0)}).out),
              (std::vector<float>{0, 0, 0, 4, 6}));
  });
}

TEST(masking, the_lowest_float_as_a_bias_is_a_number_and_minus_infinity_hides) {
  const float lowest = std::numeric_limits<float>::lowest();
  on_each_instruction_set([&] {
    const auto in = inputs_with_values(1, 2, {1, 3});
    const Tensor<float> low({1, 1, 1, 2}, lowest), hidden({1, 1, 1, 2}, {-infinity, lowest});
    EXPECT_EQ(attend(in.q, in.k, in.v, {.bias = low.view<4>()}).out[0], 2.0f);
    EXPECT_EQ(attend(in.q, in.k, in.v, {.bias = hidden.view<4>()}).out[0], 3.0f);
  });
}

TEST(masking, more_queries_than_keys_leave_the_first_rows_empty) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 5, .kv_len = 2});
    const auto got =
        attend(in.q, in.k, in.v, {.mask = causal(), .observe = {.lse = true, .entropy = true, .weights = true}});
    EXPECT_EQ(seen(got.weights), "00\n00\n00\n10\n11\n");
    for (Index i = 0; i < 3; ++i) {
      EXPECT_EQ(row_of(got.out, i), zeros(8));
      EXPECT_EQ(got.lse[i], -infinity);
      EXPECT_EQ(got.entropy[i], 0.0f);
    }
    EXPECT_EQ(row_of(got.out, 3), row_of(in.v, 0));
    EXPECT_EQ(got.entropy[3], 0.0f);
  });
}

// tanh is bounded: capping after the mask would bring a hidden key back.
TEST(masking, the_soft_cap_comes_before_the_mask) {
  on_each_instruction_set([] {
    const auto in = inputs_with_values(1, 2, {1, 3});
    const Tensor<float> bias({1, 1, 1, 2}, {0, -infinity});
    const auto got =
        attend(in.q, in.k, in.v, {.score = softcap(1), .bias = bias.view<4>(), .observe = {.weights = true}});
    EXPECT_EQ(list(got.weights), (std::vector<float>{1, 0}));
  });
}

TEST(masking, causal_holds_on_every_path_and_the_future_can_not_be_felt) {
  on_each_instruction_set([] {
    const CaseSizes sizes{.batch = 4, .q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 3};
    const auto in = random_inputs(sizes);
    auto changed = random_inputs(sizes);
    for (Index bh = 0; bh < 8; ++bh) changed.k[(bh * 3 + 2) * 8] = changed.v[(bh * 3 + 2) * 8] = 100.0f;
    for (const double p : {0.0, 0.3})
      for (const bool weights : {false, true}) {
        AttendOptions options{.mask = causal(), .dropout = {p, 5}, .observe = {.weights = weights}};
        const auto a = attend(in.q, in.k, in.v, options), b = attend(changed.q, changed.k, changed.v, options);
        for (Index entry = 0; entry < 4; ++entry)
          for (Index h = 0; h < 2; ++h) {
            EXPECT_EQ(row_of(a.out, 0, h, entry), row_of(b.out, 0, h, entry));
            EXPECT_EQ(row_of(a.out, 1, h, entry), row_of(b.out, 1, h, entry));
            if (p == 0.0) {
              EXPECT_EQ(row_of(a.out, 0, h, entry), row_of(in.v, 0, h, entry));
            }
          }
      }
  });
}

TEST(masking, an_explicit_mask_does_not_switch_causal_off) {
  Tensor<std::uint8_t> allowed({4, 4}, std::uint8_t{1});
  allowed[2 * 4 + 1] = 0;
  on_each_instruction_set([&] {
    const Mask both = causal() & boolean(std::as_const(allowed).view<2>());
    EXPECT_EQ(seen_by(4, 4, {.mask = both}), "1000\n1100\n1010\n1111\n");
  });
}

TEST(masking, one_query_against_a_cache_sees_all_of_it_or_says_top_left) {
  on_each_instruction_set([] {
    EXPECT_EQ(seen_by(1, 8, {.mask = causal()}), "11111111\n");
    EXPECT_EQ(seen_by(1, 8, {.mask = causal(), .q_start = top_left()}), "10000000\n");
  });
}

// To the bit, where chunks are too long for decoding, whose sums have another
// order.
TEST(masking, prefill_in_chunks_equals_prefill_at_once) {
  on_each_instruction_set([] {
    for (const auto& [first, all] : {std::pair<Index, Index>{6, 12}, {150, 260}}) {
      const auto in = random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = all, .kv_len = all});
      const auto q = std::as_const(in.q).view<4>(), k = std::as_const(in.k).view<4>(),
                 v = std::as_const(in.v).view<4>();
      for (const Mask& mask : {causal(), sliding_window(2)}) {
        const auto whole = attend(q, k, v, {.mask = mask});
        const auto early = attend(q.slice(2, 0, first), k.slice(2, 0, first), v.slice(2, 0, first), {.mask = mask});
        const auto late = attend(q.slice(2, first, all), k, v, {.mask = mask});
        EXPECT_TRUE(same_bits(early.out, packed(std::as_const(whole.out).view<4>().slice(2, 0, first))));
        EXPECT_TRUE(same_bits(late.out, packed(std::as_const(whole.out).view<4>().slice(2, first, all))));
      }
    }
    EXPECT_EQ(seen_by(2, 5, {.mask = causal()}), "11110\n11111\n");
  });
}

TEST(masking, a_window_of_w_keys_counts_the_query_itself) {
  on_each_instruction_set([] {
    EXPECT_EQ(seen_by(5, 5, {.mask = sliding_window(2)}), "10000\n11000\n01100\n00110\n00011\n");
    EXPECT_EQ(seen_by(1, 5, {.mask = sliding_window(2)}), "00011\n");
    const auto in = random_inputs({.q_len = 200, .kv_len = 200});
    for (const Index wide : {Index{200}, Index{1000}, std::numeric_limits<Index>::max()})
      EXPECT_TRUE(same_bits(attend(in.q, in.k, in.v, {.mask = sliding_window(wide)}).out,
                            attend(in.q, in.k, in.v, {.mask = causal()}).out));
    EXPECT_TRUE(same_bits(attend(in.q, in.k, in.v, {.mask = window(0, std::numeric_limits<Index>::max())}).out,
                          attend(in.q, in.k, in.v, {.mask = window(0, -1)}).out));
  });
}

TEST(masking, query_starts_differ_per_entry_and_may_be_negative) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.batch = 3, .q_len = 3, .kv_len = 4});
    const auto got = attend(in.q, in.k, in.v,
                            {.mask = causal(), .q_start = std::vector<Index>{0, -2, 2}, .observe = {.weights = true}});
    EXPECT_EQ(seen(got.weights), "1000\n1100\n1110\n0000\n0000\n1000\n1110\n1111\n1111\n");
  });
}

TEST(masking, key_lengths_hide_the_end_and_do_not_move_the_queries) {
  on_each_instruction_set([] {
    const std::vector<Index> lengths{0, 4, 2};
    auto in = random_inputs({.batch = 3, .q_len = 2, .kv_len = 4});
    in.k[4 * 8] = in.v[2 * 4 * 8 + 3 * 8] = not_a_number;  // inside entry 1's keys; beyond entry 2's
    in.k[4 * 8] = 1.0f;
    const auto got =
        attend(in.q, in.k, in.v,
               {.mask = causal() | all_visible(), .kv_lengths = lengths, .observe = {.lse = true, .weights = true}});
    EXPECT_EQ(seen(got.weights), "0000\n0000\n1111\n1111\n1100\n1100\n");
    EXPECT_TRUE(all_finite(got.out));
    EXPECT_EQ(got.lse[0], -infinity);
    EXPECT_EQ(
        seen(attend(in.q, in.k, in.v, {.mask = causal(), .kv_lengths = lengths, .observe = {.weights = true}}).weights),
        "0000\n0000\n1110\n1111\n1100\n1100\n");
  });
}

TEST(masking, a_sink_alone_gives_zero_and_its_own_logit) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 3});
    const std::vector<float> sink{0.75f, -2.0f};
    AttendOptions options{.mask = causal(),
                          .q_start = Index{-1},
                          .sink = sink,
                          .observe = {.lse = true, .entropy = true, .weights = true}};
    const auto got = attend(in.q, in.k, in.v, options);
    for (Index h = 0; h < 2; ++h) {
      EXPECT_EQ(row_of(got.out, 0, h), zeros(8));
      EXPECT_EQ(got.lse[h * 3], sink[static_cast<std::size_t>(h)]);
      EXPECT_EQ(got.entropy[h * 3], 0.0f);
      for (Index i = 1; i < 3; ++i) {
        double sum = 0;
        for (float weight : row_of(got.weights, i, h)) sum += static_cast<double>(weight);
        const double left = std::exp(static_cast<double>(sink[static_cast<std::size_t>(h)] - got.lse[h * 3 + i]));
        EXPECT_NEAR(sum, 1.0 - left, 1e-6);
        EXPECT_LT(sum, 1.0);
      }
    }
  });
}

// Slopes as powers of two, from the authors' published code.
TEST(masking, alibi_slopes_are_the_published_ones) {
  const std::vector<std::pair<Index, std::vector<float>>> published{
      {8, {-1, -2, -3, -4, -5, -6, -7, -8}},
      {12, {-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5}},
      {6, {-2, -4, -6, -8, -1, -3}},
      {3, {-4, -8, -2}},
      {1, {-8}}};
  for (const auto& [heads, powers] : published) {
    const auto slopes = alibi_slopes(heads);
    ASSERT_EQ(slopes.size(), powers.size());
    for (std::size_t h = 0; h < powers.size(); ++h) EXPECT_FLOAT_EQ(slopes[h], std::exp2(powers[h])) << heads;
  }
}

}  // namespace
}  // namespace regard
