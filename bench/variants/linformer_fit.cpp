#include "linformer_fit.h"

#include <algorithm>
#include <cmath>

#include "methods.h"
#include "regard/error.h"
#include "regard/linformer.h"
#include "regard/optimizer.h"

namespace regard::bench {
namespace {

constexpr std::int64_t fitting_steps = 200;

LinformerInputs<float> inputs_of(const Heads& x, const Tensor<float>& keys, const Tensor<float>& values) {
  return {x.q, x.k, x.v, {keys, values}};
}

// The same projection for each of `heads`.
Parameter<float> repeated(const Tensor<float>& projection, Index heads) {
  Parameter<float> parameter("projection", {heads, projection.size(1), projection.size(2)}, false);
  for (Index h = 0; h < heads; ++h)
    std::copy_n(projection.data(), projection.count(), parameter.value.data() + h * projection.count());
  return parameter;
}

void add_gradient(Parameter<float>& parameter, const Tensor<float>& gradient) {
  for (Index i = 0; i < gradient.count(); ++i) parameter.gradient[i] += gradient[i];
}

}  // namespace

Tensor<float> averaging_projection(Index slots, Index length) {
  if (slots < 1 || slots > length)
    throw ArgumentError("averaging_projection: " + std::to_string(slots) + " slots for " + std::to_string(length) +
                        " tokens");
  Tensor<float> projection({1, slots, length});
  for (Index slot = 0; slot < slots; ++slot) {
    const Index first = slot * length / slots, end = (slot + 1) * length / slots;
    for (Index token = first; token < end; ++token)
      projection[slot * length + token] = 1.0f / static_cast<float>(end - first);
  }
  return projection;
}

Tensor<float> random_projection(Index slots, Index length) {
  return normal({1, slots, length}, 21, 1 / std::sqrt(static_cast<double>(slots)));
}

Tensor<float> projected_attend(const Heads& x, const Projections& projections) {
  return linformer_attend(inputs_of(x, projections.keys, projections.values)).out;
}

Projections fitted_projections(Index slots, const Heads& training) {
  const Tensor<float> start = averaging_projection(slots, training.k.size(2));
  auto keys = repeated(start, training.k.size(1)), values = keys;
  AdamW<float> optimizer({&keys, &values});
  const Schedule schedule{.kind = ScheduleKind::cosine, .peak = 2e-2, .warmup = 20, .total = fitting_steps};
  const Tensor<float> exact = attend(training.q, training.k, training.v).out;
  for (std::int64_t step = 1; step <= fitting_steps; ++step) {
    const auto inputs = inputs_of(training, keys.value, values.value);
    const auto forward = linformer_attend(inputs);
    // The gradient of half the mean squared difference of a word.
    Tensor<float> dout = forward.out;
    for (Index i = 0; i < dout.count(); ++i) dout[i] = (dout[i] - exact[i]) / static_cast<float>(dout.size(0));
    const auto gradients = linformer_attend_backward(dout, inputs, forward);
    add_gradient(keys, gradients.dkeys);
    add_gradient(values, gradients.dvalues);
    optimizer.step(schedule.at(step));
  }
  return {keys.value, values.value};
}

}  // namespace regard::bench
