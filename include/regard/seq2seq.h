// The sequence-to-sequence Transformer over symbols.
// Source: Vaswani et al., "Attention is all you need", 2017.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/dataset.h"
#include "regard/transformer.h"

namespace regard {

enum class PositionKind { sinusoidal, learned };

struct Seq2SeqConfig {
  LayerConfig layer = {};
  Index encoder_layers = 4;
  Index decoder_layers = 4;
  PositionKind positions = PositionKind::sinusoidal;
  Index max_length = 256;  // of either side; longer input is refused
};

// What one run's attention looked like, one entry a layer.
template <class T>
struct SeenAttention {
  std::vector<HeadWeights<T>> encoder, decoder, cross;
};

// Target embeddings double as output weights. Embeddings start as N(0, 1 /
// model_dim) and are scaled by sqrt(model_dim), so that they and the sinusoids
// are of one size: larger ones drown the positions.
template <class T>
class Seq2Seq {
 public:
  Seq2Seq(const Seq2SeqConfig& config, Index source_vocabulary, Index target_vocabulary, std::uint64_t seed);
  // Layers hand out pointers to their weights.
  Seq2Seq(const Seq2Seq&) = delete;
  Seq2Seq& operator=(const Seq2Seq&) = delete;

  // source [batch, seq] padded with Vocabulary::pad -> memory [batch, seq,
  // model_dim]. Padding is hidden; a row gives the same as alone.
  Var<T> encode(Tape<T>& tape, const Tensor<std::int64_t>& source, SeenAttention<T>* seen = nullptr);
  // input [batch, len] -> logits [batch, len, target vocabulary].
  Var<T> decode(Tape<T>& tape, const Var<T>& memory, const Tensor<std::int64_t>& source,
                const Tensor<std::int64_t>& input, SeenAttention<T>* seen = nullptr);

  // Decoding with caches: one row per hypothesis.
  struct State {
    std::vector<DecoderCache<T>> layers;
    Tensor<std::int64_t> source;
    Index position = 0;
    // Row i becomes what row rows[i] was.
    void select(const std::vector<Index>& rows);
  };
  State start(const Tensor<std::int64_t>& source);
  // tokens [rows]: the newest of each row -> logits [rows, 1, target vocabulary].
  Tensor<T> step(State& state, const std::vector<std::int64_t>& tokens);

  Parameters<T> parameters();
  Index weight_count();
  const Seq2SeqConfig& config() const { return config_; }

 private:
  Var<T> embed(Tape<T>& tape, Embedding<T>& table, Parameter<T>& learned, const Tensor<std::int64_t>& ids, Index first);
  Var<T> logits(Tape<T>& tape, const Var<T>& x);

  Seq2SeqConfig config_;
  Random random_;  // initial weights, drawn in declaration order
  Embedding<T> source_embedding_, target_embedding_;
  Parameter<T> source_positions_, target_positions_;  // learned positions only
  std::vector<std::unique_ptr<EncoderLayer<T>>> encoder_;
  std::vector<std::unique_ptr<DecoderLayer<T>>> decoder_;
  LayerNorm<T> encoder_norm_, decoder_norm_;  // after the last layer, pre-norm only
};

}  // namespace regard
