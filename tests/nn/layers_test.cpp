#include "regard/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::random_tensor;
using testing::shaken_parameters;

TEST(Linear, gradients_are_exact_for_every_activation) {
  for (Activation activation : {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh}) {
    Random random(1);
    Linear<double> layer("layer", 5, 7, random);
    expect_exact_gradients({{random_tensor<double>({2, 3, 5}, 2)},
                            shaken_parameters(layer),
                            [&](auto& tape, const auto& x) { return layer.forward(tape, x[0], activation); }});
  }
}

TEST(Linear, gradients_are_exact_without_bias) {
  Random random(1);
  Linear<double> layer("layer", 4, 3, random, false);
  const auto parameters = shaken_parameters(layer);
  ASSERT_EQ(parameters.size(), 1u);
  expect_exact_gradients({{random_tensor<double>({1, 2, 4}, 2)}, parameters, [&](auto& tape, const auto& x) {
                            return layer.forward(tape, x[0]);
                          }});
}

TEST(Linear, float_equals_double_at_sizes_that_cross_pieces) {
  for (Index rows : {1, 255, 256, 257, 700}) {
    Random one(1), two(1);
    Linear<float> narrow("layer", 65, 33, one);
    Linear<double> wide("layer", 65, 33, two);
    const auto x = random_tensor<double>({1, rows, 65}, 3);
    Tensor<float> x_float(x.shape());
    for (Index i = 0; i < x.count(); ++i) x_float[i] = static_cast<float>(x[i]);
    Tape<float> tape_float;
    Tape<double> tape;
    const auto got = narrow.forward(tape_float, tape_float.node(x_float));
    const auto right = wide.forward(tape, tape.node(x));
    for (Index i = 0; i < right->value.count(); ++i)
      ASSERT_NEAR(got->value[i], right->value[i], 2e-5) << rows << " rows, at " << i;
  }
}

TEST(Linear, a_wrong_width_is_an_error_that_names_both) {
  Random random(1);
  Linear<float> layer("layer", 5, 7, random);
  Tape<float> tape;
  try {
    layer.forward(tape, tape.node(Tensor<float>({2, 3, 6})));
    FAIL();
  } catch (const ArgumentError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find('5'), std::string::npos) << text;
    EXPECT_NE(text.find("[2,3,6]"), std::string::npos) << text;
  }
}

// Values of the two definitions at x = 1: Phi(1) = 0.841344746 and
// (1 + tanh(sqrt(2/pi) * 1.044715)) / 2 = 0.841191990.
TEST(Linear, gelu_has_its_published_values) {
  Random random(1);
  Linear<double> identity("layer", 1, 1, random, false);
  identity.weight.value[0] = 1;
  Tape<double> tape;
  const Tensor<double> x({3, 1}, {1.0, -1.0, 0.0});
  const auto exact = identity.forward(tape, tape.node(x), Activation::gelu);
  EXPECT_NEAR(exact->value[0], 0.841344746, 1e-9);
  EXPECT_NEAR(exact->value[1], 0.841344746 - 1, 1e-9);
  EXPECT_EQ(exact->value[2], 0);
  EXPECT_NEAR(identity.forward(tape, tape.node(x), Activation::gelu_tanh)->value[0], 0.841191990, 1e-9);
}

TEST(LayerNorm, gradients_are_exact) {
  LayerNorm<double> norm("norm", 11);
  expect_exact_gradients({{random_tensor<double>({2, 3, 11}, 2)},
                          shaken_parameters(norm),
                          [&](auto& tape, const auto& x) { return norm.forward(tape, x[0]); }});
}

// Mean 2, biased variance 2/3.
TEST(LayerNorm, uses_the_biased_variance) {
  LayerNorm<double> norm("norm", 3, 0.0);
  Tape<double> tape;
  const auto y = norm.forward(tape, tape.node(Tensor<double>({1, 3}, {1.0, 2.0, 3.0})));
  EXPECT_NEAR(y->value[0], -std::sqrt(1.5), 1e-12);
  EXPECT_NEAR(y->value[1], 0, 1e-12);
  EXPECT_NEAR(y->value[2], std::sqrt(1.5), 1e-12);
}

TEST(LayerNorm, a_large_mean_does_not_drown_the_variance) {
  LayerNorm<float> norm("norm", 4, 0.0);
  Tape<float> tape;
  const auto y = norm.forward(tape, tape.node(Tensor<float>({1, 4}, {4095.0f, 4097.0f, 4095.0f, 4097.0f})));
  for (Index j = 0; j < 4; ++j) EXPECT_FLOAT_EQ(y->value[j], j % 2 == 0 ? -1.0f : 1.0f);
}

TEST(RmsNorm, gradients_are_exact) {
  RmsNorm<double> norm("norm", 11);
  expect_exact_gradients({{random_tensor<double>({2, 3, 11}, 2)},
                          shaken_parameters(norm),
                          [&](auto& tape, const auto& x) { return norm.forward(tape, x[0]); }});
}

// Root mean square of (3, 4) is sqrt(12.5).
TEST(RmsNorm, keeps_the_mean) {
  RmsNorm<double> norm("norm", 2, 0.0);
  Tape<double> tape;
  const auto y = norm.forward(tape, tape.node(Tensor<double>({1, 2}, {3.0, 4.0})));
  EXPECT_NEAR(y->value[0], 3 / std::sqrt(12.5), 1e-12);
  EXPECT_NEAR(y->value[1], 4 / std::sqrt(12.5), 1e-12);
}

TEST(Embedding, gradients_add_up_where_an_id_repeats) {
  Random random(1);
  Embedding<double> embedding("table", 4, 3, random);
  Parameters<double> parameters;
  embedding.collect(parameters);
  const Tensor<std::int64_t> ids({2, 3}, {1, 1, 3, 0, 1, 0});
  expect_exact_gradients({{}, parameters, [&](auto& tape, const auto&) { return embedding.forward(tape, ids, 1.7); }});
}

TEST(Embedding, an_id_outside_the_vocabulary_is_refused) {
  Random random(1);
  Embedding<float> embedding("table", 4, 3, random);
  Tape<float> tape;
  EXPECT_THROW(embedding.forward(tape, Tensor<std::int64_t>({1, 1}, {4})), ArgumentError);
  EXPECT_THROW(embedding.forward(tape, Tensor<std::int64_t>({1, 1}, {-1})), ArgumentError);
}

TEST(Embedding, the_tied_output_projection_has_exact_gradients) {
  Parameter<double> table("table", {5, 3}, true);
  table.value = random_tensor<double>({5, 3}, 4);
  expect_exact_gradients({{random_tensor<double>({2, 2, 3}, 2)}, {&table}, [&](auto& tape, const auto& x) {
                            return project_onto(tape, x[0], table);
                          }});
}

TEST(FeedForward, gradients_are_exact) {
  for (Activation activation : {Activation::relu, Activation::gelu}) {
    Random random(1);
    FeedForward<double> layer("layer", 4, 6, random, activation);
    expect_exact_gradients({{random_tensor<double>({2, 2, 4}, 2)},
                            shaken_parameters(layer),
                            [&](auto& tape, const auto& x) { return layer.forward(tape, x[0]); }});
  }
}

// sin and cos of a pair share one frequency, and an odd width ends with a sine.
TEST(Positions, sinusoids_have_their_published_values_at_any_width) {
  const auto five = sinusoidal_positions<double>(2, 5);
  const double right5[] = {0.841471, 0.540302, 0.025116, 0.999685, 0.000631};
  for (Index j = 0; j < 5; ++j) EXPECT_NEAR(five[5 + j], right5[j], 1e-6);
  const auto four = sinusoidal_positions<double>(1, 4, 1);
  const double right4[] = {0.841471, 0.540302, 0.0100, 0.99995};
  for (Index j = 0; j < 4; ++j) EXPECT_NEAR(four[j], right4[j], 1e-6);
  EXPECT_EQ(sinusoidal_positions<float>(3, 29).shape(), (Shape{3, 29}));
}

TEST(Positions, gradients_are_exact) {
  const auto x = random_tensor<double>({2, 3, 5}, 2);
  const auto table = sinusoidal_positions<double>(3, 5);
  expect_exact_gradients({{x}, {}, [&](auto& tape, const auto& in) { return add_positions(tape, in[0], table); }});
  Parameter<double> learned("positions", {6, 5}, false);
  learned.value = random_tensor<double>({6, 5}, 3);
  expect_exact_gradients(
      {{x}, {&learned}, [&](auto& tape, const auto& in) { return add_learned_positions(tape, in[0], learned, 2); }});
}

TEST(Positions, a_sequence_beyond_the_table_is_refused) {
  Parameter<float> learned("positions", {3, 2}, false);
  Tape<float> tape;
  const auto x = tape.node(Tensor<float>({1, 2, 2}));
  EXPECT_NO_THROW(add_learned_positions(tape, x, learned, 1));
  EXPECT_THROW(add_learned_positions(tape, x, learned, 2), ArgumentError);
  EXPECT_THROW(add_learned_positions(tape, x, learned, -1), ArgumentError);
}

TEST(Dropout, gradients_pass_where_values_passed) {
  const auto x = random_tensor<double>({2, 3, 5}, 2), branch = random_tensor<double>({2, 3, 5}, 3);
  expect_exact_gradients({{x}, {}, [](auto& tape, const auto& in) { return dropout(tape, in[0], 0.4); }});
  expect_exact_gradients(
      {{x, branch}, {}, [](auto& tape, const auto& in) { return add_residual(tape, in[0], in[1], 0.4); }});
  expect_exact_gradients(
      {{x, branch}, {}, [](auto& tape, const auto& in) { return add_residual(tape, in[0], in[1], 0.0); }});
}

// 100,000 draws: the share dropped is within five standard deviations of p,
// and the kept ones are scaled so that the mean stays.
TEST(Dropout, drops_its_share_and_keeps_the_mean) {
  Tape<float> tape(true, 3);
  const auto y = dropout(tape, tape.node(Tensor<float>({1, 100000}, 1.0f)), 0.3);
  Index dropped = 0;
  for (float value : y->value.values()) {
    if (value == 0)
      ++dropped;
    else
      ASSERT_FLOAT_EQ(value, 1.0f / 0.7f);
  }
  EXPECT_NEAR(static_cast<double>(dropped) / 100000, 0.3, 5 * std::sqrt(0.3 * 0.7 / 100000));
}

TEST(Dropout, does_nothing_outside_training) {
  Tape<float> tape;
  const auto x = tape.node(random_tensor<float>({1, 9, 4}, 1));
  EXPECT_EQ(dropout(tape, x, 0.9), x);
}

TEST(Dropout, two_layers_of_one_pass_draw_differently_and_a_repeated_pass_the_same) {
  const auto draw = [](std::uint64_t seed, int skip) {
    Tape<float> tape(true, seed);
    for (int i = 0; i < skip; ++i) tape.next_seed();
    const auto values = dropout(tape, tape.node(Tensor<float>({1, 64}, 1.0f)), 0.5)->value.values();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
  EXPECT_NE(draw(1, 0), draw(2, 0));
}

TEST(Dropout, a_probability_of_one_is_refused) {
  Tape<float> tape(true);
  EXPECT_THROW(dropout(tape, tape.node(Tensor<float>({1, 4})), 1.0), ArgumentError);
  EXPECT_THROW(dropout(tape, tape.node(Tensor<float>({1, 4})), -0.1), ArgumentError);
}

// A value used twice gets both gradients.
TEST(Tape, gradients_of_a_value_used_twice_add_up) {
  Random random(1);
  Linear<double> layer("layer", 3, 3, random);
  expect_exact_gradients(
      {{random_tensor<double>({1, 2, 3}, 2)}, shaken_parameters(layer), [&](auto& tape, const auto& x) {
         const auto once = layer.forward(tape, x[0]);
         return add_residual(tape, layer.forward(tape, once), x[0], 0.0);
       }});
}

}  // namespace
}  // namespace regard
