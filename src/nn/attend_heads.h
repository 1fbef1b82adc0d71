// Attention between projected queries and projected keys and values, on the tape.
#pragma once

#include <array>
#include <utility>

#include "regard/error.h"
#include "regard/multi_head.h"
#include "regard/pair_bias.h"
#include "regard/positions.h"

namespace regard::detail {

// Columns [first, first + heads * dim) of x [batch, seq, width], as heads.
template <class T>
View<T, 4> heads_of(T* x, const std::array<Index, 3>& shape, Index first, Index heads, Index dim) {
  const auto& [batch, seq, width] = shape;
  return {x + first, {batch, heads, seq, dim}, {seq * width, dim, width, 1}};
}

template <class T>
std::array<Index, 3> shape3(const Tensor<T>& x) {
  return {x.size(0), x.size(1), x.size(2)};
}

// from [batch, heads, seq, dim], packed.
template <class T>
void copy_heads(const Tensor<T>& from, const View<T, 4>& to) {
  const auto view = from.template view<4>();
  for (Index b = 0; b < to.size(0); ++b)
    for (Index h = 0; h < to.size(1); ++h)
      for (Index i = 0; i < to.size(2); ++i)
        for (Index d = 0; d < to.size(3); ++d) to(b, h, i, d) = view(b, h, i, d);
}

// What positions and a call do to scores, and who learns it.
template <class T>
LearnedScore<T> score_of(const AttentionCall<T>& call, LearnedScore<T> score) {
  Parameter<T>* table = call.pair_bias.table;
  if (!table) return score;
  if (!call.pair_bias.pairs) throw ArgumentError("pair_bias: a table without pairs");
  score.modifiers = score.modifiers + pair_bias(std::as_const(table->value).template view<2>(), *call.pair_bias.pairs);
  score.tables.push_back(table);
  return score;
}

// What a layer's call comes to but for the scores: weights are kept for the way back in training, and shown when asked
// for.
template <class T>
BasicAttendOptions<T> options_of(Tape<T>& tape, const AttentionCall<T>& call, double dropout) {
  BasicAttendOptions<T> options;
  options.mask = call.mask;
  options.q_start = call.q_start;
  if (tape.dropping() && dropout > 0) options.dropout = {dropout, tape.next_seed()};
  if (call.seen) options.observe = call.observe;
  if (call.change) options.observe.weights = true;
  if (tape.recording()) options.observe.lse = true;
  return options;
}

// Kernels for float, the reference for double; into `out`.
BasicAttendResult<float> run_attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                       View<float, 4> out, const BasicAttendOptions<float>& options);
BasicAttendResult<double> run_attention(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                        View<double, 4> out, const BasicAttendOptions<double>& options);

// Heads side by side in the columns [first, first + heads * dim) of x [batch, seq, width].
template <class T>
struct HeadColumns {
  Var<T> x;
  Index first, heads, dim;
};

// k and v may lie in one node, and then fill it together.
template <class T>
struct ProjectedHeads {
  HeadColumns<T> q, k, v;
  LearnedScore<T> score = {};  // of positions
};

// Those of a layer with fused matrices.
template <class T>
ProjectedHeads<T> fused_heads(const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv) {
  const Index dim = config.model_dim / config.heads;
  return {{q, 0, config.heads, dim}, {kv, 0, config.kv_heads, dim}, {kv, config.kv_heads * dim, config.kv_heads, dim}};
}

template <class T>
struct AttendedHeads {
  Var<T> context;  // [batch, q_len, heads * dim of v]
  BasicAttendResult<T> result;
};

// Attention of whole sequences, with its way back.
template <class T>
AttendedHeads<T> attend_projected(Tape<T>& tape, const ProjectedHeads<T>& heads, double dropout,
                                  const AttentionCall<T>& call);

// Hands what was seen to whoever asked. key_value: none where keys and values are apart.
template <class T>
void show(const AttentionCall<T>& call, const AttendedHeads<T>& attended, const Var<T>& key_value);

template <class T>
void add_score(const LearnedScore<T>& score, BasicAttendOptions<T>& options) {
  options.score = score.modifiers;
  if (score.bias) options.bias = std::as_const(score.bias->value).template view<4>();
}

// As attend_heads, for heads that positions have prepared.
template <class T>
Var<T> attend_fused(Tape<T>& tape, const MultiHeadConfig& config, const ProjectedHeads<T>& heads,
                    const AttentionCall<T>& call);

// q [batch, q_len, heads * head_dim], kv [batch, kv_len, 2 * kv_heads * head_dim]:
// keys, then values. -> the shape of q, heads side by side. Reads heads, kv_heads,
// model_dim and dropout of the config.
template <class T>
Var<T> attend_heads(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv,
                    const AttentionCall<T>& call);

}  // namespace regard::detail
