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
// One length a batch entry, or none at all.
void check_lengths(const char* call, const Sizes& sizes, std::span<const Index> lengths);
// int8 is for keys and values.
void check_types(const char* call, const InputView& q);

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

// Refuses outputs whose elements share memory (stride 0, overlapping rows), and
// types other than `dtype` and float.
void check_writable(const char* call, const char* name, const OutputView& out, DType dtype);

struct NamedOutput {
  const char* name;
  const OutputView& view;
};
// Refuses outputs of which two have an element in common. Each must be writable.
void check_apart(const char* call, std::initializer_list<NamedOutput> outputs);

struct NamedInput {
  const char* name;
  const InputView& view;
};
// Refuses an output that has an element in common with an input: it may be written
// before the input is read for the last time.
void check_apart(const char* call, const NamedOutput& output, std::initializer_list<NamedInput> inputs);

template <class T>
void check_options(const char* call, const Sizes& sizes, const BasicAttendOptions<T>& options) {
  check_facts(call, sizes,
              {&options.mask, &options.score, options.bias.sizes(), options.bias.given(), &options.q_start,
               options.sink.size(), options.kv_lengths, &options.observe,
               options.scale ? static_cast<double>(*options.scale) : 1.0, options.dropout.p});
}

template <class V>
Shape shape_of(const V& view) {
  return Shape(view.sizes().begin(), view.sizes().end());
}

// What a backward call gets from outside.
struct BackwardShapes {
  Shape dout, out, lse;
  Shape dlse;  // empty without one
};
void check_backward(const char* call, const Sizes& sizes, const BackwardShapes& given);

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
