#include "regard/transformer.h"

#include <gtest/gtest.h>

#include "nn/gradient_check.h"
#include "regard/threads.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::random_tensor;
using testing::shaken_parameters;

LayerConfig small(NormPlace norm) {
  return {.model_dim = 4,
          .heads = 2,
          .hidden = 6,
          .norm = norm,
          .activation = Activation::gelu,
          .dropout = 0.2,
          .attention_dropout = 0.2};
}

TEST(EncoderLayer, gradients_are_exact_with_the_norm_in_either_place) {
  for (NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    Random random(1);
    EncoderLayer<double> layer("encoder", small(norm), random);
    expect_exact_gradients({{random_tensor<double>({2, 3, 4}, 2)},
                            shaken_parameters(layer),
                            [&](auto& tape, const auto& x) { return layer.forward(tape, x[0]); }});
  }
}

TEST(DecoderLayer, gradients_are_exact_with_the_norm_in_either_place) {
  for (NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    Random random(1);
    DecoderLayer<double> layer("decoder", small(norm), random);
    expect_exact_gradients(
        {{random_tensor<double>({2, 3, 4}, 2), random_tensor<double>({2, 2, 4}, 3)},
         shaken_parameters(layer),
         [&](auto& tape, const auto& x) { return layer.forward(tape, x[0], x[1], {.mask = causal()}, {}); }});
  }
}

TEST(EncoderLayer, post_norm_ends_with_normalised_rows) {
  Random random(1);
  EncoderLayer<double> layer("encoder", small(NormPlace::post), random);
  Tape<double> tape;
  const auto y = layer.forward(tape, tape.node(random_tensor<double>({1, 3, 4}, 2)));
  for (Index row = 0; row < 3; ++row) {
    double sum = 0;
    for (Index j = 0; j < 4; ++j) sum += y->value[row * 4 + j];
    EXPECT_NEAR(sum, 0, 1e-12);
  }
}

TEST(DecoderLayer, a_later_token_changes_no_earlier_row) {
  Random random(1);
  LayerConfig config;
  DecoderLayer<float> layer("decoder", config, random);
  auto x = random_tensor<float>({1, 6, 128}, 2);
  const auto memory = random_tensor<float>({1, 4, 128}, 3);
  Tape<float> tape;
  const auto before = layer.forward(tape, tape.node(x), tape.node(memory), {.mask = causal()}, {});
  for (Index i = 4 * 128; i < x.count(); ++i) x[i] += 1.0f;
  const auto after = layer.forward(tape, tape.node(x), tape.node(memory), {.mask = causal()}, {});
  for (Index i = 0; i < 4 * 128; ++i) ASSERT_EQ(before->value[i], after->value[i]);
}

// One training step's gradients on one thread and on several.
TEST(EncoderLayer, no_bit_depends_on_the_number_of_threads) {
  testing::expect_same_step_on_any_threads({70, 9, 128}, [] {
    Random random(1);
    return EncoderLayer<float>("encoder", LayerConfig{.attention_dropout = 0.1}, random);
  });
}

}  // namespace
}  // namespace regard
