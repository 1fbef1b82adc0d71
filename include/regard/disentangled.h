// DeBERTa's disentangled attention: contents meet contents, and each side's
// content meets the distance as the other side sees it.
//
//   score(i, j) = (q_i . k_j + q_i . K[d] + k_j . Q[d]) / sqrt(3 head_dim)
//
// with K and Q the projected vectors of relative positions and d the bucket of
// i - j. Source: He et al., "DeBERTa", ICLR 2021; buckets and shared projections
// of its versions 2 and 3.
#pragma once

#include "regard/multi_head.h"

namespace regard {

struct DisentangledConfig {
  Index model_dim = 0;
  Index heads = 0;
  Index buckets = 256;       // on each side of a query; the table has twice as many rows
  Index max_distance = 512;  // in tokens: the last bucket begins about there
  double dropout = 0.0;      // on the weights, in training
};

// Distances up to buckets / 2 are their own bucket, farther ones share buckets
// whose width grows with the logarithm of the distance; odd in `distance`.
Index disentangled_bucket(Index distance, Index buckets, Index max_distance);

template <class T>
class DisentangledAttention {
 public:
  DisentangledAttention() = default;
  // Throws ArgumentError when model_dim is no multiple of heads, or there are
  // fewer than 2 buckets or no distances for the far ones.
  DisentangledAttention(const std::string& name, const DisentangledConfig& config, Random& random);

  // x [batch, seq, model_dim]; relative [2 * buckets, model_dim], row bucket +
  // buckets for each bucket (after the model's norm, which all layers share).
  // Content and positions go through the same projections. Needs memory for
  // [batch, heads, seq, seq] biases. Throws ArgumentError for another table, and
  // when the call would change heads.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const Var<T>& relative, const AttentionCall<T>& call = {});
  void collect(Parameters<T>& list);

  DisentangledConfig config;
  Linear<T> query, key_value, output;  // key_value: keys, then values
};

}  // namespace regard
