// A small network on tasks whose right answers are made up on the spot.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/optimizer.h"
#include "regard/recurrent.h"
#include "regard/transformer.h"

namespace regard::bench {

// recall: one symbol, then noise, then a question: which symbol was it?
// copy:   eight symbols, then noise, then all eight in order.
// The distance is from a symbol to where it is to be said.
enum class RecallTask { recall, copy };

constexpr std::int64_t no_answer = -1;

struct Sample {
  Tensor<std::int64_t> input, target;  // [8, len]; no_answer where nothing is asked
};
Sample sample_of(RecallTask task, Index distance, Random& random);

struct NetworkShape {
  bool attends = true;  // else LSTM layers
  Index layers = 2;
  NormPlace norm = NormPlace::pre;
};

// Layers of width 64 with 32,768 weights each, attention's and the LSTM's alike,
// between an embedding and an output. Causal.
class Network {
 public:
  Network(const NetworkShape& shape, Random& random);
  // [batch, len] -> [batch, len, symbols]
  Var<float> forward(Tape<float>& tape, const Tensor<std::int64_t>& input);
  Parameters<float> parameters();

 private:
  Embedding<float> embedding_;
  std::vector<std::unique_ptr<EncoderLayer<float>>> encoder_;
  std::vector<std::unique_ptr<Recurrent<float>>> recurrent_;
  LayerNorm<float> norm_;
  Linear<float> output_;
};

struct StepReport {
  double loss = 0;  // nats an answer
  double norm = 0;  // of the gradient, before it is clipped
};
StepReport train_step(Network& network, AdamW<float>& optimizer, const Sample& sample, double rate, double clip);

// Share of questions answered right, over fresh samples.
double accuracy(Network& network, RecallTask task, Index distance, Random& random);

}  // namespace regard::bench
