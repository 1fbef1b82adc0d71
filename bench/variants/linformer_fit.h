// Projections for the Linformer: chosen without data, and fitted to data.
#pragma once

#include <vector>

#include "model_heads.h"

namespace regard::bench {

// [1, slots, length]: slot s is the mean of the s-th of `slots` stretches of about
// equal length. With slots = length that is exact attention.
Tensor<float> averaging_projection(Index slots, Index length);
// [1, slots, length]: normal numbers of variance 1 / slots, from which the paper
// starts.
Tensor<float> random_projection(Index slots, Index length);

struct Projections {
  Tensor<float> keys, values;  // [heads or 1, slots, length]
};
Tensor<float> projected_attend(const Heads& x, const Projections& projections);

// One pair of projections a head, by gradient descent (AdamW, 200 steps from
// averages) on the squared difference from exact attention.
Projections fitted_projections(Index slots, const Heads& training);

}  // namespace regard::bench
