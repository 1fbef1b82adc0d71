// What each key contributes to a query's output, beyond its weight: a large weight
// on a small value moves nothing.
#pragma once

#include "regard/multi_head.h"

namespace regard {

// Sizes of contributions, in the units of the layer's output.
template <class T>
struct Contributions {
  // One head's share alone: weight * |value W_O|, [batch, heads, q_len, kv_len].
  Tensor<T> heads;
  // All heads together, whose vectors may cancel, [batch, q_len, kv_len]. With
  // self-attention the residual joins the contribution of the query's own key.
  Tensor<T> joint;
  // The residual alone, [batch, q_len].
  Tensor<T> residual;
  // What comes from elsewhere over that and what stays: |sum over other keys| /
  // (|sum over other keys| + |own key and residual|), [batch, q_len]. With
  // cross-attention every key is elsewhere and the residual is what stays.
  Tensor<T> mixing;
};

// Contributions |sum over heads of weight * (value W_O)| of a layer that ran with
// `seen` and its weights observed; biases of values count, the output's does not
// belong to any key. Where the layer norm comes behind the sum (post-norm), the
// contributions are those to the normed output: mean taken off, times gain over
// the sum's own deviation. `self`: queries and keys are one sequence, query i
// being key kv_len - q_len + i.
//
// The size of a sum over heads is w^T G w, G the heads' values' products with one
// another: a heads x heads matrix a key, never a vector for each query and key.
//
// Throws ArgumentError when `seen` lacks weights, values or the residual, which
// encoder and decoder layers record.
// Sources: Kobayashi et al., "Attention is not only a weight", 2020 (norms), and
// "Incorporating residual and normalization layers into analysis of masked
// language models", 2021 (residual, norm, mixing).
template <class T>
Contributions<T> contribution_norms(const HeadWeights<T>& seen, bool self);

// weight * d(loss)/d(weight) of every pair, [batch, heads, q_len, kv_len], after a
// backward pass through the layer; sums of it say how the loss would fall, to
// first order, if these weights went. Throws ArgumentError without a gradient.
// Source: Serrano and Smith, "Is attention interpretable?", 2019.
template <class T>
Tensor<T> gradient_times_weight(const HeadWeights<T>& seen);

}  // namespace regard
