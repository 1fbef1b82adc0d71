// Contributions against vectors written out pair by pair, and gradients of
// weights against finite differences.
#include "regard/contributions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "regard/error.h"
#include "regard/transformer.h"

namespace regard {
namespace {

using testing::random_tensor;
using Vector = std::vector<double>;

constexpr Index width = 12, heads = 3, dim = width / heads;

Vector row_of(const Tensor<double>& x, Index row) {
  return Vector(x.data() + row * width, x.data() + (row + 1) * width);
}

double length_of(const Vector& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

void add(Vector& to, const Vector& x, double times = 1) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += times * x[i];
}

// (x - mean) * gain / deviation, with the deviation of `of`.
Vector normed(const Vector& x, const Vector& of, const LayerNorm<double>& norm) {
  const auto mean = [](const Vector& y) {
    double sum = 0;
    for (double value : y) sum += value;
    return sum / static_cast<double>(y.size());
  };
  double variance = 0;
  for (double value : of) variance += (value - mean(of)) * (value - mean(of)) / static_cast<double>(of.size());
  Vector y;
  for (std::size_t c = 0; c < x.size(); ++c)
    y.push_back((x[c] - mean(x)) * norm.gain.value[static_cast<Index>(c)] / std::sqrt(variance + norm.epsilon));
  return y;
}

// What head h hands on of key j: value W_O, from the layer's weights.
Vector handed_on(const MultiHeadAttention<double>& layer, const Vector& key, Index head) {
  const Tensor<double>& kv = layer.key_value.weight.value;
  Vector result(width, 0.0);
  for (Index d = head * dim; d < (head + 1) * dim; ++d) {
    double value = layer.key_value.bias.value[width + d];
    for (Index c = 0; c < width; ++c) value += key[static_cast<std::size_t>(c)] * kv[c * 2 * width + width + d];
    for (Index c = 0; c < width; ++c)
      result[static_cast<std::size_t>(c)] += value * layer.output.weight.value[d * width + c];
  }
  return result;
}

struct LayerRun {
  std::unique_ptr<EncoderLayer<double>> layer;
  HeadWeights<double> seen;
  Tensor<double> x;
};

LayerRun run_layer(NormPlace place, Index batch, Index n) {
  Random random(5);
  LayerRun run;
  run.layer = std::make_unique<EncoderLayer<double>>(
      "layer", LayerConfig{.model_dim = width, .heads = heads, .hidden = 8, .norm = place, .dropout = 0}, random);
  testing::shaken_parameters(*run.layer);
  run.x = random_tensor<double>({batch, n, width}, 6);
  Tape<double> tape;
  run.layer->forward(tape, tape.node(run.x), {.mask = causal(), .seen = &run.seen});
  return run;
}

TEST(Contributions, are_the_sizes_of_the_vectors_that_make_up_the_output) {
  const Index batch = 2, n = 5;
  for (NormPlace place : {NormPlace::pre, NormPlace::post}) {
    const LayerRun run = run_layer(place, batch, n);
    const auto& layer = *run.layer;
    const Contributions<double> got = contribution_norms(run.seen, true);
    Tape<double> tape;
    for (Index b = 0; b < batch; ++b)
      for (Index i = 0; i < n; ++i) {
        // The sub-layer's own sum, from the layer itself.
        Tensor<double> read({1, n, width});
        std::copy_n(run.x.data() + b * n * width, n * width, read.data());
        if (place == NormPlace::pre) read = run.layer->attention_norm.forward(tape, tape.node(read))->value;
        const auto attended = run.layer->attention.self(tape, tape.node(read), {.mask = causal()})->value;
        const Vector residual = row_of(run.x, b * n + i);
        Vector sum = row_of(attended, i);
        add(sum, residual);
        const auto finish = [&](const Vector& v) {
          return place == NormPlace::pre ? v : normed(v, sum, layer.attention_norm);
        };
        Vector together =
            finish(Vector(layer.attention.output.bias.value.data(), layer.attention.output.bias.value.data() + width));
        Vector elsewhere(width, 0.0), stays;
        for (Index j = 0; j < n; ++j) {
          Vector all(width, 0.0);
          for (Index h = 0; h < heads; ++h) {
            const double weight = run.seen.weights[((b * heads + h) * n + i) * n + j];
            Vector one(width, 0.0);
            add(one, handed_on(layer.attention, row_of(read, j), h), weight);
            add(all, one);
            EXPECT_NEAR(got.heads[((b * heads + h) * n + i) * n + j], length_of(finish(one)), 1e-10);
          }
          if (i == j) add(all, residual);
          const Vector contribution = finish(all);
          EXPECT_NEAR(got.joint[(b * n + i) * n + j], length_of(contribution), 1e-10) << i << " " << j;
          add(together, contribution);
          if (i == j)
            stays = contribution;
          else
            add(elsewhere, contribution);
        }
        EXPECT_NEAR(got.residual[b * n + i], length_of(finish(residual)), 1e-10);
        EXPECT_NEAR(got.mixing[b * n + i], length_of(elsewhere) / (length_of(elsewhere) + length_of(stays)), 1e-10);
        // And the vectors do make up the output: nothing is left out.
        const Vector right = finish(sum);
        for (std::size_t c = 0; c < right.size(); ++c) EXPECT_NEAR(together[c], right[c], 1e-10);
      }
  }
}

TEST(Contributions, of_cross_attention_leave_the_residual_to_itself) {
  Random random(3);
  MultiHeadAttention<double> layer("cross", {.model_dim = width, .heads = heads, .kv_heads = 1}, random);
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({1, 2, width}, 1));
  const auto memory = tape.node(random_tensor<double>({1, 4, width}, 2));
  HeadWeights<double> seen;
  const auto out = layer.cross(tape, x, memory, {.seen = &seen});
  EXPECT_THROW(contribution_norms(seen, false), ArgumentError) << "no residual was recorded";
  seen.residual = x;
  const auto got = contribution_norms(seen, false);
  for (Index i = 0; i < 2; ++i) {
    const double residual = length_of(row_of(x->value, i)), attended = length_of(row_of(out->value, i));
    EXPECT_NEAR(got.residual[i], residual, 1e-12);
    EXPECT_NEAR(got.mixing[i], attended / (attended + residual), 1e-12) << "biases are 0 in a fresh layer";
  }
}

// Key 0 takes nearly all of the weight, and its value is 0.
TEST(Contributions, of_a_sink_without_a_value_are_nothing_however_large_its_weight) {
  Random random(3);
  MultiHeadAttention<double> layer("sink", {.model_dim = 2, .heads = 1}, random);
  layer.query.weight.value = Tensor<double>({2, 2}, {1, 0, 0, 1});
  // Keys are (10 * x[0], 0), values (0, x[1]).
  layer.key_value.weight.value = Tensor<double>({2, 4}, {10, 0, 0, 0, 0, 0, 0, 1});
  layer.output.weight.value = Tensor<double>({2, 2}, {1, 0, 0, 1});
  Tape<double> tape;
  const auto x = tape.node(Tensor<double>({1, 2, 2}, {1, 0, 0, 3}));
  const auto query = tape.node(Tensor<double>({1, 1, 2}, {1, 0}));
  HeadWeights<double> seen;
  layer.cross(tape, query, x, {.seen = &seen});
  seen.residual = query;
  const auto got = contribution_norms(seen, false);
  EXPECT_GT(seen.weights[0], 0.999);
  EXPECT_EQ(got.joint[0], 0);
  EXPECT_NEAR(got.joint[1], 3 * seen.weights[1], 1e-12);
}

TEST(Contributions, gradients_of_weights_are_what_finite_differences_give) {
  Random random(3);
  MultiHeadAttention<double> layer("layer", {.model_dim = width, .heads = heads, .kv_heads = 1}, random);
  const auto x = random_tensor<double>({2, 4, width}, 1), given = random_tensor<double>({2, 4, width}, 2);
  HeadWeights<double> seen;
  auto tape = Tape<double>::differentiating();
  const auto out = layer.self(tape, tape.node(x), {.mask = causal(), .seen = &seen});
  EXPECT_THROW(gradient_times_weight(seen), ArgumentError) << "nothing went back yet";
  tape.backward(out, Tensor<double>(given));
  const auto got = gradient_times_weight(seen);
  // The loss with one weight larger by `step`.
  const auto loss = [&](Index b, Index h, Index i, Index j, double step) {
    Tape<double> plain;
    const AttentionCall<double> call{.mask = causal(), .change = [&](const HeadContext<double>& heads_of) {
                                       const double* value = heads_of.key_value.data() + (b * 4 + j) * 2 * dim + dim;
                                       double* to = heads_of.context.data() + (b * 4 + i) * width + h * dim;
                                       for (Index d = 0; d < dim; ++d) to[d] += step * value[d];
                                     }};
    const auto y = layer.self(plain, plain.node(x), call);
    double sum = 0;
    for (Index at = 0; at < y->value.count(); ++at) sum += y->value[at] * given[at];
    return sum;
  };
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < 4; ++i)
        for (Index j = 0; j < 4; ++j) {
          const Index at = ((b * heads + h) * 4 + i) * 4 + j;
          const double slope = (loss(b, h, i, j, 1e-4) - loss(b, h, i, j, -1e-4)) / 2e-4;
          EXPECT_NEAR(got[at], seen.weights[at] * slope, 1e-8);
        }
}

TEST(Contributions, heads_that_change_have_no_way_back) {
  Random random(3);
  MultiHeadAttention<float> layer("layer", {.model_dim = 4, .heads = 2}, random);
  auto tape = Tape<float>::differentiating();
  const auto x = tape.node(random_tensor<float>({1, 2, 4}, 1));
  const AttentionCall<float> call{.change = [](const HeadContext<float>&) {}};
  EXPECT_THROW(layer.self(tape, x, call), ArgumentError);
  Tape<float> plain;
  EXPECT_NO_THROW(layer.self(plain, x, call));
  KeyValueCache<float> cache;
  EXPECT_THROW(layer.self_step(plain, x, cache, call), ArgumentError);
}

// Gradients of what a model answers: recorded, and without dropout.
TEST(Contributions, a_differentiating_tape_records_and_does_not_drop) {
  auto tape = Tape<double>::differentiating();
  const auto x = tape.node(random_tensor<double>({4, 8}, 1));
  const auto y = dropout(tape, x, 0.5);
  EXPECT_EQ(y, x);
  EXPECT_TRUE(tape.recording());
  EXPECT_FALSE(tape.dropping());
}

}  // namespace
}  // namespace regard
