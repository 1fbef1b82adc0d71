#include "regard/head_projections.h"

#include <gtest/gtest.h>

#include "nn/gradient_check.h"
#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::message_of;
using testing::random_tensor;
using testing::shaken_parameters;

PerHeadAttention<double> per_head(PerHeadConfig config) {
  Random random(1);
  return {"attention", config, random};
}

SharedHeadAttention<double> shared_head(SharedHeadConfig config) {
  Random random(1);
  return {"attention", config, random};
}

// The layer of fused matrices whose columns are what `entry` says: of part 0, 1, 2
// (query, key, value), from input `in` to element d of head h.
template <class Entry>
MultiHeadAttention<double> fused(Index model_dim, Index heads, const Linear<double>& output, Entry entry) {
  Random random(2);
  MultiHeadAttention<double> layer("fused", {.model_dim = model_dim, .heads = heads}, random);
  const Index dim = model_dim / heads;
  for (Index in = 0; in < model_dim; ++in)
    for (Index c = 0; c < model_dim; ++c) {
      layer.query.weight.value[in * model_dim + c] = entry(0, in, c / dim, c % dim);
      for (Index part : {1, 2})
        layer.key_value.weight.value[in * 2 * model_dim + (part - 1) * model_dim + c] =
            entry(part, in, c / dim, c % dim);
    }
  layer.output = output;
  return layer;
}

template <class Layer>
void expect_same_as(MultiHeadAttention<double>& right, Layer& layer) {
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({2, 5, 6}, 3)),
             memory = tape.node(random_tensor<double>({2, 4, 6}, 4));
  HeadWeights<double> seen, wanted;
  const auto got = layer.forward(tape, x, memory, {.seen = &seen}), y = right.cross(tape, x, memory, {.seen = &wanted});
  ASSERT_EQ(got->value.shape(), y->value.shape());
  for (Index i = 0; i < y->value.count(); ++i) ASSERT_NEAR(got->value[i], y->value[i], 1e-12);
  ASSERT_EQ(seen.weights.shape(), (Shape{2, 2, 5, 4}));
  for (Index i = 0; i < seen.weights.count(); ++i) ASSERT_NEAR(seen.weights[i], wanted.weights[i], 1e-12);
}

TEST(PerHeadAttention, equals_the_fused_layer_with_its_matrices_side_by_side) {
  auto layer = per_head({.model_dim = 6, .heads = 2, .query_dim = 3});
  shaken_parameters(layer);
  auto right = fused(6, 2, layer.output, [&](Index part, Index in, Index head, Index d) {
    const Parameter<double>* parts[] = {&layer.query, &layer.key, &layer.value};
    return parts[part]->value[(head * 3 + d) * 6 + in];
  });
  expect_same_as(right, layer);
}

// Values of another size, heads that do not add up to model_dim, other lengths.
TEST(PerHeadAttention, gradients_are_exact_with_values_of_another_size) {
  auto layer = per_head({.model_dim = 5, .heads = 3, .query_dim = 2, .value_dim = 4, .dropout = 0.3});
  const Tensor<std::int64_t> ids({2, 3}, {5, 6, 0, 5, 6, 7});
  expect_exact_gradients({{random_tensor<double>({2, 4, 5}, 2), random_tensor<double>({2, 3, 5}, 3)},
                          shaken_parameters(layer),
                          [&](auto& tape, const auto& x) {
                            return layer.forward(tape, x[0], x[1], {.mask = padding(ids.view<2>(), 0)});
                          }});
}

TEST(PerHeadAttention, values_of_another_size_give_what_the_plain_projections_give) {
  auto layer = per_head({.model_dim = 16, .heads = 3, .query_dim = 24, .value_dim = 28});
  const auto x = random_tensor<double>({1, 6, 16}, 2);
  Tensor<double> tokens = x;
  tokens.reshape({6, 16});
  const auto all = reference::attend(project_heads(tokens, layer.query.value), project_heads(tokens, layer.key.value),
                                     project_heads(tokens, layer.value.value));
  Tape<double> tape;
  const auto right = layer.output.forward(tape, tape.node(concatenate_heads(all.out)));
  const auto got = layer.forward(tape, tape.node(x), tape.node(x));
  ASSERT_EQ(got->value.shape(), (Shape{1, 6, 16}));
  for (Index i = 0; i < got->value.count(); ++i) ASSERT_NEAR(got->value[i], right->value[i], 1e-12);
}

TEST(SharedHeadAttention, equals_the_fused_layer_with_its_matrix_on_the_diagonal) {
  auto layer = shared_head({.model_dim = 6, .heads = 2});
  shaken_parameters(layer);
  auto right = fused(6, 2, layer.output, [&](Index part, Index in, Index head, Index d) {
    const Parameter<double>* parts[] = {&layer.query, &layer.key, &layer.value};
    return in / 3 == head ? parts[part]->value[d * 3 + in % 3] : 0.0;
  });
  expect_same_as(right, layer);
}

TEST(SharedHeadAttention, gradients_are_exact) {
  auto layer = shared_head({.model_dim = 6, .heads = 3, .dropout = 0.3});
  expect_exact_gradients(
      {{random_tensor<double>({2, 4, 6}, 2)}, shaken_parameters(layer), [&](auto& tape, const auto& x) {
         return layer.forward(tape, x[0], x[0], {.mask = causal()});
       }});
}

// The old example: batch 3, 10 tokens, width 256, 8 heads.
TEST(SharedHeadAttention, has_the_shapes_of_the_old_example_and_few_weights) {
  Random random(1);
  SharedHeadAttention<float> layer("attention", {.model_dim = 256, .heads = 8}, random);
  Tape<float> tape;
  HeadWeights<float> seen;
  const auto x = tape.node(random_tensor<float>({3, 10, 256}, 2));
  EXPECT_EQ(layer.forward(tape, x, x, {.seen = &seen})->value.shape(), (Shape{3, 10, 256}));
  EXPECT_EQ(seen.weights.shape(), (Shape{3, 8, 10, 10}));
  Parameters<float> parameters;
  layer.collect(parameters);
  Index count = 0;
  for (const auto* p : parameters) count += p->value.count();
  EXPECT_EQ(count, 3 * 32 * 32 + 256 * 256 + 256);
}

// One training step of each in float, on one thread and on several.
template <class Layer>
struct SelfAttention {
  Layer layer;
  Var<float> forward(Tape<float>& tape, const Var<float>& x) { return layer.forward(tape, x, x); }
  void collect(Parameters<float>& list) { layer.collect(list); }
};

TEST(HeadProjections, no_bit_of_a_step_depends_on_the_number_of_threads) {
  testing::expect_same_step_on_any_threads({40, 9, 32}, [] {
    Random random(1);
    return SelfAttention<PerHeadAttention<float>>{
        {"attention", {.model_dim = 32, .heads = 3, .query_dim = 8, .value_dim = 12, .dropout = 0.1}, random}};
  });
  testing::expect_same_step_on_any_threads({40, 9, 32}, [] {
    Random random(1);
    return SelfAttention<SharedHeadAttention<float>>{{"attention", {.model_dim = 32, .heads = 4}, random}};
  });
}

TEST(HeadProjections, what_does_not_fit_is_refused) {
  EXPECT_EQ(message_of([] { per_head({.model_dim = 5, .heads = 3}); }),
            "attention: model_dim, heads, query_dim and value_dim must be at least 1, got [5,3,0,0]");
  EXPECT_EQ(message_of([] { shared_head({.model_dim = 10, .heads = 3}); }),
            "attention: model_dim 10 is not a multiple of 3 heads");
  auto layer = shared_head({.model_dim = 6, .heads = 2});
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({1, 3, 6}, 2)), wide = tape.node(random_tensor<double>({1, 3, 8}, 2));
  EXPECT_EQ(message_of([&] { layer.forward(tape, x, wide); }),
            "SharedHeadAttention: memory [1,3,8] must be [batch, seq, 6]");
  EXPECT_EQ(message_of([&] { layer.forward(tape, x, x, {.change = [](const HeadContext<double>&) {}}); }),
            "SharedHeadAttention: its heads can be seen, but not changed");
}

}  // namespace
}  // namespace regard
