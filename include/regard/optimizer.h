// AdamW, gradient clipping and learning-rate schedules.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/tape.h"

namespace regard {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-9;
  double weight_decay = 0.01;  // of parameters that decay, decoupled from the gradient
};

// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
template <class T>
class AdamW {
 public:
  explicit AdamW(Parameters<T> parameters, AdamWConfig config = {});

  // One step with this learning rate, then all gradients become 0.
  void step(double learning_rate);

  // Everything a checkpoint needs besides the parameters.
  std::int64_t steps = 0;
  std::vector<Tensor<T>> first_moments, second_moments;

  const Parameters<T>& parameters() const { return parameters_; }

 private:
  Parameters<T> parameters_;
  AdamWConfig config_;
};

// Scales all gradients so that their joint Euclidean norm is at most
// `largest`; returns the norm before. A norm that is not finite is returned
// with the gradients untouched: the caller decides.
template <class T>
double clip_gradients(const Parameters<T>& parameters, double largest);

enum class ScheduleKind { constant, inverse_sqrt, cosine };

// Learning rate over steps 1, 2, ...: rises in a line over `warmup` steps to
// `peak`, then stays (constant), falls with 1/sqrt(step) (Vaswani et al.,
// 2017) or along a half cosine to 0 at `total` steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double peak = 2e-3;
  std::int64_t warmup = 400;
  std::int64_t total = 0;  // cosine only
  double at(std::int64_t step) const;
};

}  // namespace regard
