#include "nn/elementwise.h"

#include <cmath>

#include "core/instruction_sets.h"
#include "nn/node.h"

namespace regard::detail {

// ivdep: an array that is its own input would otherwise pass for one that
// overlaps, and the loop would stay scalar.

template <class T>
REGARD_EACH_INSTRUCTION_SET void sum(T* to, const T* a, const T* b, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void scale(T* values, T factor, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) values[i] *= factor;
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void multiply_by(T* values, const T* by, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) values[i] *= by[i];
}

template <class T>
REGARD_EACH_INSTRUCTION_SET T sum_of_squares(const T* values, Index count) {
  return blocked_sum<T>(count, [values](Index i) { return values[i] * values[i]; });
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void add_and_rectify(T* values, const T* bias, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) {
    const T value = values[i] + bias[i];
    values[i] = value > 0 ? value : T{0};
  }
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void rectify(T* values, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) values[i] = values[i] > 0 ? values[i] : T{0};
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void rectify_backward(T* dy, const T* y, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) dy[i] = y[i] > 0 ? dy[i] : T{0};
}

REGARD_EACH_INSTRUCTION_SET
void compare_halves(std::uint8_t* kept, const std::uint32_t* words, std::uint32_t threshold, Index word_count) {
#pragma GCC ivdep
  for (Index i = 0; i < word_count; ++i) {
    kept[2 * i] = (words[i] & 0xFFFFu) >= threshold;
    kept[2 * i + 1] = (words[i] >> 16) >= threshold;
  }
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void write_dropped(T* to, Dropped<T> from, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) {
    const T value = from.x[i] * from.factor;
    to[i] = from.kept[i] ? value : T{0};
  }
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void add_dropped(T* to, const T* base, Dropped<T> from, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) {
    const T value = from.x[i] * from.factor;
    to[i] = base[i] + (from.kept[i] ? value : T{0});
  }
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void add_rows(T* sums, const T* x, Index stride, Index rows, Index cols) {
  Index i = 0;
  // Four rows at a time: the sums are read and written once for them.
  for (; i + 4 <= rows; i += 4) {
    const T *a = x + i * stride, *b = a + stride, *c = b + stride, *d = c + stride;
#pragma GCC ivdep
    for (Index j = 0; j < cols; ++j) sums[j] = sums[j] + a[j] + b[j] + c[j] + d[j];
  }
  for (; i < rows; ++i) sum(sums, sums, x + i * stride, cols);
}

template <class T>
REGARD_EACH_INSTRUCTION_SET T normalise(T* normed, const T* x, T epsilon, Index width) {
  const T mean = blocked_sum<T>(width, [x](Index j) { return x[j]; }) / static_cast<T>(width);
  const T squares = blocked_sum<T>(width, [x, mean](Index j) { return (x[j] - mean) * (x[j] - mean); });
  const T inverse = T{1} / std::sqrt(squares / static_cast<T>(width) + epsilon);
#pragma GCC ivdep
  for (Index j = 0; j < width; ++j) normed[j] = (x[j] - mean) * inverse;
  return inverse;
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void scale_and_shift(T* y, const T* normed, const T* gain, const T* bias, Index width) {
#pragma GCC ivdep
  for (Index j = 0; j < width; ++j) y[j] = normed[j] * gain[j] + bias[j];
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void normalise_backward(T* dx, bool add, NormRow<T> row, Index width) {
  const T *const dy = row.dy, *const normed = row.normed, *const gain = row.gain;
  const T mean = blocked_sum<T>(width, [=](Index j) { return dy[j] * gain[j]; }) / static_cast<T>(width);
  const T moment = blocked_sum<T>(width, [=](Index j) { return dy[j] * gain[j] * normed[j]; }) / static_cast<T>(width);
#pragma GCC ivdep
  for (Index j = 0; j < width; ++j) {
    const T value = row.inverse * (dy[j] * gain[j] - mean - normed[j] * moment);
    dx[j] = add ? dx[j] + value : value;
  }
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void adamw_update(AdamWArrays<T> at, AdamWRates<T> by, Index count) {
#pragma GCC ivdep
  for (Index i = 0; i < count; ++i) {
    const T g = at.gradient[i];
    const T first = by.beta1 * at.first[i] + (T{1} - by.beta1) * g;
    const T second = by.beta2 * at.second[i] + (T{1} - by.beta2) * g * g;
    at.first[i] = first;
    at.second[i] = second;
    at.value[i] = by.keep * at.value[i] - by.rate * first / (std::sqrt(second) * by.root + by.epsilon);
    at.gradient[i] = T{0};
  }
}

#define REGARD_INSTANTIATE(T)                                             \
  template void sum(T*, const T*, const T*, Index);                       \
  template void scale(T*, T, Index);                                      \
  template void multiply_by(T*, const T*, Index);                         \
  template T sum_of_squares(const T*, Index);                             \
  template void add_and_rectify(T*, const T*, Index);                     \
  template void rectify(T*, Index);                                       \
  template void rectify_backward(T*, const T*, Index);                    \
  template void write_dropped(T*, Dropped<T>, Index);                     \
  template void add_dropped(T*, const T*, Dropped<T>, Index);             \
  template void add_rows(T*, const T*, Index, Index, Index);              \
  template T normalise(T*, const T*, T, Index);                           \
  template void scale_and_shift(T*, const T*, const T*, const T*, Index); \
  template void normalise_backward(T*, bool, NormRow<T>, Index);          \
  template void adamw_update(AdamWArrays<T>, AdamWRates<T>, Index);
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard::detail
