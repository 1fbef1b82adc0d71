// The loops over plain arrays in which training spends its time outside matrix
// products, compiled once per instruction set (see core/instruction_sets.h). An
// array may be its own input; other overlaps are not foreseen.
#pragma once

#include <cstdint>

#include "regard/view.h"

namespace regard::detail {

// to = a + b
template <class T>
void sum(T* to, const T* a, const T* b, Index count);

// values *= factor
template <class T>
void scale(T* values, T factor, Index count);

// values *= by
template <class T>
void multiply_by(T* values, const T* by, Index count);

template <class T>
T sum_of_squares(const T* values, Index count);

// values = max(0, values + bias); NaN becomes 0.
template <class T>
void add_and_rectify(T* values, const T* bias, Index count);

// values = max(0, values)
template <class T>
void rectify(T* values, Index count);

// dy = 0 where y is not positive.
template <class T>
void rectify_backward(T* dy, const T* y, Index count);

// kept = half-words >= threshold, the low half of each word first; two a word.
void compare_halves(std::uint8_t* kept, const std::uint32_t* words, std::uint32_t threshold, Index word_count);

// What dropout leaves: kept ? x * factor : 0, whatever x holds.
template <class T>
struct Dropped {
  const T* x;
  const std::uint8_t* kept;
  T factor;
};

// to = dropped
template <class T>
void write_dropped(T* to, Dropped<T> from, Index count);

// to = base + dropped
template <class T>
void add_dropped(T* to, const T* base, Dropped<T> from, Index count);

// sums[j] += rows of x, one after the other.
template <class T>
void add_rows(T* sums, const T* x, Index stride, Index rows, Index cols);

// One row of LayerNorm: normed = (x - mean) / sqrt(variance + epsilon); returns
// 1 / sqrt(...).
template <class T>
T normalise(T* normed, const T* x, T epsilon, Index width);

// y = normed * gain + bias
template <class T>
void scale_and_shift(T* y, const T* normed, const T* gain, const T* bias, Index width);

// The way back of one row, with g = dy * gain: dx = inverse * (g - mean(g) -
// normed * mean(g normed)), written or added.
template <class T>
struct NormRow {
  const T *dy, *normed, *gain;
  T inverse;
};
template <class T>
void normalise_backward(T* dx, bool add, NormRow<T> row, Index width);

template <class T>
struct AdamWArrays {
  T *value, *gradient, *first, *second;
};
template <class T>
struct AdamWRates {
  T beta1, beta2, keep, rate, root, epsilon;
};
// Moments, then value = keep * value - rate * first / (sqrt(second) * root +
// epsilon); gradients become 0.
template <class T>
void adamw_update(AdamWArrays<T> at, AdamWRates<T> by, Index count);

}  // namespace regard::detail
