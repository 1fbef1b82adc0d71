// The two old layouts of projections as layers that train. MultiHeadAttention keeps
// all heads' projections in one matrix, which is what to use; these are for lessons
// and weights that come in the other layouts.
#pragma once

#include "regard/multi_head.h"

namespace regard {

struct PerHeadConfig {
  Index model_dim = 0;
  Index heads = 0;
  Index query_dim = 0;   // of one head's queries and keys
  Index value_dim = 0;   // of one head's values; 0: query_dim
  double dropout = 0.0;  // on the weights, in training
};

// Weights of their own for each head, [heads, d, model_dim]: head h's queries are
// x W_Q[h]^T. Sizes need not add up to model_dim, and values may have another size
// than queries and keys; the output projection [heads * value_dim, model_dim] brings
// them back. No biases but the output's.
template <class T>
class PerHeadAttention {
 public:
  PerHeadAttention() = default;
  // Xavier-uniform, each head as a matrix of its own (Glorot and Bengio, 2010).
  // Throws ArgumentError for sizes below 1.
  PerHeadAttention(const std::string& name, const PerHeadConfig& config, Random& random);

  // x [batch, q_len, model_dim] attends to memory [batch, kv_len, model_dim], in
  // self-attention x again -> [batch, q_len, model_dim]. Of a call's requests, it
  // refuses positions and changes of heads (ArgumentError); `seen` gets no layer and
  // no key_value.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const Var<T>& memory, const AttentionCall<T>& call = {});
  void collect(Parameters<T>& list);

  PerHeadConfig config;
  Parameter<T> query, key, value;  // [heads, query_dim or value_dim, model_dim]
  Linear<T> output;
};

struct SharedHeadConfig {
  Index model_dim = 0;
  Index heads = 0;
  double dropout = 0.0;  // on the weights, in training
};

// One [head_dim, head_dim] matrix each for queries, keys and values, shared by all
// heads: head h projects its own slice of x alone, x_h W^T. No biases but the
// output's.
template <class T>
class SharedHeadAttention {
 public:
  SharedHeadAttention() = default;
  // Xavier-uniform. Throws ArgumentError naming both when model_dim is no multiple
  // of heads.
  SharedHeadAttention(const std::string& name, const SharedHeadConfig& config, Random& random);

  // As PerHeadAttention::forward.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const Var<T>& memory, const AttentionCall<T>& call = {});
  void collect(Parameters<T>& list);

  SharedHeadConfig config;
  Parameter<T> query, key, value;  // [head_dim, head_dim]
  Linear<T> output;
};

}  // namespace regard
