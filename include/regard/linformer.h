// Linformer: keys and values projected along the sequence to a fixed number of
// slots, then attended to exactly: cost grows with q_len * slots.
//
//   out = softmax(q (E k)^T scale) (F v)
//
// Sharing, as in the paper: one projection a head (none), one for all heads
// (headwise: a first size of 1), one for keys and values too (key-value: leave
// `values` out), and one for all layers (layerwise: give every layer the same
// views and add their gradients).
//
// Every slot mixes all positions, so there is no causal Linformer: it is
// refused. Padded keys and values count as zeros before they are projected.
// Source: Wang et al., "Linformer", 2020.
#pragma once

#include <cstdint>
#include <optional>

#include "regard/attend.h"

namespace regard {

template <class T>
struct LinformerProjections {
  View<const T, 3> keys = {};    // E [kv_heads or 1, slots, length]; the first kv_len of its columns are used
  View<const T, 3> values = {};  // F, alike; left out: E serves both
};

template <class T>
struct LinformerOptions {
  bool causal = false;                        // true is refused, see above
  View<const std::uint8_t, 2> key_mask = {};  // [batch or 1, kv_len], nonzero = real token
  std::optional<T> scale = {};                // default 1 / sqrt(head_dim)
};

// What was called; q, k and v as in attend.
template <class T>
struct LinformerInputs {
  View<const T, 4> q, k, v;
  LinformerProjections<T> projections;
  LinformerOptions<T> options = {};
};

template <class T>
struct LinformerResult {
  Tensor<T> out;           // [batch, q_heads, q_len, value_dim]
  Tensor<T> lse;           // [batch, q_heads, q_len]
  Tensor<T> keys, values;  // projected, [batch, kv_heads, slots, dim]
};

// Throws ArgumentError for causal, and where sizes disagree or a projection is
// shorter than the keys.
LinformerResult<float> linformer_attend(const LinformerInputs<float>& inputs);

struct LinformerGradients {
  Tensor<float> dq, dk, dv;
  Tensor<float> dkeys, dvalues;  // of the projections; dvalues is empty where E serves both
};

// Exact gradients of sum(dout * out); `forward` is what linformer_attend returned.
LinformerGradients linformer_attend_backward(View<const float, 4> dout, const LinformerInputs<float>& inputs,
                                             const LinformerResult<float>& forward);

namespace reference {
// The definition in plain double loops.
LinformerResult<double> linformer_attend(const LinformerInputs<double>& inputs);
}  // namespace reference

}  // namespace regard
