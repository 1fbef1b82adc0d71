// Linear attention: the softmax replaced by a product of features, so that time
// and memory grow with length alone.
//
//   out_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j),  phi(x) = elu(x) + 1
//
// over all keys, or over those at or before the query (causal). There is no
// scale: it would change the features, not the scores. Source: Katharopoulos et
// al., "Transformers are RNNs", 2020.
#pragma once

#include <cstdint>
#include <memory>

#include "regard/attend.h"

namespace regard {

// q [batch, q_heads, q_len, head_dim], k and v as in attend; q_heads a multiple
// of kv_heads.
struct LinearInputs {
  View<const float, 4> q, k, v;
};

struct LinearOptions {
  bool causal = false;
  QueryStart q_start = {};                    // where row 0 stands (causal only); default bottom-right
  View<const std::uint8_t, 2> key_mask = {};  // [batch or 1, kv_len], nonzero = may be attended
};

template <class T>
struct LinearResult {
  Tensor<T> out;         // [batch, q_heads, q_len, value_dim]; zeros where a query sees no key
  Tensor<T> normaliser;  // [batch, q_heads, q_len]; what the backward pass divides by
};

struct LinearGradients {
  Tensor<float> dq, dk, dv;
};

// Throws ArgumentError where sizes disagree or the key mask does not fit.
LinearResult<float> linear_attend(const LinearInputs& inputs, const LinearOptions& options = {});

// Exact gradients of sum(dout * out); `forward` is what linear_attend returned.
LinearGradients linear_attend_backward(View<const float, 4> dout, const LinearInputs& inputs,
                                       const LinearResult<float>& forward, const LinearOptions& options = {});

// The recurrent form: a state of fixed size instead of a cache. Each step adds
// new keys and values, causal among themselves, and answers the new queries: in
// any pieces, the steps give the causal pass over the whole.
class LinearDecoder {
 public:
  LinearDecoder();
  ~LinearDecoder();
  LinearDecoder(LinearDecoder&&) noexcept;
  LinearDecoder& operator=(LinearDecoder&&) noexcept;

  // q, k, v of the new tokens: [batch, heads, tokens, dim]. Throws ArgumentError
  // where the lengths of q and k differ or sizes changed since the first step.
  Tensor<float> step(const LinearInputs& inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace reference {
// The definition in plain double loops.
LinearResult<double> linear_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                   const LinearOptions& options = {});
}  // namespace reference

}  // namespace regard
