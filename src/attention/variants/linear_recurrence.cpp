// Linear attention as a recurrence over a matrix of [key_dim, value_dim].
#include "attention/variants/linear_recurrence.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/variants/row_loops.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace detail {

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

template <class T>
void check_recurrence_gradients(const char* call, const Sizes& sizes, const View<const T, 4>& dout,
                                const View<const T, 4>& dstate) {
  check_equal(call, "dout", shape_of(dout), {sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  if (dstate.given())
    check_equal(call, "dstate", shape_of(dstate), {sizes.batch, sizes.kv_heads, sizes.head_dim, sizes.value_dim});
}

template Sizes check_recurrence(const char*, const RecurrenceInputs<float>&);
template Sizes check_recurrence(const char*, const RecurrenceInputs<double>&);
template void check_recurrence_gradients(const char*, const Sizes&, const View<const float, 4>&,
                                         const View<const float, 4>&);
template void check_recurrence_gradients(const char*, const Sizes&, const View<const double, 4>&,
                                         const View<const double, 4>&);

void RecurrenceState::start() {
  for (Index r = 0; r < sizes_.head_dim; ++r)
    for (Index d = 0; d < sizes_.value_dim; ++d) row(r)[d] = in_.state.given() ? in_.state(b_, h_, r, d) : 0.0f;
}

void RecurrenceState::decay(Index t) {
  if (!in_.decay.given()) return;
  const bool one = in_.decay.size(3) == 1;
  float factor = one ? std::exp(in_.decay(b_, h_, t, 0)) : 0.0f;
  for (Index r = 0; r < sizes_.head_dim; ++r) {
    if (!one) factor = std::exp(in_.decay(b_, h_, t, r));
    scale_row(row(r), factor, sizes_.value_dim);
  }
}

void RecurrenceState::add_token(Index t, float* error) {
  const Index width = sizes_.value_dim;
  for (Index d = 0; d < width; ++d) error[d] = in_.v(b_, h_, t, d);
  const float* update = error;
  if (in_.beta.given()) {
    for (Index r = 0; r < sizes_.head_dim; ++r) add_times(error, row(r), -in_.k(b_, h_, t, r), width);
    std::copy_n(error, width, update_.data());
    scale_row(update_.data(), beta_of(in_, b_, h_, t), width);
    update = update_.data();
  }
  for (Index r = 0; r < sizes_.head_dim; ++r) add_times(row(r), update, in_.k(b_, h_, t, r), width);
}

namespace {

// One key head, and the query heads that read its state.
void run_head(const RecurrenceInputs<float>& in, const Sizes& sizes, Index head, RecurrenceResult<float>& result) {
  const Index b = head / sizes.kv_heads, h = head % sizes.kv_heads, width = sizes.value_dim;
  RecurrenceState state(in, sizes, b, h, result.state.data() + head * sizes.head_dim * width);
  std::vector<float> error(static_cast<std::size_t>(width));
  const float scale = scale_of(in, sizes);
  state.start();
  for (Index t = 0; t < sizes.q_len; ++t) {
    state.decay(t);
    state.add_token(t, error.data());
    for (Index reader = h * sizes.group(); reader < (h + 1) * sizes.group(); ++reader) {
      float* to = result.out.data() + ((b * sizes.q_heads + reader) * sizes.q_len + t) * width;
      std::fill_n(to, width, 0.0f);
      for (Index r = 0; r < sizes.head_dim; ++r) add_times(to, state.row(r), scale * in.q(b, reader, t, r), width);
    }
  }
}

}  // namespace
}  // namespace detail

RecurrenceResult<float> linear_recurrence(const RecurrenceInputs<float>& inputs) {
  const auto sizes = detail::check_recurrence("linear_recurrence", inputs);
  RecurrenceResult<float> result{
      Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
      Tensor<float>::uninitialised({sizes.batch, sizes.kv_heads, sizes.head_dim, sizes.value_dim})};
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index head, int) { detail::run_head(inputs, sizes, head, result); });
  return result;
}

}  // namespace regard
