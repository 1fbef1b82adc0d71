// Gradients of layers against central finite differences, in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "element_slopes.h"
#include "regard/random.h"
#include "regard/tape.h"
#include "regard/threads.h"

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

inline void expect_exact_gradients(Checked checked) {
  std::vector<Tensor<double>> gradients;
  loss_of(checked, true, &gradients);
  const auto loss = [&] { return loss_of(checked, false); };
  for (std::size_t i = 0; i < checked.inputs.size(); ++i)
    expect_element_slopes("input " + std::to_string(i), gradients[i], checked.inputs[i], loss, 2e-7);
  for (auto* parameter : checked.parameters)
    expect_element_slopes(parameter->name, Tensor<double>(parameter->gradient), parameter->value, loss, 2e-7);
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

// Output and every gradient of one training step of the layer that `make` gives,
// on one thread and on several.
template <class Make>
void expect_same_step_on_any_threads(const Shape& input, Make make) {
  const auto run = [&](int count) {
    set_threads(count);
    auto layer = make();
    Parameters<float> parameters;
    layer.collect(parameters);
    Tape<float> tape(true, 3);
    const auto x = tape.node(random_tensor<float>(input, 2));
    const auto y = layer.forward(tape, x);
    tape.backward(y, random_tensor<float>(y->value.shape(), 4));
    std::vector<float> bits(y->value.values().begin(), y->value.values().end());
    bits.insert(bits.end(), x->gradient.values().begin(), x->gradient.values().end());
    for (auto* p : parameters) bits.insert(bits.end(), p->gradient.values().begin(), p->gradient.values().end());
    set_threads(0);
    return bits;
  };
  const auto one = run(1);
  EXPECT_EQ(run(2), one);
  EXPECT_EQ(run(3), one);
}

}  // namespace regard::testing
