// Multi-head attention: project, split into heads, attend, concatenate,
// project. Heads are strided views; nothing is copied to split or join them.
// Source: Vaswani et al., "Attention is all you need", 2017.
#pragma once

#include <functional>

#include "regard/attend.h"
#include "regard/layers.h"

namespace regard {

// Keys and values of the tokens so far, for decoding one step at a time:
// [batch, capacity, kv_heads * head_dim], of which `length` are filled.
template <class T>
struct KeyValueCache {
  Tensor<T> keys, values;
  Index length = 0;

  // Keeps batch entry rows[i] as entry i (beam search). Throws ArgumentError for
  // a row that does not exist and for a cache that was never filled.
  void select(std::span<const Index> rows);
};

struct MultiHeadConfig {
  Index model_dim = 0;
  Index heads = 0;
  Index kv_heads = 0;    // 0: as many as heads; fewer: grouped-query attention
  double dropout = 0.0;  // on the weights, in training
  bool bias = true;      // on all four projections
};

template <class T>
class MultiHeadAttention;
template <class T>
class Positions;  // positions.h
namespace detail {
template <class T>
struct ProjectedHeads;
}

// One attention layer as it ran, when asked for: what was observed of its
// weights (regard/observe.h), and the values around them, which keep their
// gradients after a backward pass.
template <class T>
struct HeadWeights : BasicObservations<T> {
  // Not in cached steps.
  const MultiHeadAttention<T>* layer = nullptr;
  Var<T> key_value;  // [batch, kv_len, 2 * kv_heads * head_dim]: keys (turned, with rotary positions), then values
  Var<T> context;    // [batch, q_len, heads * head_dim]: what the heads give, before the output projection
  // By encoder and decoder layers: the sub-layer's input, which joins its output,
  // and the norm behind the sum (post-norm only).
  Var<T> residual;
  const LayerNorm<T>* norm = nullptr;
};

// What heads give, for experiments that change it.
template <class T>
struct HeadContext {
  Tensor<T>& context;          // [batch, q_len, heads * head_dim], to be changed
  const Tensor<T>& key_value;  // [batch, kv_len, 2 * kv_heads * head_dim]: keys, then values
  const Tensor<T>& weights;    // [batch, heads, q_len, kv_len]
  const MultiHeadConfig& heads;
};

// A number learned for each kind of pair (pair_bias.h): the table [buckets, heads]
// gets its gradient. `pairs` must outlive the call; the table, the way back.
template <class T>
struct LearnedPairBias {
  Parameter<T>* table = nullptr;  // none: no bias
  const Tensor<std::int32_t>* pairs = nullptr;
};

// Everything a call may add to q, k and v.
template <class T>
struct AttentionCall {
  Mask mask = {};
  LearnedPairBias<T> pair_bias = {};
  Positions<T>* positions = nullptr;  // of self-attention's tokens; none: nothing is known of them
  QueryStart q_start = {};
  HeadWeights<T>* seen = nullptr;                        // filled in when given; the output stays the same
  Observe observe = {.entropy = true, .weights = true};  // what `seen` gets of the weights
  // Called before the output projection. Such a call has no way back: it throws
  // ArgumentError on a tape that records, and in cached steps.
  std::function<void(const HeadContext<T>&)> change = {};
};

template <class T>
class MultiHeadAttention {
 public:
  MultiHeadAttention() = default;
  // Throws ArgumentError naming both when model_dim is no multiple of heads.
  MultiHeadAttention(const std::string& name, const MultiHeadConfig& config, Random& random);

  // x [batch, q_len, model_dim] attends to itself; its first token stands at
  // position 0. Throws ArgumentError for positions together with q_start.
  Var<T> self(Tape<T>& tape, const Var<T>& x, const AttentionCall<T>& call = {});
  // x attends to memory [batch, kv_len, model_dim]; lengths may differ. This and
  // cross_step throw ArgumentError for positions: x and memory have none in common.
  Var<T> cross(Tape<T>& tape, const Var<T>& x, const Var<T>& memory, const AttentionCall<T>& call = {});

  // Decoding without a tape: x [batch, new tokens, model_dim] joins the cache,
  // then attends to all of it causally; its positions go on behind the cache's
  // tokens. Both steps throw ArgumentError when the cache's batch or width is not
  // that of x and the layer, this one for positions together with q_start.
  Var<T> self_step(Tape<T>& tape, const Var<T>& x, KeyValueCache<T>& cache, const AttentionCall<T>& call = {});
  // Keys and values of a memory, computed once for cross_step.
  KeyValueCache<T> remember(Tape<T>& tape, const Var<T>& memory);
  Var<T> cross_step(Tape<T>& tape, const Var<T>& x, const KeyValueCache<T>& memory, const AttentionCall<T>& call = {});

  void collect(Parameters<T>& list);

  MultiHeadConfig config;
  Linear<T> query, key_value, output;  // key_value [model_dim, 2 * kv_heads * head_dim]: keys, then values

 private:
  Var<T> attend(Tape<T>& tape, const detail::ProjectedHeads<T>& heads, const AttentionCall<T>& call);
};

// The projections of single heads as separate weights, [heads, d, model_dim]
// (x W[h]^T), the layout of per-head lessons. x [seq, model_dim] -> [1, heads, seq, d].
template <class T>
Tensor<T> project_heads(const Tensor<T>& x, const Tensor<T>& weights);

// The old layout that shares one [head_dim, head_dim] matrix among all heads:
// x [batch, seq, heads * head_dim] -> [batch, heads, seq, head_dim], x_h W^T.
template <class T>
Tensor<T> project_shared(const Tensor<T>& x, const Tensor<T>& weight, Index heads);

// [batch, heads, seq, d] -> [batch, seq, heads * d].
template <class T>
Tensor<T> concatenate_heads(const Tensor<T>& x);

}  // namespace regard
