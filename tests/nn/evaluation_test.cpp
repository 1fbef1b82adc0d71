// What the layers promise outside training, and in float.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "regard/transformer.h"

namespace regard {
namespace {

using testing::random_tensor;

Tensor<float> narrowed(const Tensor<double>& x) {
  Tensor<float> narrow(x.shape());
  for (Index i = 0; i < x.count(); ++i) narrow[i] = static_cast<float>(x[i]);
  return narrow;
}

// The same layer in float and in double, on the same input [2, 9, width].
template <template <class> class Layer, class... A>
void expect_float_equals_double(Index width, const A&... arguments) {
  Random one(1), two(1);
  Layer<float> narrow("layer", arguments..., one);
  Layer<double> wide("layer", arguments..., two);
  const auto x = random_tensor<double>({2, 9, width}, 3);
  Tape<float> tape_float;
  Tape<double> tape;
  const auto got = narrow.forward(tape_float, tape_float.node(narrowed(x)));
  const auto right = wide.forward(tape, tape.node(x));
  for (Index i = 0; i < right->value.count(); ++i)
    ASSERT_NEAR(static_cast<double>(got->value[i]), right->value[i], 1e-4) << i;
}

TEST(Evaluation, float_equals_double) {
  expect_float_equals_double<FeedForward>(24, Index{24}, Index{48});
  for (NormPlace norm : {NormPlace::pre, NormPlace::post})
    expect_float_equals_double<EncoderLayer>(24, LayerConfig{.model_dim = 24, .heads = 3, .hidden = 48, .norm = norm});
  const auto x = random_tensor<double>({2, 9, 24}, 3);
  LayerNorm<float> narrow("norm", 24);
  LayerNorm<double> wide("norm", 24);
  Tape<float> tape_float;
  Tape<double> tape;
  const auto got = narrow.forward(tape_float, tape_float.node(narrowed(x)));
  const auto right = wide.forward(tape, tape.node(x));
  for (Index i = 0; i < x.count(); ++i) ASSERT_NEAR(static_cast<double>(got->value[i]), right->value[i], 1e-5);
}

TEST(Evaluation, has_no_dropout_and_repeats_its_bits) {
  LayerConfig dropping{.model_dim = 24, .heads = 3, .hidden = 48, .dropout = 0.8, .attention_dropout = 0.8};
  LayerConfig plain = dropping;
  plain.dropout = plain.attention_dropout = 0;
  const auto run = [](EncoderLayer<float>& layer) {
    Tape<float> tape;
    return layer.forward(tape, tape.node(random_tensor<float>({2, 7, 24}, 2)))->value;
  };
  Random one(1), two(1);
  EncoderLayer<float> with("layer", dropping, one), without("layer", plain, two);
  const auto first = run(with), second = run(with), right = run(without);
  for (Index i = 0; i < first.count(); ++i) {
    ASSERT_EQ(first[i], second[i]);
    ASSERT_EQ(first[i], right[i]);
  }
}

// In training too, what is shown are the weights before dropout: rows sum to 1
// and none exceeds it, above all row 0 with its single key.
TEST(Training, shown_weights_are_those_before_dropout) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 24, .heads = 3, .dropout = 0.2}, random);
  Tape<float> tape(true, 5);
  HeadWeights<float> seen;
  layer.self(tape, tape.node(random_tensor<float>({2, 7, 24}, 2)), {.mask = causal(), .seen = &seen});
  for (Index row = 0; row < 2 * 3 * 7; ++row) {
    double sum = 0;
    for (Index key = 0; key < 7; ++key) {
      const float weight = seen.weights[row * 7 + key];
      sum += static_cast<double>(weight);
      if (key > row % 7) {
        ASSERT_EQ(weight, 0.0f);
      }
    }
    ASSERT_NEAR(sum, 1.0, 1e-6);
    if (row % 7 == 0) {
      ASSERT_EQ(seen.weights[row * 7], 1.0f);
    }
  }
}

// One batch entry sees nothing but padding: its rows must add neither NaN nor
// anything else to the gradients of the shared projections.
TEST(Training, a_row_without_keys_leaves_the_gradients_exact) {
  Random random(1);
  MultiHeadAttention<double> layer("attention", {.model_dim = 6, .heads = 2}, random);
  const Tensor<std::int64_t> ids({2, 3}, {5, 6, 0, 0, 0, 0});
  testing::expect_exact_gradients(
      {{random_tensor<double>({2, 2, 6}, 2), random_tensor<double>({2, 3, 6}, 3)},
       testing::shaken_parameters(layer),
       [&](auto& tape, const auto& x) { return layer.cross(tape, x[0], x[1], {.mask = padding(ids.view<2>(), 0)}); }});
}

// Columns 1 to 5 are padding in the whole batch: the output keeps them, and
// column 0 is what it is alone.
TEST(Evaluation, padding_in_every_row_keeps_the_shape_and_the_real_rows) {
  Random random(1);
  EncoderLayer<float> layer("layer", LayerConfig{.model_dim = 24, .heads = 3, .hidden = 48}, random);
  const Tensor<std::int64_t> ids({2, 6}, {5, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0});
  const auto x = random_tensor<float>({2, 6, 24}, 2);
  Tape<float> tape;
  const auto y = layer.forward(tape, tape.node(x), {.mask = padding(ids.view<2>(), 0)});
  ASSERT_EQ(y->value.shape(), x.shape());
  const auto alone = layer.forward(tape, tape.node(packed(x.view<3>().slice(1, 0, 1))));
  for (Index b = 0; b < 2; ++b)
    for (Index j = 0; j < 24; ++j) ASSERT_NEAR(y->value[b * 6 * 24 + j], alone->value[b * 24 + j], 1e-5);
}

}  // namespace
}  // namespace regard
