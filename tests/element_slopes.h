// Gradients in double held to central differences, element by element.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "regard/tensor.h"

namespace regard::testing {

// `loss()` reads x; the tolerance is relative to 1 + |slope|.
template <class Loss>
void expect_element_slopes(const std::string& what, const Tensor<double>& gradient, Tensor<double>& x, Loss loss,
                           double tolerance) {
  ASSERT_EQ(gradient.shape(), x.shape()) << what;
  constexpr double step = 1e-5;
  for (Index i = 0; i < x.count(); ++i) {
    const double before = x[i];
    x[i] = before + step;
    const double above = loss();
    x[i] = before - step;
    const double below = loss();
    x[i] = before;
    const double slope = (above - below) / (2 * step);
    ASSERT_NEAR(gradient[i], slope, tolerance * (1 + std::abs(slope))) << what << " at " << i;
  }
}

}  // namespace regard::testing
