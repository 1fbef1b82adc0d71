#include "regard/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "refusal.h"
#include "regard/threads.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::random_tensor;
using testing::shaken_parameters;

constexpr RecurrentKind kinds[] = {RecurrentKind::tanh, RecurrentKind::lstm};

TEST(Recurrent, gradients_are_exact) {
  for (RecurrentKind kind : kinds) {
    Random random(1);
    Recurrent<double> layer("layer", kind, 3, 4, random);
    expect_exact_gradients({{random_tensor<double>({2, 5, 3}, 2)},
                            shaken_parameters(layer),
                            [&](auto& tape, const auto& x) { return layer.forward(tape, x[0]); }});
  }
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// The published equations for one unit, number by number.
TEST(Recurrent, lstm_follows_its_equations) {
  Random random(1);
  Recurrent<double> layer("layer", RecurrentKind::lstm, 1, 1, random);
  shaken_parameters(layer);
  const auto x = random_tensor<double>({1, 6, 1}, 3);
  Tape<double> tape;
  const auto y = layer.forward(tape, tape.node(x));
  const Tensor<double>&w = layer.input.weight.value, &b = layer.input.bias.value, &u = layer.state.value;
  double h = 0, c = 0;
  for (Index t = 0; t < 6; ++t) {
    const auto sum = [&](Index gate) { return x[t] * w[gate] + h * u[gate] + b[gate]; };
    const double i = logistic(sum(0)), f = logistic(sum(1)), g = std::tanh(sum(2)), o = logistic(sum(3));
    c = f * c + i * g;
    h = o * std::tanh(c);
    EXPECT_NEAR(y->value[t], h, 1e-14);
  }
}

TEST(Recurrent, tanh_follows_its_equation_in_every_batch_entry) {
  Random random(1);
  Recurrent<double> layer("layer", RecurrentKind::tanh, 2, 3, random);
  shaken_parameters(layer);
  const auto x = random_tensor<double>({2, 4, 2}, 3);
  Tape<double> tape;
  const auto y = layer.forward(tape, tape.node(x));
  const Tensor<double>&w = layer.input.weight.value, &b = layer.input.bias.value, &u = layer.state.value;
  for (Index entry = 0; entry < 2; ++entry) {
    std::vector<double> h(3, 0.0);
    for (Index t = 0; t < 4; ++t) {
      std::vector<double> next(3);
      for (Index j = 0; j < 3; ++j) {
        double sum = b[j];
        for (Index k = 0; k < 2; ++k) sum += x[(entry * 4 + t) * 2 + k] * w[k * 3 + j];
        for (Index k = 0; k < 3; ++k) sum += h[static_cast<std::size_t>(k)] * u[k * 3 + j];
        next[static_cast<std::size_t>(j)] = std::tanh(sum);
        EXPECT_NEAR(y->value[(entry * 4 + t) * 3 + j], next[static_cast<std::size_t>(j)], 1e-14);
      }
      h = next;
    }
  }
}

TEST(Recurrent, only_the_forget_gate_of_a_fresh_lstm_has_a_bias) {
  Random random(1);
  const Recurrent<float> layer("layer", RecurrentKind::lstm, 2, 3, random);
  for (Index j = 0; j < 12; ++j) EXPECT_EQ(layer.input.bias.value[j], j / 3 == 1 ? 1.0f : 0.0f);
}

TEST(Recurrent, a_later_token_changes_no_earlier_row) {
  Random random(1);
  Recurrent<float> layer("layer", RecurrentKind::lstm, 8, 16, random);
  auto x = random_tensor<float>({1, 6, 8}, 2);
  Tape<float> tape;
  const auto before = layer.forward(tape, tape.node(x));
  for (Index i = 4 * 8; i < x.count(); ++i) x[i] += 1.0f;
  const auto after = layer.forward(tape, tape.node(x));
  for (Index i = 0; i < 4 * 16; ++i) ASSERT_EQ(before->value[i], after->value[i]);
  EXPECT_NE(before->value[4 * 16], after->value[4 * 16]);
}

TEST(Recurrent, no_bit_depends_on_the_number_of_threads) {
  testing::expect_same_step_on_any_threads({300, 4, 16}, [] {
    Random random(1);
    return Recurrent<float>("layer", RecurrentKind::lstm, 16, 96, random);
  });
}

TEST(Recurrent, input_of_another_width_or_rank_is_refused) {
  Random random(1);
  Recurrent<float> layer("layer", RecurrentKind::lstm, 3, 4, random);
  Tape<float> tape;
  const auto refused = [&](Shape shape) {
    return testing::message_of([&] { layer.forward(tape, tape.node(Tensor<float>(shape))); });
  };
  EXPECT_EQ(refused({1, 2, 5}), "layer.input.weight: input [1,2,5] has width 5 but the layer takes 3");
  EXPECT_EQ(refused({2, 3}), "layer.state: input [2,3] needs [batch, seq, in]");
}

}  // namespace
}  // namespace regard
