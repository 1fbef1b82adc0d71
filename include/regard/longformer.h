// Longformer's attention layer: every token sees a window and the global tokens;
// global tokens see everything, through projections of their own.
// Source: Beltagy, Peters, Cohan, "Longformer", 2020.
#pragma once

#include <vector>

#include "regard/multi_head.h"

namespace regard {

struct LongformerConfig {
  Index model_dim = 0;
  Index heads = 0;
  Index each_side = 0;   // keys seen on each side of a query
  double dropout = 0.0;  // on the weights, in training
  bool bias = true;      // on all projections
};

template <class T>
struct LongformerCall {
  // Positions of the global tokens: one list for the whole batch or one per entry.
  std::vector<std::vector<Index>> global_positions = {};
  // [batch, seq], 0 = padded: seen by nobody, its own row is the output's bias.
  // Empty: every token is real.
  Tensor<std::int64_t> present = {};
  // Filled in when given. Local weights [batch, heads, seq, seq], whose rows of
  // global and padded tokens are 0; global ones [batch, heads, most globals, seq],
  // in the order of the lists, 0 where an entry has fewer.
  HeadWeights<T>* local = nullptr;
  HeadWeights<T>* global = nullptr;
};

template <class T>
class LongformerAttention {
 public:
  LongformerAttention() = default;
  // Throws ArgumentError when model_dim is no multiple of heads or each_side is
  // negative.
  LongformerAttention(const std::string& name, const LongformerConfig& config, Random& random);

  // x [batch, seq, model_dim] -> the same shape. Throws ArgumentError for lists
  // that do not fit the batch and positions that do not exist, are padded or
  // repeat, and for `present` of another shape. Costs seq * (2 * each_side +
  // globals) pairs.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const LongformerCall<T>& call = {});
  void collect(Parameters<T>& list);

  LongformerConfig config;
  // key_value: keys, then values, as in MultiHeadAttention.
  Linear<T> query, key_value, global_query, global_key_value, output;
};

}  // namespace regard
