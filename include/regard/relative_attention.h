// Attention whose scores and values know the distance between query and key
// through learned vectors: Shaw's relative positions and Transformer-XL.
//
//   score(i, j) = scale * ((q_i + content_bias) . k_j + (q_i + position_bias) . keys[d])
//   out_i       = sum over visible j of softmax(score)_ij * (v_j + values[d])
//
// with d the row of distance key - query: row r stands for distance first + r,
// and distances outside the table use its first or last row. Exact, forward and
// backward; memory grows with q_len + kv_len, never with their product.
//
// Shaw: tables of 2c + 1 rows, first = -c (clipped at c), values as well.
// Transformer-XL: keys[r] = W_R R_(-distance), first = -(kv_len - 1), both
// biases, causal(); the memory of earlier segments stands in front of k and v,
// and q_start's default (kv_len - q_len) puts the queries after it. Let no
// gradient flow from dk and dv into the memory.
//
// Sources: Shaw, Uszkoreit, Vaswani, "Self-attention with relative position
// representations", 2018; Dai et al., "Transformer-XL", 2019.
#pragma once

#include <optional>

#include "regard/attend.h"

namespace regard {

// The vectors of distances. What is left out counts as zeros; keys must be given.
template <class T>
struct RelativeTerms {
  Index first = 0;                     // distance key - query of row 0
  View<const T, 3> keys = {};          // [q_heads or 1, distances, head_dim]
  View<const T, 3> values = {};        // [q_heads or 1, distances, value_dim]
  View<const T, 2> content_bias = {};  // [q_heads or 1, head_dim]
  View<const T, 2> position_bias = {};
};

template <class T>
struct RelativeOptions {
  Mask mask = {};
  QueryStart q_start = {};
  std::optional<T> scale = {};  // default 1 / sqrt(head_dim)
};

template <class T>
struct RelativeResult {
  Tensor<T> out;  // [batch, q_heads, q_len, value_dim]
  Tensor<T> lse;  // [batch, q_heads, q_len]; -inf where a query sees no key
};

// Shapes of q, k, v, grouped heads, masks and q_start as in attend. A query with
// no visible key gives zeros, and hidden pairs contribute nothing whatever they
// hold. Throws ArgumentError where sizes disagree or keys have no rows.
RelativeResult<float> relative_attend(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                      const RelativeTerms<float>& terms, const RelativeOptions<float>& options = {});

// Shapes of what each belongs to; empty where that was left out.
template <class T>
struct BasicRelativeGradients {
  Tensor<T> dq, dk, dv;
  Tensor<T> dkeys, dvalues, dcontent_bias, dposition_bias;
};
using RelativeGradients = BasicRelativeGradients<float>;

// What relative_attend was called with.
template <class T>
struct BasicRelativeInputs {
  View<const T, 4> q, k, v;
  RelativeTerms<T> terms;
  RelativeOptions<T> options = {};
};
using RelativeInputs = BasicRelativeInputs<float>;

// Gradients of sum(dout * out); `forward` is what relative_attend returned.
RelativeGradients relative_attend_backward(View<const float, 4> dout, const RelativeInputs& inputs,
                                           const RelativeResult<float>& forward);

namespace reference {
// The definition above in plain double loops.
RelativeResult<double> relative_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                       const RelativeTerms<double>& terms, const RelativeOptions<double>& options = {});
BasicRelativeGradients<double> relative_attend_backward(View<const double, 4> dout,
                                                        const BasicRelativeInputs<double>& inputs);
}  // namespace reference

}  // namespace regard
