#include "regard/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/node.h"

namespace regard {

template <class T>
AdamW<T>::AdamW(Parameters<T> parameters, AdamWConfig config) : parameters_(std::move(parameters)), config_(config) {
  for (const Parameter<T>* parameter : parameters_) {
    first_moments.emplace_back(parameter->value.shape());
    second_moments.emplace_back(parameter->value.shape());
  }
}

template <class T>
void AdamW<T>::step(double learning_rate) {
  ++steps;
  const double correction1 = 1.0 - std::pow(config_.beta1, static_cast<double>(steps));
  const double correction2 = 1.0 - std::pow(config_.beta2, static_cast<double>(steps));
  const T beta1 = static_cast<T>(config_.beta1), beta2 = static_cast<T>(config_.beta2);
  const T rate = static_cast<T>(learning_rate / correction1), epsilon = static_cast<T>(config_.epsilon);
  const T root = static_cast<T>(1.0 / std::sqrt(correction2));
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    Parameter<T>& parameter = *parameters_[p];
    const T keep = static_cast<T>(1.0 - (parameter.decays ? learning_rate * config_.weight_decay : 0.0));
    const detail::AdamWRates<T> rates{beta1, beta2, keep, rate, root, epsilon};
    parallel_ranges(parameter.value.count(), detail::element_grain, [&](Index begin, Index end) {
      detail::adamw_update<T>({parameter.value.data() + begin, parameter.gradient.data() + begin,
                               first_moments[p].data() + begin, second_moments[p].data() + begin},
                              rates, end - begin);
    });
  }
}

template <class T>
double clip_gradients(const Parameters<T>& parameters, double largest) {
  double squares = 0;
  for (const Parameter<T>* parameter : parameters) {
    const T* gradient = parameter->gradient.data();
    // Pieces keep the float sums short.
    for (Index begin = 0; begin < parameter->gradient.count(); begin += 1024) {
      const Index count = std::min<Index>(1024, parameter->gradient.count() - begin);
      squares += static_cast<double>(detail::sum_of_squares(gradient + begin, count));
    }
  }
  const double norm = std::sqrt(squares);
  if (!(norm > largest) || !std::isfinite(norm)) return norm;
  const T factor = static_cast<T>(largest / norm);
  for (Parameter<T>* parameter : parameters)
    detail::scale(parameter->gradient.data(), factor, parameter->gradient.count());
  return norm;
}

double Schedule::at(std::int64_t step) const {
  const double now = static_cast<double>(step), rise = std::max(1.0, static_cast<double>(warmup));
  if (step <= warmup) return peak * now / std::max(1.0, rise);
  switch (kind) {
    case ScheduleKind::constant: return peak;
    case ScheduleKind::inverse_sqrt: return peak * std::sqrt(std::max(1.0, rise) / now);
    case ScheduleKind::cosine: break;
  }
  const double span = std::max(1.0, static_cast<double>(total - warmup));
  return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, (now - rise) / span)));
}

template class AdamW<float>;
template class AdamW<double>;
template double clip_gradients(const Parameters<float>&, double);
template double clip_gradients(const Parameters<double>&, double);

}  // namespace regard
