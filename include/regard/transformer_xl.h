// Transformer-XL's attention layer: a segment sees itself and a memory of earlier
// segments, by distances instead of positions. Source: Dai et al.,
// "Transformer-XL: attentive language models beyond a fixed-length context", 2019.
#pragma once

#include "regard/multi_head.h"

namespace regard {

template <class T>
class TransformerXlAttention {
 public:
  TransformerXlAttention() = default;
  // Projections without biases; content and position biases start at 0. Throws
  // ArgumentError when model_dim is no multiple of heads.
  TransformerXlAttention(const std::string& name, Index model_dim, Index heads, Random& random);

  // x [batch, seq, model_dim] -> the same shape. memory [batch, any length,
  // model_dim] holds this layer's inputs of the tokens right before x, or is empty;
  // no gradient flows into it. Causal. Distances are told by
  // sinusoidal_positions(distance, model_dim), projected. Throws ArgumentError for
  // a memory of another batch or width.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const Tensor<T>& memory = {});
  void collect(Parameters<T>& list);

  Index heads = 0;
  Linear<T> query, key_value, position, output;  // key_value: keys, then values
  Parameter<T> content_bias, position_bias;      // [heads, head_dim]
};

// The memory of the next segment: the last `length` tokens (fewer if there are
// not so many) of memory, which may be empty, and x, both [batch, tokens, width].
template <class T>
Tensor<T> extend_memory(const Tensor<T>& memory, const Tensor<T>& x, Index length);

}  // namespace regard
