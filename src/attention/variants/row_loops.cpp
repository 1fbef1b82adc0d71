#include "attention/variants/row_loops.h"

#include <algorithm>
#include <cmath>

#include "core/instruction_sets.h"

namespace regard::detail {
namespace {

constexpr Index size_lanes = 16;

}  // namespace

// ivdep: the compiler cannot see that rows do not overlap.

REGARD_EACH_INSTRUCTION_SET void scale_row(float* row, float factor, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) row[i] *= factor;
}

REGARD_EACH_INSTRUCTION_SET void add_times(float* to, const float* from, float factor, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] += factor * from[i];
}

REGARD_EACH_INSTRUCTION_SET void divided_row(float* to, const float* from, float divisor, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] = from[i] / divisor;
}

REGARD_EACH_INSTRUCTION_SET void add_row(float* to, const float* from, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] += from[i];
}

REGARD_EACH_INSTRUCTION_SET void add_to_row(float* to, float value, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] += value;
}

REGARD_EACH_INSTRUCTION_SET void subtract_row(float* to, const float* from, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] -= from[i];
}

REGARD_EACH_INSTRUCTION_SET void multiply_row(float* to, const float* from, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] *= from[i];
}

REGARD_EACH_INSTRUCTION_SET void raise_row(float* to, const float* from, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] = from[i] > to[i] ? from[i] : to[i];
}

REGARD_EACH_INSTRUCTION_SET void split_signs(float* row, float* above, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) {
    const float value = row[i];
    above[i] = value > 0.0f ? value : 0.0f;
    row[i] = value > 0.0f ? 0.0f : value;
  }
}

// `count` is a multiple of size_lanes.
REGARD_EACH_INSTRUCTION_SET void raise_to_sizes(float* sizes, const float* row, Index count) {
  for (Index first = 0; first < count; first += size_lanes)
#pragma GCC ivdep
#pragma GCC unroll 1  // unrolled, it would be one comparison after the other
    for (Index lane = 0; lane < size_lanes; ++lane) {
      const float size = std::abs(row[first + lane]);
      sizes[lane] = size > sizes[lane] ? size : sizes[lane];
    }
}

Index largest_of_both_signs(const float* row, Index count) {
  float sizes[size_lanes];
  std::fill_n(sizes, size_lanes, -1.0f);
  const Index whole = count / size_lanes * size_lanes;
  raise_to_sizes(sizes, row, whole);
  float largest = *std::max_element(sizes, sizes + size_lanes);
  for (Index i = whole; i < count; ++i) largest = std::abs(row[i]) > largest ? std::abs(row[i]) : largest;
  for (Index i = 0; i < count; ++i)
    if (row[i] == largest) return i;
  for (Index i = 0; i < count; ++i)
    if (row[i] == -largest) return count + i;
  return 0;
}

// Eight interleaved sums: a fixed order that becomes vectors.
template <class F>
REGARD_INLINE float in_eight_sums(Index count, F f) {
  float sums[8] = {};
  Index i = 0;
  for (; i + 8 <= count; i += 8)
    for (Index lane = 0; lane < 8; ++lane) sums[lane] += f(i + lane);
  for (; i < count; ++i) sums[i % 8] += f(i);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

REGARD_EACH_INSTRUCTION_SET float sum_row(const float* row, Index count) {
  return in_eight_sums(count, [row](Index i) { return row[i]; });
}

REGARD_EACH_INSTRUCTION_SET float sum_of_squares(const float* row, Index count) {
  return in_eight_sums(count, [row](Index i) { return row[i] * row[i]; });
}

REGARD_EACH_INSTRUCTION_SET float dot_rows(const float* a, const float* b, Index count) {
  return in_eight_sums(count, [a, b](Index i) { return a[i] * b[i]; });
}

}  // namespace regard::detail
