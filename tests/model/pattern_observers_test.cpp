// Patterns named by observers while a model runs, without its matrices.
#include <gtest/gtest.h>

#include <cmath>

#include "model/toy.h"
#include "regard/attend.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::toy_model;
using testing::toy_sizes;

void expect_same(const HeadPattern& a, const HeadPattern& b, const std::string& what) {
  EXPECT_EQ(a.label, b.label) << what;
  EXPECT_EQ(a.vertical_key, b.vertical_key) << what;
  EXPECT_NEAR(a.distance, b.distance, 1e-5) << what;
  for (std::size_t p = 0; p < scored_patterns; ++p) {
    const std::string name = what + " " + pattern_name(static_cast<Pattern>(p));
    EXPECT_EQ(std::isnan(a.scores[p].score), std::isnan(b.scores[p].score)) << name;
    if (!std::isnan(a.scores[p].score)) {
      EXPECT_NEAR(a.scores[p].score, b.scores[p].score, 1e-5) << name;
    }
  }
}

TEST(PatternObservers, name_the_same_patterns_as_the_recorded_matrices) {
  for (NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    Model model = toy_model(toy_sizes(norm));
    // With separators on both sides, so that blocks are seen too.
    model.source = model.target = Vocabulary({"a", "b", "c", "d", "."});
    const std::string text = "abc.dda.cb";
    std::vector<std::int64_t> output;
    for (const char* symbol : {"b", ".", "a", "d", "c", ".", "d"}) output.push_back(model.target.id(symbol));
    const Trace linear = record_trace(model, text, output, {.weights = false});
    Trace whole = record_trace(model, text, output);
    for (AttentionMap& map : whole.maps) map.patterns.clear();
    for (AttentionKind kind : {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross}) {
      const PatternGrid seen = pattern_grid(linear, kind), read = pattern_grid(whole, kind);
      ASSERT_EQ(seen.layers.size(), 2u);
      for (std::size_t layer = 0; layer < 2; ++layer) {
        ASSERT_EQ(seen.layers[layer].heads.size(), 4u);
        for (std::size_t head = 0; head < 4; ++head)
          expect_same(
              seen.layers[layer].heads[head], read.layers[layer].heads[head],
              std::string(kind_name(kind)) + " layer " + std::to_string(layer) + " head " + std::to_string(head));
      }
      EXPECT_FALSE(std::isnan(seen.layers[0].heads[0].of(Pattern::block).score) && kind != AttentionKind::cross);
    }
    for (const AttentionMap& map : linear.maps) EXPECT_TRUE(map.weights.empty());
  }
}

TEST(PatternObservers, leave_traces_of_norms_and_rollout_to_the_weights) {
  const Model model = toy_model();
  const std::vector<std::int64_t> output{4, 5, 6};
  for (MapQuantity quantity : {MapQuantity::norms, MapQuantity::rollout})
    EXPECT_THROW(record_trace(model, "abc", output, {.weights = false, .quantity = quantity}), ArgumentError);
  // One head of a layer that gives nothing has no norms; the others share what is there.
  for (Parameter<float>* parameter : model.network->parameters())
    if (parameter->name == "decoder.1.cross.output.weight")
      for (Index row = 0; row < 8; ++row)
        for (Index c = 0; c < 32; ++c) parameter->value[row * 32 + c] = 0;
  const Trace norms = record_trace(model, "abc", output, {.quantity = MapQuantity::norms});
  EXPECT_EQ(norms.quantity, MapQuantity::norms);
  for (const AttentionMap& map : norms.maps) {
    const Index heads = map.weights.size(0), q_len = map.weights.size(1), kv_len = map.weights.size(2);
    for (Index row = 0; row < heads * q_len; ++row) {
      double sum = 0;
      for (Index key = 0; key < kv_len; ++key) sum += map.weights[row * kv_len + key];
      const bool silent = map.kind == AttentionKind::cross && map.layer == 1 && row < q_len;
      EXPECT_NEAR(sum, silent ? 0 : 1, 1e-5);
    }
    for (Index row = 0; row < q_len; ++row) {
      double sum = 0;
      for (Index key = 0; key < kv_len; ++key) sum += map.joint[row * kv_len + key];
      if (map.kind == AttentionKind::cross) {
        EXPECT_LT(sum, 0.999) << "the residual takes part";
        EXPECT_GT(sum, 0.001);
      } else {
        EXPECT_NEAR(sum, 1, 1e-5);
      }
    }
  }
}

// Queries and keys that stand for positions: query i is the key of i - offset.
// 20 times a unit vector against another gives e^20 to 1.
TEST(PatternObservers, heads_built_from_queries_and_keys_are_named_over_thousands_of_tokens) {
  const Index n = 3000, dim = 64, window = PatternOptions{}.window;
  struct Built {
    Pattern pattern;
    Index offset;
  };
  for (const Built& built : {Built{Pattern::previous, 1}, {Pattern::self, 0}, {Pattern::next, -1}}) {
    Tensor<float> q({1, 1, n, dim}), k({1, 1, n, dim}), v({1, 1, n, 1});
    for (Index i = 0; i < n; ++i) {
      // Positions as binary digits: +1 or -1 a digit, so only equal positions reach the largest score.
      for (Index d = 0; d < 12; ++d) {
        k[i * dim + d] = (i >> d) & 1 ? 1.0f : -1.0f;
        q[i * dim + d] = ((i - built.offset + n) % n >> d) & 1 ? 10.0f : -10.0f;
      }
    }
    const auto seen = attend(q, k, v,
                             {.scale = 1.0f,
                              .observe = {.entropy = true,
                                          .distance = true,
                                          .top_k = 1,
                                          .key_mass = QueryRange{},
                                          .diagonals = OffsetRange{-window, window}}});
    HeadObservations observed{seen.diagonal_mass, seen.key_mass, seen.distance, seen.entropy, seen.top_weights, {}};
    for (Tensor<float>* part :
         {&observed.diagonals, &observed.key_mass, &observed.distance, &observed.entropy, &observed.top_weight})
      part->reshape({1, part->count()});
    const HeadPattern head = name_patterns(observed, {.q_len = n, .kv_len = n}).at(0);
    EXPECT_EQ(head.label, built.pattern);
    EXPECT_NEAR(head.label_score(), 1, 1e-4) << "one digit off costs e^20";
  }
}

}  // namespace
}  // namespace regard
