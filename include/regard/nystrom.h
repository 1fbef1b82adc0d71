// Nystrom attention: the softmax matrix by way of landmarks, the means of
// neighbouring queries and keys. With q~, k~ the landmarks of q and k and f the
// softmax of scaled products,
//
//   out = f(q, k~) Z f(q~, k) v,   Z = pseudo-inverse of f(q~, k~)
//
// Z by the paper's third-order iteration. As many landmarks as tokens give exact
// attention where f(q, k) can be inverted and the iteration has settled. Time and
// memory grow like n * landmarks. Source: Xiong et al., "Nystromformer", AAAI 2021,
// without its convolution beside the attention.
#pragma once

#include <cstdint>
#include <optional>

#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

struct NystromOptions {
  Index landmarks = 64;                       // segments of (almost) equal length; at most the length is used
  Index iterations = 6;                       // of the pseudo-inverse
  View<const std::uint8_t, 2> key_mask = {};  // [batch or 1, len], nonzero = real token
  std::optional<double> scale = {};           // default 1 / sqrt(head_dim)
  bool causal = false;                        // refused: landmarks mix positions, later ones too
};

// q, k [batch, heads, len, head_dim], v [batch, heads, len, value_dim].
template <class T>
struct NystromInputs {
  View<const T, 4> q, k, v;
  NystromOptions options = {};
};

template <class T>
struct NystromResult {
  Tensor<T> out;  // [batch, heads, len, value_dim]; zeros for padded tokens
  // What the backward pass starts from. Landmarks [batch, heads, landmarks,
  // head_dim], f(q~, k) v and Z f(q~, k) v [batch, heads, landmarks, value_dim],
  // log-sum-exp of f(q, k~) and f(q~, k).
  Tensor<T> landmark_q, landmark_k, summaries, mixed, lse, summaries_lse;
};

// Means are of the real tokens of a segment; segments without any are left out.
// Padded tokens change nothing whatever they hold. Throws ArgumentError for
// causal, fewer than 1 landmark or iteration, and sizes that disagree.
NystromResult<float> nystrom_attend(const NystromInputs<float>& inputs);

struct NystromGradients {
  Tensor<float> dq, dk, dv;
};

// Exact gradients of sum(dout * out), the iteration's steps included; `forward` is
// what nystrom_attend returned.
NystromGradients nystrom_attend_backward(View<const float, 4> dout, const NystromInputs<float>& inputs,
                                         const NystromResult<float>& forward);

namespace reference {
// The definition in plain double loops; only `out` is filled in.
NystromResult<double> nystrom_attend(const NystromInputs<double>& inputs);
}  // namespace reference

}  // namespace regard
