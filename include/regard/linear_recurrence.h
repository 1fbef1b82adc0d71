// Linear attention as a recurrence over a matrix, without a normaliser: plain,
// gated, by the delta rule, or both.
//
//   S <- diag(exp(decay_t)) S              where decay is given
//   u  = v_t, or beta_t (v_t - S^T k_t)    where beta is given (delta rule)
//   S <- S + k_t u^T
//   out_t = scale * S^T q_t
//
// Sources: Katharopoulos et al., 2020 (plain); Yang et al., "Gated linear
// attention", 2024; Schlag et al., "Linear Transformers are secretly fast weight
// programmers", 2021 (delta rule); Yang et al., "Gated delta networks", 2025.
#pragma once

#include <optional>

#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

template <class T>
struct RecurrenceInputs {
  View<const T, 4> q;           // [batch, q_heads, len, key_dim]
  View<const T, 4> k;           // [batch, kv_heads, len, key_dim]; q_heads a multiple of kv_heads
  View<const T, 4> v;           // [batch, kv_heads, len, value_dim]
  View<const T, 4> decay = {};  // [batch, kv_heads, len, key_dim or 1], logarithms
  View<const T, 3> beta = {};   // [batch, kv_heads or 1, len]
  View<const T, 4> state = {};  // [batch, kv_heads, key_dim, value_dim]; left out: zeros
  std::optional<T> scale = {};  // default 1 / sqrt(key_dim)
};

template <class T>
struct RecurrenceResult {
  Tensor<T> out;    // [batch, q_heads, len, value_dim]
  Tensor<T> state;  // after the last token; the next piece begins with it
};

// Any split of a sequence into pieces gives the same bits. Throws ArgumentError
// where sizes disagree or key_dim is 0.
RecurrenceResult<float> linear_recurrence(const RecurrenceInputs<float>& inputs);

template <class T>
struct RecurrenceGradients {
  Tensor<T> dq, dk, dv;
  Tensor<T> ddecay, dbeta, dstate;  // shapes of the inputs, summed where one served many; empty for what was not given
};

// Gradients of sum(dout * out) + sum(dstate * state after the last token). dout
// [batch, q_heads, len, value_dim]; dstate may be left out. Keeps the state before
// every 64th token and computes those between again, so memory grows by
// key_dim * value_dim / 64 numbers a token of one head per thread. Throws as
// linear_recurrence does.
RecurrenceGradients<float> linear_recurrence_backward(View<const float, 4> dout, const RecurrenceInputs<float>& inputs,
                                                      View<const float, 4> dstate = {});

// The definition in plain loops; the backward pass keeps every state.
namespace reference {
RecurrenceResult<double> linear_recurrence(const RecurrenceInputs<double>& inputs);
RecurrenceGradients<double> linear_recurrence_backward(View<const double, 4> dout,
                                                       const RecurrenceInputs<double>& inputs,
                                                       View<const double, 4> dstate = {});
}  // namespace reference

}  // namespace regard
