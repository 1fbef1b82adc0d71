// Gradient bookkeeping shared by the layers.
#pragma once

#include <algorithm>
#include <string>

#include "core/instruction_sets.h"
#include "nn/elementwise.h"
#include "regard/error.h"
#include "regard/tape.h"
#include "regard/threads.h"

namespace regard::detail {

// The gradient to write into, and whether something is there already: the
// first contribution writes, later ones add.
template <class T>
struct GradientSlot {
  T* data;
  bool add;
};

template <class T>
GradientSlot<T> gradient_slot(Node<T>& node) {
  const bool add = !node.gradient.empty();
  if (!add) node.gradient = Tensor<T>::uninitialised(node.value.shape());
  return {node.gradient.data(), add};
}

// Rows of the last axis.
template <class T>
Index row_count(const Tensor<T>& x) {
  return x.size(-1) == 0 ? 0 : x.count() / x.size(-1);
}

// `name` is the layer's, for the message.
inline void check_width(const std::string& name, const Shape& x, Index width) {
  if (x.empty() || x.back() != width)
    throw ArgumentError(name + ": input " + shape_text(x) + " has width " + std::to_string(x.empty() ? 0 : x.back()) +
                        " but the layer takes " + std::to_string(width));
}

inline Shape with_last(Shape shape, Index last) {
  shape.back() = last;
  return shape;
}

// Elements of one piece of element-wise work: large enough to be worth a
// thread's while.
constexpr Index element_grain = 32768;

// Sum of f(0) ... f(count - 1) in eight interleaved partial sums: a fixed order
// that compilers can turn into vectors.
template <class T, class F>
REGARD_INLINE T blocked_sum(Index count, F f) {
  T sums[8] = {};
  Index i = 0;
  for (; i + 8 <= count; i += 8)
    for (Index lane = 0; lane < 8; ++lane) sums[lane] += f(i + lane);
  for (; i < count; ++i) sums[i % 8] += f(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <class F>
void parallel_rows(Index rows, Index width, F work) {
  parallel_ranges(rows, std::max<Index>(1, element_grain / std::max<Index>(1, width)), work);
}

// y = x W^T, with x's elements read as rows of W's last size and y's, of `shape`, as
// rows of all its others: W may be [out, in], or [heads, dim, in] for heads side by side.
template <class T>
Var<T> project_rows(Tape<T>& tape, const Var<T>& x, Parameter<T>& weight, const Shape& shape);

// Adds a gradient that nobody else needs any more.
template <class T>
void pass_on(Node<T>& to, Tensor<T>&& gradient) {
  if (to.gradient.empty()) {
    to.gradient = std::move(gradient);
    return;
  }
  parallel_ranges(gradient.count(), element_grain, [&](Index begin, Index end) {
    sum(to.gradient.data() + begin, to.gradient.data() + begin, gradient.data() + begin, end - begin);
  });
}

}  // namespace regard::detail
