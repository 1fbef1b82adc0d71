// What a mask hides contributes nothing, whatever it holds: every call is
// compared, bit for bit, with the same call where the hidden numbers are 0.
#include "attention/cases.h"
#include "regard/sparse_masks.h"

namespace regard {
namespace {

using namespace testing;

void fill_rows(Tensor<float>& x, const std::vector<Index>& rows, float value) {
  for (Index head = 0; head < x.size(0) * x.size(1); ++head)
    for (Index row : rows) std::fill_n(x.data() + (head * x.size(2) + row) * x.size(3), x.size(3), value);
}

// Keys that nobody sees and queries that see nobody, across several tiles.
struct HoleyCase {
  static constexpr Index q_len = 60, kv_len = 230;
  CaseSizes sizes{
      .batch = 1, .q_heads = 4, .kv_heads = 2, .q_len = q_len, .kv_len = kv_len, .head_dim = 20, .value_dim = 24};
  std::vector<Index> keys{0, 5, 50, 127, 128, 191, 192, 229}, queries{0, 3, 23, 24, 47, 48, 59};
  Tensor<std::uint8_t> allowed{Shape{q_len, kv_len}, std::uint8_t{1}};
  HoleyCase() {
    for (Index i = 0; i < q_len; ++i)
      for (Index j : keys) allowed[i * kv_len + j] = 0;
    for (Index i : queries) std::fill_n(allowed.data() + i * kv_len, kv_len, std::uint8_t{0});
  }
  std::pair<Inputs, Tensor<float>> inputs(float hidden) const {
    auto in = random_inputs(sizes);
    auto dout = normal({1, 4, q_len, 24}, 9);
    fill_rows(in.q, queries, hidden);
    fill_rows(in.k, keys, hidden);
    fill_rows(in.v, keys, hidden);
    fill_rows(dout, queries, hidden);
    return {in, dout};
  }
};

void expect_hidden_numbers_do_not_matter(const HoleyCase& holes, const AttendOptions& options) {
  const auto [clean, clean_dout] = holes.inputs(0.0f);
  const auto wanted = answer_to(clean, clean_dout, options);
  EXPECT_TRUE(all_finite(wanted.forward.out));
  for (float poison : {not_a_number, infinity, -infinity, 3e38f}) {
    SCOPED_TRACE(instruction_set() + " holding " + std::to_string(poison));
    const auto [in, dout] = holes.inputs(poison);
    expect_same(answer_to(in, dout, options), wanted);
  }
}

TEST(hidden_values, contribute_nothing_to_outputs_and_gradients) {
  const HoleyCase holes;
  const Mask mask = boolean(holes.allowed.view<2>());
  on_each_instruction_set([&] { expect_hidden_numbers_do_not_matter(holes, {.mask = mask}); });
}

TEST(hidden_values, contribute_nothing_with_modifiers_bias_sink_and_dropout) {
  const HoleyCase holes;
  const auto slopes = alibi_slopes(4);
  const std::vector<float> sink{0.5f, -1, 2, 0};
  on_each_instruction_set([&] {
    for (const Shape& shape : {Shape{1, 4, 60, 230}, Shape{1, 1, 60, 230}, Shape{1, 4, 1, 1}}) {
      const auto bias = normal(shape, 4);
      expect_hidden_numbers_do_not_matter(holes, {.mask = causal() & boolean(holes.allowed.view<2>()),
                                                  .score = softcap(4) + alibi(slopes),
                                                  .bias = bias.view<4>(),
                                                  .sink = sink,
                                                  .dropout = {0.2, 3}});
    }
  });
}

TEST(hidden_values, may_overflow_only_once_scaled) {
  const HoleyCase holes;
  const Mask mask = boolean(holes.allowed.view<2>());
  on_each_instruction_set([&] { expect_hidden_numbers_do_not_matter(holes, {.mask = mask, .scale = 4.0f}); });
}

// Under a fixed pattern a tile's summary keys and its block's own are seen, and whole
// panels of keys between them by nobody: those enter no product, whatever they hold.
TEST(hidden_values, of_panels_inside_a_tile_contribute_nothing) {
  constexpr Index length = 260;
  const Mask mask = causal() & fixed_blocks(64, 8);
  const CaseSizes sizes{
      .batch = 1, .q_heads = 2, .kv_heads = 1, .q_len = length, .kv_len = length, .head_dim = 20, .value_dim = 24};
  // Queries from 192 on see the last 8 of each earlier block of 64 and their own.
  const auto inputs = [&](float hidden) {
    auto in = random_inputs(sizes);
    for (Index j = 0; j < 192; ++j)
      if (j % 64 < 56) {
        fill_rows(in.k, {j}, hidden);
        fill_rows(in.v, {j}, hidden);
      }
    return in;
  };
  const auto dout = normal({1, 2, length, 24}, 9);
  const AttendOptions options{.mask = mask};
  on_each_instruction_set([&] {
    const auto wanted = answer_to(inputs(0.0f), dout, options);
    for (float poison : {not_a_number, infinity, -infinity, 3e38f}) {
      SCOPED_TRACE(instruction_set() + " holding " + std::to_string(poison));
      const auto got = answer_to(inputs(poison), dout, options);
      for (Index h = 0; h < 2; ++h)
        for (Index i = 192; i < length; ++i) {
          ASSERT_EQ(row_of(got.forward.out, i, h), row_of(wanted.forward.out, i, h)) << i;
          ASSERT_EQ(row_of(got.gradients.dq, i, h), row_of(wanted.gradients.dq, i, h)) << i;
        }
      // Keys that only queries from 192 on see.
      for (Index j = 192; j < length; ++j) {
        ASSERT_EQ(row_of(got.gradients.dk, j), row_of(wanted.gradients.dk, j)) << j;
        ASSERT_EQ(row_of(got.gradients.dv, j), row_of(wanted.gradients.dv, j)) << j;
      }
    }
  });
}

// The query is visible to the first keys only: its NaN stays in its own row
// and in the gradients of the keys that it sees.
TEST(hidden_values, a_poisoned_query_spares_the_keys_that_it_does_not_see) {
  on_each_instruction_set([] {
    const CaseSizes sizes{.q_len = 150, .kv_len = 150, .head_dim = 16, .value_dim = 16};
    const auto dout = normal({1, 1, 150, 16}, 9);
    const auto bias = normal({1, 1, 150, 150}, 4);
    for (float poison : {not_a_number, infinity, 1e38f}) {
      SCOPED_TRACE(instruction_set() + " holding " + std::to_string(poison));
      auto in = random_inputs(sizes);
      for (Index d = 0; d < 16; ++d) in.q[40 * 16 + d] = poison;
      const auto got = answer_to(in, dout, {.mask = causal(), .bias = bias.view<4>()});
      for (Index j = 41; j < 150; ++j)
        for (Index d = 0; d < 16; ++d) {
          ASSERT_TRUE(std::isfinite(got.gradients.dk[j * 16 + d])) << "dk of key " << j;
          ASSERT_TRUE(std::isfinite(got.gradients.dv[j * 16 + d])) << "dv of key " << j;
          ASSERT_EQ(got.gradients.dbias[40 * 150 + j], 0.0f) << "bias of key " << j;
          ASSERT_EQ(got.forward.weights[40 * 150 + j], 0.0f) << "weight of key " << j;
        }
    }
  });
}

// A bias of NaN makes its own row NaN; what the row does not see stays clean.
TEST(hidden_values, a_poisoned_bias_spares_the_hidden_pairs_of_its_row) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 60, .kv_len = 60});
    const auto dout = normal({1, 1, 60, 8}, 9);
    Tensor<float> bias({1, 1, 60, 60});
    bias[30 * 60 + 2] = not_a_number;
    const auto got = answer_to(in, dout, {.mask = causal(), .bias = bias.view<4>()});
    for (Index i = 0; i < 60; ++i)
      for (float value : row_of(got.forward.out, i)) ASSERT_EQ(std::isnan(value), i == 30) << i;
    for (Index j = 31; j < 60; ++j) {
      ASSERT_EQ(got.gradients.dbias[30 * 60 + j], 0.0f);
      for (float value : row_of(got.gradients.dk, j)) ASSERT_TRUE(std::isfinite(value)) << j;
      for (float value : row_of(got.gradients.dv, j)) ASSERT_TRUE(std::isfinite(value)) << j;
    }
  });
}

TEST(hidden_values, a_bias_of_minus_infinity_hides_even_a_nan_score) {
  on_each_instruction_set([] {
    auto in = random_inputs({.q_len = 3, .kv_len = 3});
    for (Index d = 0; d < 8; ++d) in.k[8 + d] = in.v[8 + d] = not_a_number;
    Tensor<float> bias({1, 1, 1, 3}, {0, -infinity, 0});
    const auto got = answer_to(in, normal({1, 1, 3, 8}, 9), {.bias = std::as_const(bias).view<4>()});
    EXPECT_EQ(seen(got.forward.weights), "101\n101\n101\n");
    EXPECT_TRUE(all_finite(got.forward.out) && all_finite(got.gradients.dq) && all_finite(got.gradients.dv));
    EXPECT_EQ(row_of(got.gradients.dk, 1), zeros(8));
    EXPECT_EQ(got.gradients.dbias[1], 0.0f);
  });
}

struct HidesKeyOne {
  float operator()(float score, const Position& at) const { return at.key() == 1 ? -infinity : score; }
  float derivative(float, const Position&) const { return 1.0f; }
};

TEST(hidden_values, a_modifiers_minus_infinity_hides) {
  on_each_instruction_set([] {
    auto in = random_inputs({.q_len = 3, .kv_len = 3});
    for (Index d = 0; d < 8; ++d) in.k[8 + d] = in.v[8 + d] = not_a_number;
    const auto got = answer_to(in, normal({1, 1, 3, 8}, 9), {.score = HidesKeyOne{}});
    EXPECT_EQ(seen(got.forward.weights), "101\n101\n101\n");
    EXPECT_TRUE(all_finite(got.forward.out) && all_finite(got.gradients.dq) && all_finite(got.gradients.dk));
    EXPECT_EQ(row_of(got.gradients.dv, 1), zeros(8));
  });
}

}  // namespace
}  // namespace regard
