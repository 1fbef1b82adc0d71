#include "nn/matmul.h"

#include <algorithm>
#include <dnnl.hpp>
#include <vector>

#include "nn/elementwise.h"
#include "regard/error.h"
#include "regard/tensor.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// Rows of one piece of work. Pieces never depend on the number of threads.
constexpr Index piece_rows = 256;
Index piece_columns(Index columns) { return std::clamp<Index>(columns / 4, 64, 128); }

// c = op(a) . op(b) + beta * c on one thread.
void product(bool transpose_a, bool transpose_b, Matrix<const float> a, Matrix<const float> b, Matrix<float> c,
             bool add) {
  const Index depth = transpose_a ? a.rows : a.cols;
  if (c.rows == 0 || c.cols == 0) return;
  const auto status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', c.rows, c.cols, depth, 1.0f, a.data,
                                 a.stride, b.data, b.stride, add ? 1.0f : 0.0f, c.data, c.stride);
  if (status != dnnl_success) throw Error("matrix product of oneDNN failed");
}

void product(bool transpose_a, bool transpose_b, Matrix<const double> a, Matrix<const double> b, Matrix<double> c,
             bool add) {
  const Index depth = transpose_a ? a.rows : a.cols;
  for (Index i = 0; i < c.rows; ++i)
    for (Index j = 0; j < c.cols; ++j) {
      double sum = add ? c.data[i * c.stride + j] : 0.0;
      for (Index k = 0; k < depth; ++k)
        sum += a.data[transpose_a ? k * a.stride + i : i * a.stride + k] *
               b.data[transpose_b ? j * b.stride + k : k * b.stride + j];
      c.data[i * c.stride + j] = sum;
    }
}

template <class M>
M rows_of(M x, Index begin, Index end) {
  return {x.data + begin * x.stride, end - begin, x.cols, x.stride};
}

template <class M>
M columns_of(M x, Index begin, Index end) {
  return {x.data + begin, x.rows, end - begin, x.stride};
}

// Rows that start a multiple of 2 KiB apart share so few places in the cache that
// oneDNN's products take 1.5 times as long: those get a copy with gaps.
constexpr Index colliding_stride = 512, gap = 16;

template <class T>
Matrix<const T> without_collisions(Matrix<const T> x, AlignedVector<T>& place) {
  if (x.stride % colliding_stride != 0) return x;
  const Index stride = x.cols + gap;
  place.resize(static_cast<std::size_t>(x.rows * stride));
  for (Index i = 0; i < x.rows; ++i) std::copy_n(x.data + i * x.stride, x.cols, place.data() + i * stride);
  return {place.data(), x.rows, x.cols, stride};
}

// Fewer rows than this don't earn back a copy of the weights.
constexpr Index many_rows = 64;

}  // namespace

template <class T>
void multiply(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add) {
  AlignedVector<T> place;
  if (a.rows >= many_rows) b = without_collisions(b, place);
  parallel_ranges(a.rows, piece_rows, [&](Index begin, Index end) {
    product(false, false, rows_of(a, begin, end), b, rows_of(c, begin, end), add);
  });
}

template <class T>
void multiply_transposed(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add) {
  parallel_ranges(a.rows, piece_rows, [&](Index begin, Index end) {
    product(false, true, rows_of(a, begin, end), b, rows_of(c, begin, end), add);
  });
}

// Cut along the columns of the wider one.
template <class T>
void add_transposed_product(Matrix<const T> a, Matrix<const T> b, Matrix<T> c) {
  const bool cut_b = b.cols > a.cols;
  const Index columns = cut_b ? b.cols : a.cols;
  parallel_ranges(columns, piece_columns(columns), [&](Index begin, Index end) {
    AlignedVector<T> place;
    const auto mine = without_collisions(columns_of(cut_b ? b : a, begin, end), place);
    if (cut_b)
      product(true, false, a, mine, columns_of(c, begin, end), true);
    else
      product(true, false, mine, b, rows_of(c, begin, end), true);
  });
}

template <class T>
void add_column_sums(Matrix<const T> x, T* sums) {
  const Index pieces = (x.rows + piece_rows - 1) / piece_rows;
  std::vector<T> partial(static_cast<std::size_t>(pieces * x.cols), T{0});
  parallel_ranges(x.rows, piece_rows, [&](Index begin, Index end) {
    T* mine = partial.data() + begin / piece_rows * x.cols;
    add_rows(mine, x.data + begin * x.stride, x.stride, end - begin, x.cols);
  });
  for (Index piece = 0; piece < pieces; ++piece) sum(sums, sums, partial.data() + piece * x.cols, x.cols);
}

template void multiply(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void multiply(Matrix<const double>, Matrix<const double>, Matrix<double>, bool);
template void multiply_transposed(Matrix<const float>, Matrix<const float>, Matrix<float>, bool);
template void multiply_transposed(Matrix<const double>, Matrix<const double>, Matrix<double>, bool);
template void add_transposed_product(Matrix<const float>, Matrix<const float>, Matrix<float>);
template void add_transposed_product(Matrix<const double>, Matrix<const double>, Matrix<double>);
template void add_column_sums(Matrix<const float>, float*);
template void add_column_sums(Matrix<const double>, double*);

}  // namespace regard::detail
