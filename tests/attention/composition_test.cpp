// Every composition of the operator at sizes that cross tiles, forward and
// backward, on every instruction set, against the double-precision reference.
#include "attention/compare.h"

namespace regard {
namespace {

using testing::Composition;
using testing::normal;

struct Sizes {
  Index batch = 1, q_heads = 2, kv_heads = 2, q_len = 1, kv_len = 1, head_dim = 16, value_dim = 16;
};

Composition with_sizes(std::string name, const Sizes& s) {
  return {std::move(name),
          normal({s.batch, s.q_heads, s.q_len, s.head_dim}, 1),
          normal({s.batch, s.kv_heads, s.kv_len, s.head_dim}, 2),
          normal({s.batch, s.kv_heads, s.kv_len, s.value_dim}, 3),
          {},
          {},
          {},
          {}};
}

struct Recency {
  float rate;
  float operator()(float score, const Position& at) const {
    return score * 0.5f - rate * static_cast<float>(at.distance() * at.distance()) * 1e-4f;
  }
  float derivative(float, const Position&) const { return 0.5f; }
};

// Hides odd keys by returning -inf.
struct EvenKeysOnly {
  template <class T>
  T operator()(T score, const Position& at) const {
    return at.key() % 2 ? -std::numeric_limits<T>::infinity() : score;
  }
  template <class T>
  T derivative(T, const Position&) const {
    return T{1};
  }
};

class EveryLength : public ::testing::TestWithParam<std::tuple<Index, Index>> {};

TEST_P(EveryLength, plain_causal_and_window_match_the_reference) {
  const auto [q_len, kv_len] = GetParam();
  testing::on_each_instruction_set([&, q_len = q_len, kv_len = kv_len] {
    auto c =
        with_sizes("all visible",
                   {.q_heads = 2, .kv_heads = 1, .q_len = q_len, .kv_len = kv_len, .head_dim = 20, .value_dim = 28});
    testing::expect_matches_reference(c);
    c.name = "causal";
    c.options.mask = causal();
    testing::expect_matches_reference(c);
    c.name = "causal, top-left";
    c.options.q_start = top_left();
    testing::expect_matches_reference(c);
    c.name = "window(9, 3)";
    c.options.mask = window(9, 3);
    testing::expect_matches_reference(c);
  });
}

INSTANTIATE_TEST_SUITE_P(lengths, EveryLength,
                         ::testing::Values(std::tuple{1, 1}, std::tuple{1, 7}, std::tuple{7, 1}, std::tuple{5, 63},
                                           std::tuple{63, 5}, std::tuple{25, 191}, std::tuple{49, 193},
                                           std::tuple{193, 129}, std::tuple{31, 1000}, std::tuple{131, 1000}));

TEST(composition, head_sizes_that_are_no_multiple_of_a_vector) {
  testing::on_each_instruction_set([] {
    for (const auto& [head_dim, value_dim] :
         {std::pair<Index, Index>{1, 1}, {3, 17}, {24, 28}, {40, 33}, {80, 96}, {130, 7}, {256, 256}})
      testing::expect_matches_reference(
          with_sizes("head_dim " + std::to_string(head_dim),
                     {.q_len = 50, .kv_len = 210, .head_dim = head_dim, .value_dim = value_dim}));
  });
}

TEST(composition, every_mask_combined) {
  const Index batch = 2, q_len = 60, kv_len = 200;
  Tensor<std::int64_t> documents_of_q({1, q_len}), documents_of_k({1, kv_len}), ids({batch, kv_len}, std::int64_t{1});
  for (Index i = 0; i < q_len; ++i) documents_of_q[i] = (kv_len - q_len + i) / 70;
  for (Index j = 0; j < kv_len; ++j) documents_of_k[j] = j / 70;
  for (Index j = 150; j < kv_len; ++j) ids[kv_len + j] = 0;
  Tensor<std::uint8_t> speckled({batch, 1, q_len, kv_len});
  for (Index i = 0; i < speckled.count(); ++i) speckled[i] = (i * 7919 % 13) > 3;
  const Mask rule = documents(documents_of_q, documents_of_k), holes = boolean(std::as_const(speckled).view<4>());
  const std::vector<std::pair<std::string, Mask>> masks{
      {"documents", rule},
      {"boolean", holes},
      {"padding", padding(ids, 0)},
      {"causal & documents & padding", causal() & rule & padding(ids, 0)},
      {"window | boolean", window(5, 5) | holes},
      {"!window | (documents & boolean)", (!window(30, -1)) | (rule & holes)},
      {"nothing visible", causal() & !causal()},
  };
  testing::on_each_instruction_set([&] {
    for (const auto& [name, mask] : masks) {
      auto c = with_sizes(name, {.batch = batch, .q_heads = 4, .kv_heads = 2, .q_len = q_len, .kv_len = kv_len});
      c.options.mask = mask;
      testing::expect_matches_reference(c);
    }
  });
}

TEST(composition, bias_broadcast_over_every_axis) {
  const Index batch = 2, heads = 2, q_len = 50, kv_len = 195;
  testing::on_each_instruction_set([&] {
    for (int axes = 0; axes < 16; ++axes) {
      auto c = with_sizes("bias axes " + std::to_string(axes),
                          {.batch = batch, .q_heads = heads, .kv_heads = 1, .q_len = q_len, .kv_len = kv_len});
      c.bias = normal({axes & 1 ? batch : 1, axes & 2 ? heads : 1, axes & 4 ? q_len : 1, axes & 8 ? kv_len : 1}, 4);
      if (axes & 8) c.bias[3] = -std::numeric_limits<float>::infinity();
      c.options.mask = causal();
      testing::expect_matches_reference(c);
    }
  });
}

TEST(composition, score_modifiers_chain_and_have_exact_gradients) {
  testing::on_each_instruction_set([] {
    const auto slopes = alibi_slopes(4);
    const std::vector<std::pair<std::string, ScoreModifiers>> chains{
        {"softcap", softcap(2.0f)},
        {"alibi", alibi(slopes)},
        {"user", Recency{0.3f}},
        {"softcap + alibi + user", softcap(3.0f) + alibi(slopes) + ScoreModifiers(Recency{0.2f})},
        {"user that hides, then user", ScoreModifiers(EvenKeysOnly{}) + ScoreModifiers(Recency{0.1f})},
    };
    for (const auto& [name, chain] : chains) {
      auto c = with_sizes(name, {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 50, .kv_len = 197});
      c.options.score = chain;
      c.options.mask = causal();
      testing::expect_matches_reference(c);
    }
  });
}

TEST(composition, lengths_sinks_starts_dropout_and_scale_together) {
  testing::on_each_instruction_set([] {
    auto c = with_sizes(
        "everything",
        {.batch = 3, .q_heads = 6, .kv_heads = 3, .q_len = 53, .kv_len = 205, .head_dim = 24, .value_dim = 20});
    c.sink = {0.5f, -1.0f, 2.0f, 9.0f, -20.0f, 0.0f};
    c.kv_lengths = {205, 0, 100};
    c.bias = normal({1, 6, 53, 205}, 9);
    c.options.mask = causal() & window(120, 0);
    c.options.score = softcap(5.0f) + alibi(alibi_slopes(6));
    c.options.q_start = std::vector<Index>{152, -10, 47};
    c.options.scale = 0.3f;
    c.options.dropout = {0.2, 99};
    testing::expect_matches_reference(c);
  });
}

TEST(composition, large_scores_stay_within_the_rule) {
  testing::on_each_instruction_set([] {
    auto c = with_sizes("scores near 60", {.q_len = 40, .kv_len = 300, .head_dim = 32, .value_dim = 32});
    c.options.scale = 2.0f;
    testing::expect_matches_reference(c);
  });
}

}  // namespace
}  // namespace regard
