// Performer (FAVOR+): an unbiased estimate of softmax attention from positive
// orthogonal random features, in time and memory linear in length.
//
//   exp(q . k scale) ~ phi(q) . phi(k),  phi(x)_f = exp(w_f . x' - |x'|^2 / 2) / sqrt(features),  x' = sqrt(scale) x
//
// Features are kept relative to the largest of their kind, so that float32 neither
// over- nor underflows where exp alone would. Causal blocks of 64 keys share one
// reference; where exponents rise by more than 40 within a block, it is taken in
// halves, down to single keys, which costs time for inputs of large norms.
// Source: Choromanski et al., "Rethinking attention with Performers", ICLR 2021.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "regard/linear_attention.h"

namespace regard {

struct PerformerFeatures {
  Tensor<float> projection;         // [features, head_dim]
  std::optional<float> scale = {};  // default 1 / sqrt(head_dim)
};

// Rows orthogonal in groups of head_dim, with lengths as of Gaussian vectors, so
// that the estimate stays unbiased. Another seed draws other features. Throws
// ArgumentError for sizes below 1.
PerformerFeatures performer_features(Index features, Index head_dim, std::uint64_t seed);

// Shapes, options, gradients and errors as in linear_attend.
LinearResult<float> performer_attend(const LinearInputs& inputs, const PerformerFeatures& features,
                                     const LinearOptions& options = {});
LinearGradients performer_attend_backward(View<const float, 4> dout, const LinearInputs& inputs,
                                          const PerformerFeatures& features, const LinearResult<float>& forward,
                                          const LinearOptions& options = {});

// The recurrent form, as LinearDecoder.
class PerformerDecoder {
 public:
  explicit PerformerDecoder(PerformerFeatures features);
  ~PerformerDecoder();
  PerformerDecoder(PerformerDecoder&&) noexcept;
  PerformerDecoder& operator=(PerformerDecoder&&) noexcept;
  Tensor<float> step(const LinearInputs& inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace reference {
// The definition in plain double loops, sums over pairs.
LinearResult<double> performer_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                      const PerformerFeatures& features, const LinearOptions& options = {});
}  // namespace reference

}  // namespace regard
