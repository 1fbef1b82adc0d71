// Positions of published model families: our rotations, biases and slopes give
// the attention weights that transformers computed (tests/data/positions).
#include "attention/cases.h"
#include "regard/relative_bias.h"
#include "regard/rope.h"
#include "regard/safetensors.h"
#include "regard/sparse_masks.h"

namespace regard {
namespace {

// Queries and keys of one model before positions, and its attention weights.
struct Layer {
  explicit Layer(const std::string& name) : name_(name) {
    const auto file = read_safetensors(std::string(REGARD_TEST_DATA) + "/positions/positions.safetensors");
    q = to_float(file.at(name + ".q"), name);
    k = to_float(file.at(name + ".k"), name);
    mask = to_int64(file.at(name + ".mask"), name);
    wanted = to_float(file.at(name + ".attentions"), name);
    if (file.has(name + ".table")) table = to_float(file.at(name + ".table"), name);
    if (file.has(name + ".sink")) sink = to_float(file.at(name + ".sink"), name);
  }

  void turn(const RopeFrequencies& frequencies) {
    const auto positions = rope_table<float>(frequencies, 0, q.size(2));
    rotate(q, q, positions);
    rotate(k, k, positions);
  }

  // Weights of real queries; padded keys are hidden besides what the options say.
  void expect_weights(AttendOptions options, double tolerance = 6.5e-6) const {
    SCOPED_TRACE(name_);
    options.mask = options.mask & padding(mask, 0);
    options.sink = sink.values();
    options.observe.weights = true;
    const auto got = attend(q, k, k, options).weights;
    ASSERT_EQ(got.shape(), wanted.shape());
    const Index seq = q.size(2);
    for (Index i = 0; i < got.count(); ++i) {
      const Index query = i / seq % seq, b = i / (got.count() / q.size(0));
      if (mask[b * seq + query] == 0) continue;
      ASSERT_NEAR(got[i], wanted[i], tolerance) << "at " << i;
    }
  }

  Tensor<float> q, k, wanted, table, sink;
  Tensor<std::int64_t> mask;

 private:
  std::string name_;
};

TEST(checkpoint_positions, rope_of_llama) {
  Layer layer("llama");
  layer.turn(rope_frequencies(12));
  layer.expect_weights({.mask = causal()});
}

TEST(checkpoint_positions, rope_counts_from_the_first_real_token_of_left_padded_input) {
  Layer layer("llama_left_padded");
  const auto table = rope_table<float>(rope_frequencies(12), token_positions(layer.mask, 0));
  rotate(layer.q, layer.q, table);
  rotate(layer.k, layer.k, table);
  layer.expect_weights({.mask = causal()});
}

TEST(checkpoint_positions, linear_and_llama3_scaling) {
  Layer linear("llama_linear");
  linear.turn(rope_linear(rope_frequencies(16), 4));
  linear.expect_weights({.mask = causal()});
  Layer llama3("llama3");
  llama3.turn(rope_llama3(rope_frequencies(16, 500), {8, 1, 4, 16}));
  llama3.expect_weights({.mask = causal()});
}

TEST(checkpoint_positions, yarn_with_sinks_and_a_sliding_window) {
  Layer layer("gpt_oss");
  layer.turn(rope_yarn(16, 150000, {.factor = 4, .trained_length = 16, .truncate = false}));
  layer.expect_weights({.mask = sliding_window(6)});
}

TEST(checkpoint_positions, partial_rope_of_gpt_neox_and_phi) {
  Layer neox("gpt_neox");
  neox.turn(rope_frequencies(4));
  neox.expect_weights({.mask = causal()});
  Layer phi("phi");
  phi.turn(rope_frequencies(8));
  phi.expect_weights({.mask = causal()});
}

TEST(checkpoint_positions, rope_in_an_encoder) {
  Layer layer("esm");
  layer.turn(rope_frequencies(12));
  layer.expect_weights({});
}

// Only the last 8 of 24 numbers of a head carry positions, and neighbours turn together.
TEST(checkpoint_positions, interleaved_rope_on_a_part_of_the_head) {
  Layer layer("deepseek_v3");
  const auto table = rope_table<float>(rope_frequencies(8), 0, layer.q.size(2));
  for (Tensor<float>* x : {&layer.q, &layer.k}) {
    const auto part = x->view<4>().slice(3, 16, 24);
    rotate(part, part, table, RopePairing::interleaved);
  }
  layer.expect_weights({.mask = causal()});
}

TEST(checkpoint_positions, alibi_of_bloom) {
  Layer("bloom").expect_weights({.mask = causal(), .score = alibi(alibi_slopes(4))});
}

TEST(checkpoint_positions, relative_buckets_of_t5_and_mpnet) {
  const Layer encoder("t5_encoder"), decoder("t5_decoder"), mpnet("mpnet");
  encoder.expect_weights({.score = relative_bias(encoder.table, {8, 20, true}), .scale = 1.0f}, 8.4e-6);
  decoder.expect_weights({.mask = causal(), .score = relative_bias(decoder.table, {8, 20, false}), .scale = 1.0f},
                         1.4e-5);
  mpnet.expect_weights({.score = relative_bias(mpnet.table)});
  const auto bias = relative_bias_tensor(encoder.table, {8, 20, true}, encoder.q.size(2), encoder.q.size(2));
  encoder.expect_weights({.bias = bias.view<4>(), .scale = 1.0f}, 8.4e-6);
}

// Blocks of 8 of 128 tokens; the drawn blocks are given for blocks of queries 1 to 14.
TEST(checkpoint_positions, sparse_blocks_of_big_bird) {
  const Layer layer("big_bird");
  const auto file = read_safetensors(std::string(REGARD_TEST_DATA) + "/positions/positions.safetensors");
  const auto given = to_int64(file.at("big_bird.blocks"), "blocks");
  Tensor<std::int64_t> chosen({2, 16, 2});
  for (Index h = 0; h < 2; ++h)
    for (Index n = 0; n < 28; ++n) chosen[h * 32 + 2 + n] = given[h * 28 + n];
  std::vector<Index> global;
  for (Index i = 0; i < 8; ++i) global.insert(global.end(), {i, 120 + i});
  const auto drawn = chosen_blocks(chosen, 8);
  layer.expect_weights({.mask = block_window(8, 1) | global_tokens(global) | drawn}, 1.1e-5);
}

}  // namespace
}  // namespace regard
