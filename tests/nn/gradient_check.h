// Gradients of layers against central finite differences, in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "regard/random.h"
#include "regard/tape.h"

namespace regard::testing {

template <class T>
Tensor<T> random_tensor(Shape shape, std::uint64_t seed, double size = 1.0) {
  Random random(seed);
  Tensor<T> x(std::move(shape));
  for (T& value : x.values()) value = static_cast<T>(size * random.normal());
  return x;
}

// What is checked: outputs as a function of inputs; its weights are known by
// their pointers.
struct Checked {
  std::vector<Tensor<double>> inputs;
  Parameters<double> parameters;
  std::function<Var<double>(Tape<double>&, const std::vector<Var<double>>&)> forward;
};

constexpr std::uint64_t pass_seed = 17;  // one pass, one set of dropout masks

// sum(out * weights) for fixed weights: any gradient that is wrong shows.
inline double loss_of(const Checked& checked, bool backward, std::vector<Tensor<double>>* gradients = nullptr) {
  Tape<double> tape(true, pass_seed);
  std::vector<Var<double>> inputs;
  for (const auto& input : checked.inputs) inputs.push_back(tape.node(input));
  const auto out = checked.forward(tape, inputs);
  const auto weights = random_tensor<double>(out->value.shape(), 99);
  double loss = 0;
  for (Index i = 0; i < weights.count(); ++i) loss += weights[i] * out->value[i];
  if (!backward) return loss;
  for (auto* parameter : checked.parameters) parameter->gradient.fill(0);
  tape.backward(out, weights);
  for (const auto& input : inputs) gradients->push_back(input->gradient);
  return loss;
}

inline void expect_slopes(Checked& checked, Tensor<double>& values, const Tensor<double>& gradient,
                          const std::string& name) {
  ASSERT_EQ(gradient.shape(), values.shape()) << name;
  constexpr double step = 1e-5;
  for (Index i = 0; i < values.count(); ++i) {
    const double before = values[i];
    values[i] = before + step;
    const double above = loss_of(checked, false);
    values[i] = before - step;
    const double below = loss_of(checked, false);
    values[i] = before;
    const double slope = (above - below) / (2 * step);
    ASSERT_NEAR(gradient[i], slope, 2e-7 * (1 + std::abs(slope))) << name << " at " << i;
  }
}

inline void expect_exact_gradients(Checked checked) {
  std::vector<Tensor<double>> gradients;
  loss_of(checked, true, &gradients);
  for (std::size_t i = 0; i < checked.inputs.size(); ++i)
    expect_slopes(checked, checked.inputs[i], gradients[i], "input " + std::to_string(i));
  for (auto* parameter : checked.parameters)
    expect_slopes(checked, parameter->value, Tensor<double>(parameter->gradient), parameter->name);
}

// Weights of a layer, all nonzero: biases that start at 0 would hide faults.
template <class Layer>
Parameters<double> shaken_parameters(Layer& layer) {
  Parameters<double> list;
  layer.collect(list);
  Random random(5);
  for (auto* parameter : list)
    for (double& value : parameter->value.values()) value += 0.2 * random.normal();
  return list;
}

}  // namespace regard::testing
