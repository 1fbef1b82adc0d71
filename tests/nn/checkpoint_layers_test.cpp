// Layers with attention of their own give what transformers computed with the same
// weights (tests/data/layers).
#include <gtest/gtest.h>

#include <cmath>

#include "regard/disentangled.h"
#include "regard/longformer.h"
#include "regard/rope.h"
#include "regard/safetensors.h"
#include "regard/sparse_masks.h"
#include "regard/transformer.h"

namespace regard {
namespace {

class Fixture {
 public:
  explicit Fixture(std::string name)
      : name_(std::move(name)), file_(read_safetensors(std::string(REGARD_TEST_DATA) + "/layers/layers.safetensors")) {}

  Tensor<float> floats(const std::string& part) const { return to_float(file_.at(name_ + "." + part), part); }
  Tensor<std::int64_t> integers(const std::string& part) const { return to_int64(file_.at(name_ + "." + part), part); }

  // Into columns [first, first + out) of a layer's weight [in, columns].
  void load(const std::string& part, Linear<float>& into, Index first = 0) const {
    const auto weight = floats(part + ".weight");
    const Index columns = into.weight.value.size(1);
    for (Index o = 0; o < weight.size(0); ++o)
      for (Index i = 0; i < weight.size(1); ++i)
        into.weight.value[i * columns + first + o] = weight[o * weight.size(1) + i];
    if (!file_.has(name_ + "." + part + ".bias")) return;
    const auto bias = floats(part + ".bias");
    std::copy_n(bias.data(), bias.count(), into.bias.value.data() + first);
  }
  void load(const std::string& part, LayerNorm<float>& into) const {
    into.gain.value = floats(part + ".weight");
    if (file_.has(name_ + "." + part + ".bias")) into.bias.value = floats(part + ".bias");
  }
  void load_keys_and_values(const std::string& prefix, Linear<float>& into) const {
    load(prefix + "key", into);
    load(prefix + "value", into, into.out() / 2);
  }

  // Rows of real tokens.
  void expect_output(const Tensor<float>& got, double tolerance) const {
    const auto wanted = floats("y");
    const auto mask = integers("mask");
    ASSERT_EQ(got.shape(), wanted.shape());
    for (Index i = 0; i < got.count(); ++i)
      if (mask[i / got.size(2)] != 0) {
        ASSERT_NEAR(got[i], wanted[i], tolerance) << name_ << " at " << i;
      }
  }

  // Rows of real queries, [batch, heads, seq, seq].
  void expect_weights(const Tensor<float>& got, double tolerance) const {
    const auto wanted = floats("attentions");
    const auto mask = integers("mask");
    ASSERT_EQ(got.shape(), wanted.shape());
    const Index seq = got.size(3);
    for (Index i = 0; i < got.count(); ++i) {
      const Index b = i / (got.size(1) * seq * seq), query = i / seq % seq;
      if (mask[b * seq + query] != 0) {
        ASSERT_NEAR(got[i], wanted[i], tolerance) << name_ << " at " << i;
      }
    }
  }

 private:
  std::string name_;
  TensorFile file_;
};

// Post-norm around an attention layer, as BERT has it.
struct Around {
  Around(const Fixture& fixture, Index width, Index hidden, Activation activation, double epsilon = 1e-12)
      : first_norm("norm", width, epsilon),
        second_norm("norm", width, epsilon),
        feed_forward("feed_forward", width, hidden, random, activation) {
    fixture.load("attention_norm", first_norm);
    fixture.load("feed_forward_norm", second_norm);
    fixture.load("first", feed_forward.first);
    fixture.load("second", feed_forward.second);
  }
  Tensor<float> finish(Tape<float>& tape, const Var<float>& x, const Var<float>& attended) {
    const auto middle = first_norm.forward(tape, add_residual(tape, x, attended, 0.0));
    return second_norm.forward(tape, add_residual(tape, middle, feed_forward.forward(tape, middle), 0.0))->value;
  }
  Random random{1};
  LayerNorm<float> first_norm, second_norm;
  FeedForward<float> feed_forward;
};

LongformerAttention<float> longformer_of(const Fixture& fixture) {
  Random random(1);
  LongformerAttention<float> layer("longformer", {.model_dim = 48, .heads = 4, .each_side = 4}, random);
  fixture.load("query", layer.query);
  fixture.load("global_query", layer.global_query);
  fixture.load_keys_and_values("", layer.key_value);
  fixture.load_keys_and_values("global_", layer.global_key_value);
  fixture.load("output", layer.output);
  return layer;
}

std::vector<std::vector<Index>> positions_of(const Tensor<std::int64_t>& flags) {
  std::vector<std::vector<Index>> lists(static_cast<std::size_t>(flags.size(0)));
  for (Index i = 0; i < flags.count(); ++i)
    if (flags[i] != 0) lists[static_cast<std::size_t>(i / flags.size(1))].push_back(i % flags.size(1));
  return lists;
}

// weights [batch, heads, seq, seq] against the compact layout: global keys, then
// the window. A key that is global stands in the first columns only.
void expect_local_weights(const Tensor<float>& got, const Tensor<float>& wanted,
                          const std::vector<std::vector<Index>>& globals, double tolerance) {
  const Index seq = got.size(2), heads = got.size(1), columns = wanted.size(3), first = columns - 9;
  for (Index row = 0; row < got.count() / seq; ++row) {
    const auto& list = globals[static_cast<std::size_t>(row / seq / heads)];
    const Index query = row % seq;
    const auto is_global = [&](Index key) { return std::count(list.begin(), list.end(), key) > 0; };
    for (std::size_t n = 0; n < list.size(); ++n)
      ASSERT_NEAR(got[row * seq + list[n]], wanted[row * columns + static_cast<Index>(n)], tolerance) << row;
    for (Index key = 0; key < seq; ++key) {
      if (is_global(key)) continue;
      const bool near = std::abs(key - query) <= 4;
      const float right = near ? wanted[row * columns + first + key - query + 4] : 0.0f;
      ASSERT_NEAR(got[row * seq + key], right, tolerance) << "row " << row << " key " << key;
    }
  }
}

TEST(checkpoint_layers, longformer_with_global_tokens_and_padding) {
  const Fixture fixture("longformer");
  auto layer = longformer_of(fixture);
  const auto globals = positions_of(fixture.integers("global_mask"));
  ASSERT_EQ(globals, (std::vector<std::vector<Index>>{{0}, {0, 7}}));
  Tape<float> tape;
  HeadWeights<float> local, global;
  const auto x = tape.node(fixture.floats("x"));
  const auto y = layer.forward(tape, x, {globals, fixture.integers("mask"), &local, &global});
  Around around(fixture, 48, 128, Activation::gelu);
  fixture.expect_output(around.finish(tape, x, y), 8.1e-6);
  expect_local_weights(local.weights, fixture.floats("local"), globals, 3.6e-6);

  const auto wanted = fixture.floats("global");  // [batch, heads, key, query]
  ASSERT_EQ(global.weights.shape(), (Shape{2, 4, 2, 24}));
  for (Index bh = 0; bh < 8; ++bh)
    for (std::size_t n = 0; n < globals[static_cast<std::size_t>(bh / 4)].size(); ++n)
      for (Index key = 0; key < 24; ++key) {
        const auto place = static_cast<Index>(n);
        ASSERT_NEAR(global.weights[(bh * 2 + place) * 24 + key], wanted[(bh * 24 + key) * 2 + place], 1.7e-6);
      }
}

TEST(checkpoint_layers, longformer_without_global_tokens) {
  const Fixture fixture("longformer"), states("longformer.local_only");
  auto layer = longformer_of(fixture);
  Tape<float> tape;
  HeadWeights<float> local;
  const auto x = tape.node(states.floats("x"));
  const auto y = layer.forward(tape, x, {.present = states.integers("mask"), .local = &local});
  Around around(fixture, 48, 128, Activation::gelu);
  states.expect_output(around.finish(tape, x, y), 6.9e-6);
  expect_local_weights(local.weights, states.floats("local"), {{}, {}}, 3.5e-6);
}

// Blocks of 8 of 128 tokens; the drawn blocks are given for blocks of queries 1 to 14.
TEST(checkpoint_layers, big_bird) {
  const Fixture fixture("big_bird");
  Random random(1);
  MultiHeadAttention<float> layer("big_bird", {.model_dim = 32, .heads = 4}, random);
  fixture.load("query", layer.query);
  fixture.load_keys_and_values("", layer.key_value);
  fixture.load("output", layer.output);
  const auto given = fixture.integers("blocks");
  Tensor<std::int64_t> chosen({4, 16, 2});
  for (Index h = 0; h < 4; ++h) std::copy_n(given.data() + h * 28, 28, chosen.data() + h * 32 + 2);
  std::vector<Index> global;
  for (Index i = 0; i < 8; ++i) global.insert(global.end(), {i, 120 + i});
  const auto tokens = fixture.integers("mask");
  const Mask mask = (block_window(8, 1) | global_tokens(global) | chosen_blocks(chosen, 8)) & padding(tokens, 0);
  Tape<float> tape;
  const auto x = tape.node(fixture.floats("x"));
  Around around(fixture, 32, 64, Activation::gelu_tanh);
  fixture.expect_output(around.finish(tape, x, layer.self(tape, x, {.mask = mask})), 1.2e-5);
}

TEST(checkpoint_layers, disentangled_attention_of_deberta) {
  const Fixture fixture("deberta");
  Random random(1);
  DisentangledAttention<float> layer("deberta", {.model_dim = 48, .heads = 4, .buckets = 8, .max_distance = 32},
                                     random);
  fixture.load("query", layer.query);
  fixture.load_keys_and_values("", layer.key_value);
  fixture.load("output", layer.output);
  LayerNorm<float> norm("norm", 48, 1e-7);
  fixture.load("relative_norm", norm);
  const auto tokens = fixture.integers("mask");
  Tape<float> tape;
  HeadWeights<float> seen;
  const auto x = tape.node(fixture.floats("x"));
  const auto relative = norm.forward(tape, tape.node(fixture.floats("relative.weight")));
  const auto y = layer.forward(tape, x, relative, {.mask = padding(tokens, 0), .seen = &seen});
  Around around(fixture, 48, 128, Activation::gelu, 1e-7);
  fixture.expect_output(around.finish(tape, x, y), 1.7e-5);
  fixture.expect_weights(seen.weights, 5.5e-6);
}

// Pre-norm with RoPE, no biases, and a feed-forward gated by half its width.
class ModernBertLayer {
 public:
  ModernBertLayer(Index number, double base, const Mask& mask)
      : fixture_("modernbert." + std::to_string(number)), base_(base), mask_(mask), is_first_(number == 0) {
    fixture_.load("qkv", qkv_);
    fixture_.load("output", output_);
    fixture_.load("first", first_);
    fixture_.load("second", second_);
    fixture_.load("feed_forward_norm", feed_forward_norm_);
    if (!is_first_) fixture_.load("attention_norm", attention_norm_);
  }

  void expect_same() {
    Tape<float> tape;
    const auto x = tape.node(fixture_.floats("x"));
    // The first layer follows the embedding's norm and has none of its own.
    const auto attended = attend_tokens(tape, is_first_ ? x : attention_norm_.forward(tape, x));
    const auto middle = add_residual(tape, x, output_.forward(tape, attended), 0.0);
    const auto inner = gated(tape, first_.forward(tape, feed_forward_norm_.forward(tape, middle)));
    const auto y = add_residual(tape, middle, second_.forward(tape, inner), 0.0);
    fixture_.expect_output(y->value, 2.8e-5);
  }

 private:
  Var<float> attend_tokens(Tape<float>& tape, const Var<float>& x) {
    const auto joint = qkv_.forward(tape, x);
    const Index batch = x->value.size(0), seq = x->value.size(1);
    const auto part = [&](Index which) {
      const View<float, 4> heads(joint->value.data() + which * 48, {batch, 4, seq, 12}, {seq * 144, 12, 144, 1});
      return packed(View<const float, 4>(heads));
    };
    auto q = part(0), k = part(1);
    const auto v = part(2);
    const auto table = rope_table<float>(rope_frequencies(12, base_), 0, seq);
    rotate(q, q, table);
    rotate(k, k, table);
    const auto tokens = fixture_.integers("mask");
    const auto result = attend(q, k, v, {.mask = mask_ & padding(tokens, 0), .observe = {.weights = true}});
    fixture_.expect_weights(result.weights, 9e-6);
    return tape.node(concatenate_heads(result.out));
  }

  static Var<float> gated(Tape<float>& tape, const Var<float>& both) {
    const Index width = both->value.size(2) / 2;
    Tensor<float> inner({both->value.size(0), both->value.size(1), width});
    for (Index i = 0; i < inner.count(); ++i) {
      const float* row = both->value.data() + i / width * 2 * width;
      const double a = static_cast<double>(row[i % width]), gate = static_cast<double>(row[width + i % width]);
      inner[i] = static_cast<float>(a / 2 * std::erfc(-a / std::sqrt(2.0)) * gate);
    }
    return tape.node(std::move(inner));
  }

  Fixture fixture_;
  double base_;
  Mask mask_;
  bool is_first_;
  Random random_{1};
  Linear<float> qkv_{"qkv", 48, 144, random_, false}, output_{"output", 48, 48, random_, false},
      first_{"first", 48, 144, random_, false}, second_{"second", 72, 48, random_, false};
  LayerNorm<float> attention_norm_{"norm", 48, 1e-5}, feed_forward_norm_{"norm", 48, 1e-5};
};

TEST(checkpoint_layers, modernbert_with_full_and_with_local_attention) {
  ModernBertLayer(0, 160000, all_visible()).expect_same();
  ModernBertLayer(1, 10000, window(4, 4)).expect_same();
}

}  // namespace
}  // namespace regard
