// One call's sizes and checked options: what kernels, reference and plan start
// from, so that all of them refuse the same input with the same words.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string>

#include "regard/attend.h"

namespace regard::detail {

struct Sizes {
  Index batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, value_dim = 0;
  Index group() const { return kv_heads == 0 ? 1 : q_heads / kv_heads; }
};

using Sizes4 = std::array<Index, 4>;

// Throws ArgumentError beginning with `call`.
Sizes check_shapes(const char* call, const Sizes4& q, const Sizes4& k, const Sizes4& v);

// The part of the options that does not depend on the number type.
struct OptionFacts {
  const Mask* mask;
  const ScoreModifiers* score;
  Sizes4 bias;
  bool has_bias;
  const QueryStart* q_start;
  std::size_t sinks;
  std::span<const Index> kv_lengths;
  const Observe* observe;
  double scale;
  double dropout;
};
void check_facts(const char* call, const Sizes& sizes, const OptionFacts& facts);
void check_differentiable(const char* call, const ScoreModifiers& score);
// A tensor that must have exactly these sizes.
void check_equal(const char* call, const char* name, const Shape& got, const Shape& wanted);

// Refuses outputs whose elements share memory (stride 0, overlapping rows).
void check_writable(const char* call, const char* name, const View<float, 4>& out);

struct NamedOutput {
  const char* name;
  const View<float, 4>& view;
};
// Refuses outputs of which two have an element in common. Each must be writable.
void check_apart(const char* call, std::initializer_list<NamedOutput> outputs);

template <class T>
void check_options(const char* call, const Sizes& sizes, const BasicAttendOptions<T>& options) {
  check_facts(call, sizes,
              {&options.mask, &options.score, options.bias.sizes(), options.bias.given(), &options.q_start,
               options.sink.size(), options.kv_lengths, &options.observe,
               options.scale ? static_cast<double>(*options.scale) : 1.0, options.dropout.p});
}

template <class T, int Rank>
Shape shape_of(const View<T, Rank>& view) {
  return Shape(view.sizes().begin(), view.sizes().end());
}

template <class T>
void check_backward(const char* call, const Sizes& sizes, const View<const T, 4>& dout, const BasicForward<T>& forward,
                    const View<const T, 3>& dlse) {
  const Shape out{sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim};
  const Shape rows{sizes.batch, sizes.q_heads, sizes.q_len};
  check_equal(call, "dout", shape_of(dout), out);
  check_equal(call, "forward.out", shape_of(forward.out), out);
  check_equal(call, "forward.lse", shape_of(forward.lse), rows);
  if (dlse.given()) check_equal(call, "dlse", shape_of(dlse), rows);
}

template <class T>
T scale_of(const BasicAttendOptions<T>& options, const Sizes& sizes) {
  return options.scale ? *options.scale : static_cast<T>(1.0 / std::sqrt(static_cast<double>(sizes.head_dim)));
}

// Axes of size 1 read their one element everywhere.
template <class T>
View<T, 4> broadcast(const View<T, 4>& view) {
  auto strides = view.strides();
  for (int axis = 0; axis < 4; ++axis)
    if (view.size(axis) == 1) strides[static_cast<std::size_t>(axis)] = 0;
  return {view.data(), view.sizes(), strides};
}

template <class T>
Index length_of(const BasicAttendOptions<T>& options, const Sizes& sizes, Index batch) {
  return options.kv_lengths.empty() ? sizes.kv_len : options.kv_lengths[static_cast<std::size_t>(batch)];
}

}  // namespace regard::detail
