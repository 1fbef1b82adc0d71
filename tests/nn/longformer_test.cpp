#include "regard/longformer.h"

#include <gtest/gtest.h>

#include "nn/gradient_check.h"
#include "refusal.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::message_of;
using testing::random_tensor;
using testing::shaken_parameters;

LongformerAttention<double> layer_of(const LongformerConfig& config) {
  Random random(1);
  return LongformerAttention<double>("longformer", config, random);
}

TEST(Longformer, gradients_are_exact_with_global_tokens_padding_and_dropout) {
  auto layer = layer_of({.model_dim = 4, .heads = 2, .each_side = 1, .dropout = 0.3});
  LongformerCall<double> call;
  call.global_positions = {{4, 0}, {2}};
  call.present = Tensor<std::int64_t>({2, 6}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0});
  expect_exact_gradients({{random_tensor<double>({2, 6, 4}, 2)},
                          shaken_parameters(layer),
                          [&](auto& tape, const auto& x) { return layer.forward(tape, x[0], call); }});
}

TEST(Longformer, gradients_are_exact_without_global_tokens) {
  auto layer = layer_of({.model_dim = 4, .heads = 2, .each_side = 2, .bias = false});
  Parameters<double> local = shaken_parameters(layer);
  std::erase_if(local, [](const auto* parameter) { return parameter->name.find("global") != std::string::npos; });
  expect_exact_gradients({{random_tensor<double>({1, 7, 4}, 2)}, local, [&](auto& tape, const auto& x) {
                            return layer.forward(tape, x[0]);
                          }});
}

MultiHeadAttention<double> full_attention(const Linear<double>& query, const Linear<double>& key_value,
                                          const Linear<double>& output) {
  Random random(1);
  MultiHeadAttention<double> full("full", {.model_dim = 6, .heads = 2}, random);
  full.query = query;
  full.key_value = key_value;
  full.output = output;
  return full;
}

// A window over everything, no global tokens: plain multi-head attention.
TEST(Longformer, a_window_over_everything_is_full_attention) {
  auto layer = layer_of({.model_dim = 6, .heads = 2, .each_side = 9});
  auto full = full_attention(layer.query, layer.key_value, layer.output);
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({2, 8, 6}, 3));
  const auto wanted = full.self(tape, x)->value, got = layer.forward(tape, x)->value;
  for (Index i = 0; i < wanted.count(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-14);
}

// Every token global: full attention through the global projections.
TEST(Longformer, global_tokens_use_projections_of_their_own) {
  auto layer = layer_of({.model_dim = 6, .heads = 2, .each_side = 0});
  auto full = full_attention(layer.global_query, layer.global_key_value, layer.output);
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({1, 5, 6}, 3));
  const auto wanted = full.self(tape, x)->value;
  const auto got = layer.forward(tape, x, {.global_positions = {{3, 0, 1, 4, 2}}})->value;
  for (Index i = 0; i < wanted.count(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-14);
}

TEST(Longformer, what_does_not_fit_is_refused) {
  auto layer = layer_of({.model_dim = 4, .heads = 2, .each_side = 1});
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({2, 5, 4}, 3));
  const auto refusal = [&](const LongformerCall<double>& call) {
    return message_of([&] { layer.forward(tape, x, call); });
  };
  EXPECT_EQ(refusal({.global_positions = {{5}}}), "LongformerAttention: global position 5 but seq is 5");
  EXPECT_EQ(refusal({.global_positions = {{1, 0, 1}}}), "LongformerAttention: global position 1 is listed twice");
  EXPECT_EQ(refusal({.global_positions = {{0}, {1}, {2}}}),
            "LongformerAttention: global_positions has 3 lists but batch is 2");
  EXPECT_EQ(refusal({.present = Tensor<std::int64_t>({2, 4})}),
            "LongformerAttention: present [2,4] but the tokens are [2,5]");
  EXPECT_EQ(
      refusal({.global_positions = {{4}}, .present = Tensor<std::int64_t>({2, 5}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 0})}),
      "LongformerAttention: global position 4 of batch entry 1 is padded");
  EXPECT_THROW(layer_of({.model_dim = 5, .heads = 2}), ArgumentError);
  EXPECT_THROW(layer_of({.model_dim = 4, .heads = 2, .each_side = -1}), ArgumentError);
}

}  // namespace
}  // namespace regard
