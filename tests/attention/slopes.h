// Gradients held to finite differences of a loss in double.
#pragma once

#include <cmath>
#include <functional>
#include <string>

#include "attention/compare.h"

namespace regard::testing {

// sum(weights * x): the loss that makes `weights` the gradient of x.
inline double weighed(const Tensor<double>& x, const Tensor<double>& weights) {
  double sum = 0;
  for (Index i = 0; i < x.count(); ++i) sum += x[i] * weights[i];
  return sum;
}

// gradient . u against the slope of `loss` along u, for single elements where x
// is small and for random directions u where it is not. `loss` reads x.
inline void expect_slopes(const std::string& what, const Tensor<float>& gradient, Tensor<double>& x,
                          const std::function<double()>& loss, double tolerance = 3e-5) {
  ASSERT_EQ(gradient.shape(), x.shape()) << what;
  const bool each = x.count() <= 48;
  Random random(123);
  for (Index n = 0; n < (each ? x.count() : 6); ++n) {
    Tensor<double> direction(x.shape());
    if (each)
      direction[n] = 1;
    else
      for (double& value : direction.values()) value = random.normal();
    const Tensor<double> before = x;
    const auto move = [&](double step) {
      for (Index i = 0; i < x.count(); ++i) x[i] = before[i] + step * direction[i];
      return loss();
    };
    constexpr double step = 1e-5;
    const double slope = (move(step) - move(-step)) / (2 * step);
    x = before;
    double got = 0, size = 0;
    for (Index i = 0; i < x.count(); ++i) {
      got += static_cast<double>(gradient[i]) * direction[i];
      size += std::abs(static_cast<double>(gradient[i]) * direction[i]);
    }
    ASSERT_NEAR(got, slope, tolerance * (1 + size)) << what << " " << n;
  }
}

}  // namespace regard::testing
