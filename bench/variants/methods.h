// Everything that is timed: exact attention under masks, and the methods that
// change it, on the same random q, k and v.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard::bench {

// Independent standard normal numbers times `size`.
Tensor<float> normal(Shape shape, std::uint64_t seed, double size = 1);

// One batch entry of 8 heads of 64.
struct Problem {
  explicit Problem(Index length);
  Index length;
  Tensor<float> q, k, v, dout;
};

struct Method {
  std::string name;
  std::function<void(const Problem&)> forward;
  std::function<void(const Problem&)> both{};  // forward and backward; empty where there is no backward pass
  std::function<Mask(Index)> mask{};           // of exact attention at a length; empty for the rest
};

// Visible pairs over all pairs, of head 0.
double visible_share(const Mask& mask, Index length);

std::vector<Method> methods();
// The named ones, in that order; all where none are named. Throws ArgumentError
// for a name there is not.
std::vector<Method> methods_named(const std::vector<std::string>& names);

// The best time of one call, for each of them: in every round each method runs
// for a tenth of a second, or once, in turn with the others.
std::vector<double> best_milliseconds(const std::vector<std::function<void()>>& calls, int rounds);

}  // namespace regard::bench
