// Structured attention over a linear chain: keys are switched on or off, not in
// competition with all others as under a softmax, but in agreement with their
// neighbours. For one query, with scores s_j = scale * q . k_j and z_j in {0, 1},
//
//   p(z) ~ exp( sum_j z_j s_j + sum_j links[z_j][z_j+1] ),   out = sum_j p(z_j = 1) v_j
//
// so that links[1][1] > 0 asks for runs of keys (segments) and < 0 for lone ones.
// The marginals p(z_j = 1) come from the forward-backward algorithm, in time linear
// in the number of keys; they do not sum to 1. Without links each is the logistic
// function of its score. Source: Kim, Denton, Hoang, Rush, "Structured attention
// networks", ICLR 2017 (segmentation attention).
#pragma once

#include <optional>
#include <span>

#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

// q [batch, q_heads, q_len, head_dim], k [batch, kv_heads, kv_len, head_dim], v
// [batch, kv_heads, kv_len, value_dim], q_heads a multiple of kv_heads. links
// [q_heads or 1, 2, 2], finite: (this key's state, the next key's); none: zeros.
template <class T>
struct ChainInputs {
  View<const T, 4> q, k, v;
  View<const T, 3> links = {};
  std::optional<double> scale = {};        // default 1 / sqrt(head_dim)
  std::span<const Index> kv_lengths = {};  // [batch]: the chain ends there; what lies beyond is not read
};

template <class T>
struct ChainResult {
  Tensor<T> out;        // [batch, q_heads, q_len, value_dim]; zeros where there is no key
  Tensor<T> marginals;  // [batch, q_heads, q_len, kv_len], when asked for; zeros beyond a length
};

struct ChainGradients {
  Tensor<float> dq, dk, dv;
  Tensor<float> dlinks;  // the shape of links; empty without links
};

// Memory for a block of query rows besides the result. Same bits for any number of
// threads. Throws ArgumentError where sizes disagree, and for links that are not
// finite.
ChainResult<float> chain_attend(const ChainInputs<float>& inputs, bool marginals = false);

// Exact gradients of sum(dout * out). Everything is computed again from the inputs.
ChainGradients chain_attend_backward(View<const float, 4> dout, const ChainInputs<float>& inputs);

namespace reference {
// Textbook forward-backward in double: messages for both states, as logarithms.
ChainResult<double> chain_attend(const ChainInputs<double>& inputs, bool marginals = false);
}  // namespace reference

}  // namespace regard
