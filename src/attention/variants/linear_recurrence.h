// What the passes of the recurrence share: checks, and one key head's state as it
// goes from token to token.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "regard/linear_recurrence.h"

namespace regard::detail {

// Throws ArgumentError beginning with `call`.
template <class T>
Sizes check_recurrence(const char* call, const RecurrenceInputs<T>& in);
template <class T>
void check_recurrence_gradients(const char* call, const Sizes& sizes, const View<const T, 4>& dout,
                                const View<const T, 4>& dstate);

template <class T>
T scale_of(const RecurrenceInputs<T>& in, const Sizes& sizes) {
  return in.scale ? *in.scale : static_cast<T>(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
}
// beta and decay may serve many heads or all of key_dim.
template <class T>
T beta_of(const RecurrenceInputs<T>& in, Index b, Index h, Index t) {
  return in.beta(b, in.beta.size(1) == 1 ? 0 : h, t);
}
template <class T>
T decay_of(const RecurrenceInputs<T>& in, const std::array<Index, 3>& token, Index r) {
  return in.decay(token[0], token[1], token[2], in.decay.size(3) == 1 ? 0 : r);
}

class RecurrenceState {
 public:
  // `state` [key_dim, value_dim] is memory of the caller's.
  RecurrenceState(const RecurrenceInputs<float>& in, const Sizes& sizes, Index b, Index h, float* state)
      : in_(in), sizes_(sizes), b_(b), h_(h), state_(state), update_(static_cast<std::size_t>(sizes.value_dim)) {}

  float* row(Index r) { return state_ + r * sizes_.value_dim; }
  void start();
  void decay(Index t);
  // The token joins; `error` [value_dim] becomes v, or v - S^T k under the delta rule.
  void add_token(Index t, float* error);

 private:
  const RecurrenceInputs<float>& in_;
  const Sizes& sizes_;
  Index b_, h_;
  float* state_;
  std::vector<float> update_;
};

}  // namespace regard::detail
