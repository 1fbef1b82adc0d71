#include "regard/multi_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "refusal.h"
#include "regard/error.h"
#include "regard/tree.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::message_of;
using testing::random_tensor;
using testing::shaken_parameters;

MultiHeadAttention<double> layer_of(MultiHeadConfig config) {
  Random random(1);
  return MultiHeadAttention<double>("attention", config, random);
}

TEST(MultiHead, gradients_are_exact_for_self_attention) {
  for (bool bias : {true, false}) {
    auto layer = layer_of({.model_dim = 6, .heads = 2, .bias = bias});
    expect_exact_gradients({{random_tensor<double>({2, 4, 6}, 2)},
                            shaken_parameters(layer),
                            [&](auto& tape, const auto& x) { return layer.self(tape, x[0], {.mask = causal()}); }});
  }
}

TEST(MultiHead, gradients_are_exact_for_cross_attention_of_other_length) {
  auto layer = layer_of({.model_dim = 6, .heads = 3});
  expect_exact_gradients({{random_tensor<double>({2, 4, 6}, 2), random_tensor<double>({2, 3, 6}, 3)},
                          shaken_parameters(layer),
                          [&](auto& tape, const auto& x) { return layer.cross(tape, x[0], x[1]); }});
}

TEST(MultiHead, gradients_are_exact_with_grouped_heads_padding_and_dropout) {
  auto layer = layer_of({.model_dim = 8, .heads = 4, .kv_heads = 2, .dropout = 0.3});
  const Tensor<std::int64_t> ids({2, 3}, {5, 6, 0, 5, 0, 0});
  expect_exact_gradients(
      {{random_tensor<double>({2, 2, 8}, 2), random_tensor<double>({2, 3, 8}, 3)},
       shaken_parameters(layer),
       [&](auto& tape, const auto& x) { return layer.cross(tape, x[0], x[1], {.mask = padding(ids.view<2>(), 0)}); }});
}

// A number per head and distance in each sentence's tree.
TEST(MultiHead, gradients_are_exact_for_biases_learned_per_pair) {
  auto layer = layer_of({.model_dim = 6, .heads = 2});
  Parameter<double> table("table", {3, 2}, false);
  table.value = random_tensor<double>({3, 2}, 5);
  const auto distances = tree_distances_of_each({{-1, 0, 1, 2}, {2, 2, -1}});
  auto parameters = shaken_parameters(layer);
  parameters.push_back(&table);
  expect_exact_gradients({{random_tensor<double>({2, 4, 6}, 2)}, parameters, [&](auto& tape, const auto& x) {
                            return layer.self(tape, x[0], {.pair_bias = {&table, &distances}});
                          }});
}

// The classic layer: output [2,10,512], weights [2,8,10,10], rows sum to 1.
TEST(MultiHead, the_layer_of_512_by_8_has_its_shapes_and_rows_that_sum_to_one) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 512, .heads = 8}, random);
  Tape<float> tape;
  HeadWeights<float> seen;
  const auto y = layer.self(tape, tape.node(random_tensor<float>({2, 10, 512}, 2)), {.seen = &seen});
  EXPECT_EQ(y->value.shape(), (Shape{2, 10, 512}));
  ASSERT_EQ(seen.weights.shape(), (Shape{2, 8, 10, 10}));
  ASSERT_EQ(seen.entropy.shape(), (Shape{2, 8, 10}));
  for (Index row = 0; row < 160; ++row) {
    double sum = 0;
    for (Index key = 0; key < 10; ++key) sum += static_cast<double>(seen.weights[row * 10 + key]);
    ASSERT_NEAR(sum, 1.0, 1e-6);
  }
}

TEST(MultiHead, asking_for_weights_changes_no_bit_of_the_output) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 64, .heads = 4}, random);
  const auto x = random_tensor<float>({3, 9, 64}, 2);
  Tape<float> tape;
  HeadWeights<float> seen;
  const auto plain = layer.self(tape, tape.node(x), {.mask = causal()});
  const auto observed = layer.self(tape, tape.node(x), {.mask = causal(), .seen = &seen});
  for (Index i = 0; i < plain->value.count(); ++i) ASSERT_EQ(plain->value[i], observed->value[i]);
  for (Index row = 0; row < 9; ++row)
    for (Index key = row + 1; key < 9; ++key) ASSERT_EQ(seen.weights[row * 9 + key], 0.0f);
}

// Columns 3 and 4 of [1,2,3,0,0] are padding: weight exactly 0, and what stands
// there can't matter.
TEST(MultiHead, padded_keys_weigh_nothing_whatever_they_hold) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 64, .heads = 4}, random);
  const Tensor<std::int64_t> ids({1, 5}, {1, 2, 3, 0, 0});
  auto memory = random_tensor<float>({1, 5, 64}, 3);
  const auto x = random_tensor<float>({1, 2, 64}, 2);
  Tape<float> tape;
  HeadWeights<float> seen;
  const auto before =
      layer.cross(tape, tape.node(x), tape.node(memory), {.mask = padding(ids.view<2>(), 0), .seen = &seen});
  for (Index row = 0; row < 8; ++row) {
    EXPECT_EQ(seen.weights[row * 5 + 3], 0.0f);
    EXPECT_EQ(seen.weights[row * 5 + 4], 0.0f);
  }
  for (Index i = 3 * 64; i < 5 * 64; ++i) memory[i] = std::nanf("");
  const auto after = layer.cross(tape, tape.node(x), tape.node(memory), {.mask = padding(ids.view<2>(), 0)});
  for (Index i = 0; i < before->value.count(); ++i) ASSERT_EQ(before->value[i], after->value[i]);
}

TEST(MultiHead, grouped_heads_equal_full_heads_with_repeated_weights) {
  auto grouped = layer_of({.model_dim = 8, .heads = 4, .kv_heads = 2});
  auto full = layer_of({.model_dim = 8, .heads = 4});
  full.query = grouped.query;
  full.output = grouped.output;
  for (Index row = 0; row < 8; ++row)
    for (Index part = 0; part < 2; ++part)  // keys, values
      for (Index head = 0; head < 4; ++head)
        for (Index d = 0; d < 2; ++d)
          full.key_value.weight.value[row * 16 + part * 8 + head * 2 + d] =
              grouped.key_value.weight.value[row * 8 + part * 4 + head / 2 * 2 + d];
  const auto x = random_tensor<double>({2, 5, 8}, 2);
  Tape<double> tape;
  const auto got = grouped.self(tape, tape.node(x)), right = full.self(tape, tape.node(x));
  for (Index i = 0; i < right->value.count(); ++i) ASSERT_NEAR(got->value[i], right->value[i], 1e-12);
}

TEST(MultiHead, head_counts_that_do_not_divide_are_errors_that_name_both) {
  for (const auto& [config, a, b] : {std::tuple{MultiHeadConfig{.model_dim = 10, .heads = 3}, "10", "3"},
                                     {MultiHeadConfig{.model_dim = 12, .heads = 6, .kv_heads = 4}, "6", "4"}}) {
    try {
      layer_of(config);
      FAIL();
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find(a), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(b), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(layer_of({.model_dim = 8, .heads = 0}), ArgumentError);
}

TEST(MultiHead, decoding_through_the_cache_equals_the_whole_sequence) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 64, .heads = 4, .kv_heads = 2}, random);
  const auto x = random_tensor<float>({2, 20, 64}, 2);
  Tape<float> tape;
  const auto whole = layer.self(tape, tape.node(x), {.mask = causal()});
  KeyValueCache<float> cache;
  // One token, then three, then the rest: every chunking is the same.
  for (const auto& [first, last] : {std::pair<Index, Index>{0, 1}, {1, 4}, {4, 20}}) {
    const auto part = layer.self_step(tape, tape.node(packed(x.view<3>().slice(1, first, last))), cache);
    for (Index b = 0; b < 2; ++b)
      for (Index t = first; t < last; ++t)
        for (Index d = 0; d < 64; ++d)
          ASSERT_NEAR(part->value[((b * (last - first)) + t - first) * 64 + d], whole->value[(b * 20 + t) * 64 + d],
                      1e-5)
              << "token " << t;
  }
  EXPECT_EQ(cache.length, 20);
}

TEST(MultiHead, a_remembered_memory_equals_cross_attention) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 32, .heads = 4}, random);
  Tape<float> tape;
  const auto x = tape.node(random_tensor<float>({2, 3, 32}, 2)),
             memory = tape.node(random_tensor<float>({2, 7, 32}, 3));
  const auto right = layer.cross(tape, x, memory);
  const auto got = layer.cross_step(tape, x, layer.remember(tape, memory));
  for (Index i = 0; i < right->value.count(); ++i) ASSERT_NEAR(got->value[i], right->value[i], 1e-5);
}

struct Steps {
  Random random{1};
  MultiHeadAttention<float> layer{"attention", {.model_dim = 8, .heads = 4, .kv_heads = 2}, random};
  Tape<float> tape;
  Var<float> input(Shape shape) { return tape.node(random_tensor<float>(std::move(shape), 2)); }
  KeyValueCache<float> filled() {
    KeyValueCache<float> cache;
    layer.self_step(tape, input({2, 3, 8}), cache);
    return cache;
  }
};

TEST(CachedSteps, a_cache_of_another_batch_or_width_is_refused) {
  Steps steps;
  auto cache = steps.filled();
  EXPECT_EQ(message_of([&] {
              steps.layer.self_step(steps.tape, steps.input({3, 1, 8}), cache);
            }),
            "MultiHeadAttention::self_step: the cache holds batch 2 but x has 3 (x [3,1,8], keys [2,16,4], values "
            "[2,16,4])");
  EXPECT_EQ(message_of([&] {
              steps.layer.cross_step(steps.tape, steps.input({1, 1, 8}), cache);
            }),
            "MultiHeadAttention::cross_step: the cache holds batch 2 but x has 1 (x [1,1,8], keys [2,16,4], values "
            "[2,16,4])");
  const KeyValueCache<float> narrow{Tensor<float>({2, 5, 3}), Tensor<float>({2, 5, 3}), 5};
  EXPECT_EQ(message_of([&] {
              steps.layer.cross_step(steps.tape, steps.input({2, 1, 8}), narrow);
            }),
            "MultiHeadAttention::cross_step: the cache has width 3 but the layer's keys have 4 (x [2,1,8], keys "
            "[2,5,3], values [2,5,3])");
  EXPECT_EQ(message_of([&] {
              steps.layer.self_step(steps.tape, steps.input({2, 8}), cache);
            }),
            "MultiHeadAttention::self_step: x [2,8] must be [batch, tokens, 8]");
  EXPECT_EQ(cache.length, 3);
}

TEST(CachedSteps, a_cache_that_contradicts_itself_is_refused) {
  Steps steps;
  const KeyValueCache<float> none, split{Tensor<float>({2, 5, 4}), Tensor<float>({2, 4, 4}), 4},
      overfull{Tensor<float>({2, 5, 4}), Tensor<float>({2, 5, 4}), 6};
  const auto step = [&](const KeyValueCache<float>& cache) {
    return message_of([&] { steps.layer.cross_step(steps.tape, steps.input({2, 1, 8}), cache); });
  };
  EXPECT_EQ(step(none),
            "MultiHeadAttention::cross_step: keys and values of the cache must both be [batch, capacity, width] (keys "
            "[0], values [0])");
  EXPECT_NE(step(split).find("(keys [2,5,4], values [2,4,4])"), std::string::npos) << step(split);
  EXPECT_NE(step(overfull).find("length is 6 but its capacity 5"), std::string::npos) << step(overfull);
}

TEST(CachedSteps, rows_that_the_cache_does_not_hold_are_refused) {
  Steps steps;
  for (Index row : {-1, 2}) {
    auto cache = steps.filled();
    const std::vector<Index> rows{0, row};
    EXPECT_EQ(message_of([&] { cache.select(rows); }), "KeyValueCache::select: row " + std::to_string(row) +
                                                           " but the cache holds batch 2 (keys [2,16,4], values "
                                                           "[2,16,4])");
    EXPECT_EQ(cache.keys.shape(), (Shape{2, 16, 4}));
  }
  KeyValueCache<float> none;
  const std::vector<Index> first{0};
  EXPECT_NE(message_of([&] { none.select(first); }), "nothing was refused");
}

TEST(MultiHead, separate_weights_equal_the_fused_matrix) {
  const auto x = random_tensor<double>({5, 6}, 2), weights = random_tensor<double>({2, 3, 6}, 3);
  const auto got = project_heads(x, weights);
  ASSERT_EQ(got.shape(), (Shape{1, 2, 5, 3}));
  Random random(1);
  Linear<double> fused("fused", 6, 6, random, false);
  for (Index h = 0; h < 2; ++h)
    for (Index d = 0; d < 3; ++d)
      for (Index j = 0; j < 6; ++j) fused.weight.value[j * 6 + h * 3 + d] = weights[(h * 3 + d) * 6 + j];
  Tape<double> tape;
  const auto right = fused.forward(tape, tape.node(x));
  const auto joined = concatenate_heads(got);
  ASSERT_EQ(joined.shape(), (Shape{1, 5, 6}));
  for (Index i = 0; i < joined.count(); ++i) ASSERT_NEAR(joined[i], right->value[i], 1e-12);
}

// Batch 3, 10 tokens, width 256, 8 heads sharing one 32 x 32 matrix.
TEST(MultiHead, the_shared_layout_projects_every_head_by_the_same_matrix) {
  const auto x = random_tensor<double>({3, 10, 256}, 2), weight = random_tensor<double>({32, 32}, 3);
  const auto y = project_shared(x, weight, 8);
  ASSERT_EQ(y.shape(), (Shape{3, 8, 10, 32}));
  for (Index b = 0; b < 3; ++b)
    for (Index h = 0; h < 8; ++h) {
      double right = 0;
      for (Index j = 0; j < 32; ++j) right += x[(b * 10 + 4) * 256 + h * 32 + j] * weight[7 * 32 + j];
      EXPECT_NEAR(y[((b * 8 + h) * 10 + 4) * 32 + 7], right, 1e-12);
    }
  EXPECT_THROW(project_shared(x, weight, 7), ArgumentError);
  EXPECT_THROW(project_shared(x, random_tensor<double>({16, 16}, 3), 8), ArgumentError);
}

}  // namespace
}  // namespace regard
