// The shipped model's own queries, keys and values.
#pragma once

#include <string>
#include <vector>

#include "regard/model.h"
#include "regard/transformer.h"

namespace regard::bench {

// Of one call of attention: [batch, heads, seq, head_dim].
struct Heads {
  Tensor<float> q, k, v;
};

// The encoder of a model, layer by layer.
class ModelHeads {
 public:
  explicit ModelHeads(const std::string& folder);

  // What the encoder's layers project a word to; heads of all layers follow one
  // another: [1, layers * heads, letters, head_dim]. Throws Error if the encoder
  // built here does not give what the model's own gives.
  Heads of_word(const std::string& word);
  // Words laid end to end, each projected by itself, the first `length` letters
  // of them. No layer ever sees such a sequence: it is the model's vectors at a
  // length the model does not reach.
  Heads of_words(const std::vector<std::string>& words, Index length);
  // The first `length` letters of each word as a word: [words, layers * heads,
  // length, head_dim]. Throws ArgumentError for a shorter word.
  Heads of_beginnings(const std::vector<std::string>& words, Index length);

  Index head_count() const { return model_.config.encoder_layers * model_.config.layer.heads; }
  Index head_dim() const { return model_.config.layer.model_dim / model_.config.layer.heads; }

 private:
  Var<float> project(Tape<float>& tape, const Var<float>& x, std::size_t layer, Heads& heads);

  Model model_;
  Random random_{0};  // of weights that are replaced at once
  Embedding<float> embedding_;
  std::vector<std::unique_ptr<EncoderLayer<float>>> layers_;
  LayerNorm<float> norm_;
};

// Words of a text in their order: runs of letters, made small, of at least
// `letters` letters; repetitions included.
std::vector<std::string> words_of(const std::string& path, std::size_t letters);

}  // namespace regard::bench
