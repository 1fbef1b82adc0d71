// Label-smoothed cross-entropy.
#pragma once

#include <cstdint>

#include "regard/tape.h"

namespace regard {

struct Loss {
  double sum = 0;    // summed over the tokens that count, nats
  Index tokens = 0;  // how many those are
  double mean() const { return tokens == 0 ? 0.0 : sum / static_cast<double>(tokens); }
};

// logits [batch, seq, classes], targets [batch, seq]; positions whose target is
// `ignore` count nothing and get no gradient. The target distribution is
// (1 - smoothing) on the target plus smoothing / classes on every class.
// Source: Szegedy et al., 2016. In training, `gradient` receives
// d(sum / tokens)/d(logits). Throws ArgumentError for a target outside the
// classes.
template <class T>
Loss cross_entropy(const Tensor<T>& logits, const Tensor<std::int64_t>& targets, std::int64_t ignore, double smoothing,
                   Tensor<T>* gradient);

}  // namespace regard
