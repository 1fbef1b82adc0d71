// Linear attention as a recurrence over a matrix of [key_dim, value_dim].
#include "regard/linear_recurrence.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "attention/variants/row_loops.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace detail {

namespace {

template <class T>
Sizes check_recurrence(const char* call, const RecurrenceInputs<T>& in) {
  const Sizes sizes = check_shapes(call, in.q.sizes(), in.k.sizes(), in.v.sizes());
  const auto refuse = [&](const std::string& what) { throw ArgumentError(std::string(call) + ": " + what); };
  if (sizes.q_len != sizes.kv_len)
    refuse("q has length " + std::to_string(sizes.q_len) + " but k has " + std::to_string(sizes.kv_len) + " (q " +
           in.q.text() + ", k " + in.k.text() + ")");
  if (in.decay.given() && in.decay.size(3) != 1) check_equal(call, "decay", shape_of(in.decay), shape_of(in.k));
  if (in.decay.given() && in.decay.size(3) == 1)
    check_equal(call, "decay", shape_of(in.decay), {sizes.batch, sizes.kv_heads, sizes.kv_len, 1});
  if (in.beta.given())
    check_equal(call, "beta", shape_of(in.beta),
                {sizes.batch, in.beta.size(1) == 1 ? 1 : sizes.kv_heads, sizes.kv_len});
  if (in.state.given())
    check_equal(call, "state", shape_of(in.state), {sizes.batch, sizes.kv_heads, sizes.head_dim, sizes.value_dim});
  return sizes;
}

// One key head: its state and the query heads that read it.
template <class T>
class Recurrence {
 public:
  Recurrence(const RecurrenceInputs<T>& in, const Sizes& sizes, RecurrenceResult<T>& result)
      : in_(in), sizes_(sizes), result_(result), update_(static_cast<std::size_t>(sizes.value_dim)) {
    scale_ = in.scale ? *in.scale : static_cast<T>(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
  }

  void run(Index b, Index h) {
    state_ = result_.state.data() + (b * sizes_.kv_heads + h) * sizes_.head_dim * sizes_.value_dim;
    for (Index r = 0; r < sizes_.head_dim; ++r)
      for (Index d = 0; d < sizes_.value_dim; ++d) row(r)[d] = in_.state.given() ? in_.state(b, h, r, d) : T{0};
    for (Index t = 0; t < sizes_.q_len; ++t) {
      decay(b, h, t);
      add_token(b, h, t);
      for (Index head = h * sizes_.group(); head < (h + 1) * sizes_.group(); ++head) read(b, head, t);
    }
  }

 private:
  T* row(Index r) { return state_ + r * sizes_.value_dim; }

  void decay(Index b, Index h, Index t) {
    if (!in_.decay.given()) return;
    const bool one = in_.decay.size(3) == 1;
    T factor = one ? std::exp(in_.decay(b, h, t, 0)) : T{0};
    for (Index r = 0; r < sizes_.head_dim; ++r) {
      if (!one) factor = std::exp(in_.decay(b, h, t, r));
      scale_row(row(r), factor, sizes_.value_dim);
    }
  }

  void add_token(Index b, Index h, Index t) {
    for (Index d = 0; d < sizes_.value_dim; ++d) update_[static_cast<std::size_t>(d)] = in_.v(b, h, t, d);
    if (in_.beta.given()) {
      for (Index r = 0; r < sizes_.head_dim; ++r)
        add_times(update_.data(), row(r), -in_.k(b, h, t, r), sizes_.value_dim);
      scale_row(update_.data(), in_.beta(b, in_.beta.size(1) == 1 ? 0 : h, t), sizes_.value_dim);
    }
    for (Index r = 0; r < sizes_.head_dim; ++r) add_times(row(r), update_.data(), in_.k(b, h, t, r), sizes_.value_dim);
  }

  void read(Index b, Index head, Index t) {
    T* to = result_.out.data() + ((b * sizes_.q_heads + head) * sizes_.q_len + t) * sizes_.value_dim;
    std::fill_n(to, sizes_.value_dim, T{0});
    for (Index r = 0; r < sizes_.head_dim; ++r) add_times(to, row(r), scale_ * in_.q(b, head, t, r), sizes_.value_dim);
  }

  const RecurrenceInputs<T>& in_;
  const Sizes& sizes_;
  RecurrenceResult<T>& result_;
  T scale_{};
  T* state_ = nullptr;
  std::vector<T> update_;
};

template <class T>
RecurrenceResult<T> run_recurrence(const char* call, const RecurrenceInputs<T>& in) {
  const Sizes sizes = check_recurrence(call, in);
  RecurrenceResult<T> result{Tensor<T>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
                             Tensor<T>::uninitialised({sizes.batch, sizes.kv_heads, sizes.head_dim, sizes.value_dim})};
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index item, int) {
    Recurrence<T>(in, sizes, result).run(item / sizes.kv_heads, item % sizes.kv_heads);
  });
  return result;
}

}  // namespace

}  // namespace detail

RecurrenceResult<float> linear_recurrence(const RecurrenceInputs<float>& inputs) {
  return detail::run_recurrence("linear_recurrence", inputs);
}

namespace reference {
RecurrenceResult<double> linear_recurrence(const RecurrenceInputs<double>& inputs) {
  return detail::run_recurrence("reference::linear_recurrence", inputs);
}
}  // namespace reference

}  // namespace regard
