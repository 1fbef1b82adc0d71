// Numbers of each head that blocks of queries add up to, in double precision.
#pragma once

#include "attention/call.h"

namespace regard::detail {

class Totals {
 public:
  Totals(const Call& call, Index count)
      : sums_({call.sizes.batch, call.sizes.q_heads, count}), heads_(call.sizes.q_heads), count_(count) {}
  double* of(const Spot& spot) { return sums_.data() + (spot.b * heads_ + spot.h) * count_; }
  // Rounded, [batch, q_heads, count].
  Tensor<float> rounded() const {
    auto floats = Tensor<float>::uninitialised(sums_.shape());
    for (Index i = 0; i < floats.count(); ++i) floats[i] = static_cast<float>(sums_[i]);
    return floats;
  }

 private:
  Tensor<double> sums_;
  Index heads_, count_;
};


}  // namespace regard::detail
