// The code of docs/positions.md. Keys and queries are chosen such that weights
// come out as simple fractions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "regard/attend.h"
#include "regard/layers.h"
#include "regard/positions.h"
#include "regard/relative_attention.h"
#include "regard/relative_bias.h"
#include "regard/rope.h"

using namespace regard;

namespace {

void print(const char* name, const float* numbers, Index count) {
  std::printf("%s:", name);
  for (Index i = 0; i < count; ++i) std::printf(" %.4f", numbers[i]);
  std::printf("\n");
}

// Values that show the weights: token i's is the i-th unit vector.
Tensor<float> unit_vectors(Index tokens) {
  Tensor<float> v({1, 1, tokens, tokens});
  for (Index i = 0; i < tokens; ++i) v[i * tokens + i] = 1;
  return v;
}

void sinusoidal() {
  Tape<float> tape;
  const auto x = tape.node(Tensor<float>({1, 2, 4}));  // two tokens of width 4, all zero
  const auto y = add_positions(tape, x, sinusoidal_positions<float>(2, 4));
  print("sinusoidal, position 0", y->value.data(), 4);
  print("sinusoidal, position 1", y->value.data() + 4, 4);
}

void learned() {
  Parameter<float> table("positions", {8, 2}, false);  // up to 8 tokens of width 2
  table.value[2] = 0.5f, table.value[3] = -0.25f;      // of position 1
  Tape<float> tape;
  const auto y = add_learned_positions(tape, tape.node(Tensor<float>({1, 2, 2})), table);
  print("learned, position 1", y->value.data() + 2, 2);
}

void shaw() {
  const Tensor<float> q({1, 1, 3, 1}, 1.0f), k({1, 1, 3, 1}), v = unit_vectors(3);
  const float ln2 = std::log(2.0f), ln3 = std::log(3.0f);
  const Tensor<float> keys({1, 3, 1}, {0, ln2, ln3});  // of distances -1, 0, 1; further ones use the nearest
  const auto out = relative_attend(q, k, v, {.first = -1, .keys = keys}, {.scale = 1.0f}).out;
  print("shaw, weights of token 0", out.data(), 3);
  print("shaw, weights of token 2", out.data() + 6, 3);
}

void transformer_xl() {
  const Tensor<float> q({1, 1, 2, 1}), k({1, 1, 4, 1}), v = unit_vectors(4);  // two tokens of memory in front
  const Tensor<float> keys({1, 4, 1}, {std::log(4.0f), std::log(3.0f), std::log(2.0f), 0});  // distances -3 to 0
  const Tensor<float> content_bias({1, 1}), position_bias({1, 1}, 1.0f);
  const auto out =
      relative_attend(q, k, v,
                      {.first = -3, .keys = keys, .content_bias = content_bias, .position_bias = position_bias},
                      {.mask = causal(), .scale = 1.0f})
          .out;
  print("transformer-xl, weights of the first new token", out.data(), 4);
  print("transformer-xl, weights of the second", out.data() + 4, 4);
  std::printf("%s", causal().picture(2, 4).c_str());
}

void t5() {
  const Tensor<float> q({1, 1, 3, 1}), k({1, 1, 3, 1}), v = unit_vectors(3);
  const RelativeBuckets rule{.buckets = 32, .max_distance = 128, .bidirectional = false};
  Tensor<float> table({32, 1});  // one number per bucket and head
  for (Index bucket = 0; bucket < 32; ++bucket) table[bucket] = std::log(1.0f + static_cast<float>(bucket));
  const auto out = attend(q, k, v, {.mask = causal(), .score = relative_bias(table, rule), .scale = 1.0f}).out;
  print("t5, weights of token 2", out.data() + 6, 3);
  std::printf("t5, buckets of distances 15, 20, 64 and 1000: %d %d %d %d\n", int(relative_bucket(-15, rule)),
              int(relative_bucket(-20, rule)), int(relative_bucket(-64, rule)), int(relative_bucket(-1000, rule)));
}

void rope() {
  const Tensor<std::int64_t> positions({1, 4}, {5, 3, 12, 10});
  Tensor<float> x({1, 1, 4, 2}, {1, 0, 1, 0, 1, 0, 1, 0});  // the same vector four times
  const auto table = rope_table<float>(rope_frequencies(2), positions.view<2>());
  rotate(x, x, table, RopePairing::half_split);
  const float* at = x.data();
  std::printf("rope, scores at distance 2: %.4f %.4f\n", at[0] * at[2] + at[1] * at[3], at[4] * at[6] + at[5] * at[7]);
}

void rope_scalings() {
  const auto slowest = [](const RopeFrequencies& frequencies) { return frequencies.inverse.back(); };
  const auto plain = rope_frequencies(4, 1e4);  // of pairs 0 and 1: 1 and 0.01
  std::printf("rope, slowest pair: %.6f\n", slowest(plain));
  std::printf("linear, factor 4: %.6f\n", slowest(rope_linear(plain, 4)));
  std::printf("dynamic NTK, factor 2 at twice the length: %.6f\n",
              slowest(rope_dynamic_ntk(4, 1e4, {.factor = 2, .trained_length = 1024, .length = 2048})));
  const auto yarn = rope_yarn(4, 1e4, {.factor = 16, .trained_length = 64, .truncate = false});
  std::printf("yarn, factor 16, and its attention factor: %.6f %.6f\n", slowest(yarn), yarn.factor);
  std::printf("llama 3, wavelength 62832 of 8192: %.9f\n", slowest(rope_llama3(rope_frequencies(4, 1e8), {})));
}

void alibi_bias() {
  print("alibi, slopes of three heads", alibi_slopes(3).data(), 3);
  const Tensor<float> q({1, 1, 3, 1}), k({1, 1, 3, 1}), v = unit_vectors(3);
  const std::vector<float> slopes{std::numbers::ln2_v<float>};  // halves a weight with every token of distance
  const auto out = attend(q, k, v, {.mask = causal(), .score = alibi(slopes)}).out;
  print("alibi, weights of token 2", out.data() + 6, 3);
}

void in_layers() {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 4, .heads = 2}, random);
  Tensor<float> tokens({1, 3, 4});
  for (float& value : tokens.values()) value = static_cast<float>(random.normal());
  Tape<float> tape;
  const auto x = tape.node(tokens);

  RotaryPositions<float> rotary(rope_frequencies(2));  // heads of 2: one pair
  const auto whole = layer.self(tape, x, {.mask = causal(), .positions = &rotary});
  KeyValueCache<float> cache;
  float difference = 0;
  for (Index t = 0; t < 3; ++t) {
    const auto token = tape.node(packed(tokens.view<3>().slice(1, t, t + 1)));
    const auto step = layer.self_step(tape, token, cache, {.positions = &rotary});
    for (Index d = 0; d < 4; ++d) difference = std::max(difference, std::abs(step->value[d] - whole->value[t * 4 + d]));
  }
  print("in a layer, rotary, cached steps from the whole run", &difference, 1);

  layer.query.weight.value.fill(0);  // now scores are what positions add
  auto alibi_of_encoders = AlibiPositions<float>::two_sided(2);
  HeadWeights<float> seen;
  layer.self(tape, x, {.positions = &alibi_of_encoders, .seen = &seen});
  print("in a layer, two-sided alibi, weights of token 1", seen.weights.data() + 3, 3);
}

}  // namespace

int main() {
  sinusoidal();
  learned();
  shaw();
  transformer_xl();
  t5();
  rope();
  rope_scalings();
  alibi_bias();
  in_layers();
}
