// The layers around attention. Activations are [batch, seq, width]; every
// layer works on the last axis and keeps the others.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "regard/random.h"
#include "regard/tape.h"

namespace regard {

enum class Activation { none, relu, gelu, gelu_tanh };

// y = activation(x W + b). weight [in, out], bias [out].
// ReLU: max(0, x). GELU: x * Phi(x) with the exact normal distribution
// function (Hendrycks and Gimpel, 2016). GELU by tanh is the approximation of
// the same paper: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
template <class T>
class Linear {
 public:
  Linear() = default;
  // Xavier-uniform weights (Glorot and Bengio, 2010), bias 0.
  Linear(const std::string& name, Index in, Index out, Random& random, bool with_bias = true);

  // x [..., in] -> [..., out]; throws ArgumentError naming both when x's last
  // size is not `in`.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, Activation activation = Activation::none);
  void collect(Parameters<T>& list);
  Index in() const { return weight.value.size(0); }
  Index out() const { return weight.value.size(1); }

  Parameter<T> weight, bias;  // bias is empty without one
};

// y = (x - mean) / sqrt(variance + epsilon) * gain + bias over the last axis;
// biased variance. Source: Ba, Kiros, Hinton, 2016.
template <class T>
class LayerNorm {
 public:
  LayerNorm() = default;
  LayerNorm(const std::string& name, Index width, double epsilon = 1e-5);
  Var<T> forward(Tape<T>& tape, const Var<T>& x);
  void collect(Parameters<T>& list);

  Parameter<T> gain, bias;
  double epsilon = 1e-5;
};

// y = x / sqrt(mean of x^2 + epsilon) * gain over the last axis.
// Source: Zhang and Sennrich, 2019.
template <class T>
class RmsNorm {
 public:
  RmsNorm() = default;
  RmsNorm(const std::string& name, Index width, double epsilon = 1e-6);
  Var<T> forward(Tape<T>& tape, const Var<T>& x);
  void collect(Parameters<T>& list);

  Parameter<T> gain;
  double epsilon = 1e-6;

 private:
  void backward(Node<T>& x, const Tensor<T>& dy, Tensor<T>& normed, const Tensor<T>& inverse);
};

// Token ids to vectors: table[id] * scale. Weights start as N(0, 1/width).
template <class T>
class Embedding {
 public:
  Embedding() = default;
  Embedding(const std::string& name, Index vocabulary, Index width, Random& random);
  // ids [batch, seq] -> [batch, seq, width]; throws ArgumentError for an id
  // outside the vocabulary.
  Var<T> forward(Tape<T>& tape, const Tensor<std::int64_t>& ids, double scale = 1.0);
  void collect(Parameters<T>& list);

  Parameter<T> table;  // [vocabulary, width]
};

// x W^T for a table used as output weights too (tied embeddings): [..., width]
// -> [..., vocabulary].
template <class T>
Var<T> project_onto(Tape<T>& tape, const Var<T>& x, Parameter<T>& table);

// Feed-forward: second(activation(first(x))).
template <class T>
class FeedForward {
 public:
  FeedForward() = default;
  FeedForward(const std::string& name, Index width, Index hidden, Random& random, Activation kind = Activation::relu);
  Var<T> forward(Tape<T>& tape, const Var<T>& x);
  void collect(Parameters<T>& list);

  Linear<T> first, second;
  Activation activation = Activation::relu;
};

// Sinusoidal positions, any width, odd too: column 2i is sin(p / 10000^(2i/width)),
// column 2i + 1 the cosine at the same frequency. [length, width], starting at
// position `first`. Source: Vaswani et al., 2017.
template <class T>
Tensor<T> sinusoidal_positions(Index length, Index width, Index first = 0);

// x [batch, seq, width] + table[first + position]; `table` is a constant.
template <class T>
Var<T> add_positions(Tape<T>& tape, const Var<T>& x, const Tensor<T>& table);

// Learned positions: a table with gradients. x's seq must not exceed it.
template <class T>
Var<T> add_learned_positions(Tape<T>& tape, const Var<T>& x, Parameter<T>& table, Index first = 0);

// Dropout: each element becomes 0 with probability p, else x / (1 - p); only in
// training. Philox with one seed per call, so the backward pass draws the same.
template <class T>
Var<T> dropout(Tape<T>& tape, const Var<T>& x, double p);

// x + dropout(branch): the residual step.
template <class T>
Var<T> add_residual(Tape<T>& tape, const Var<T>& x, const Var<T>& branch, double p);

}  // namespace regard
