#include "nn/matmul.h"

#include <dnnl.hpp>
#include <vector>

#include "regard/error.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// Rows of one piece of work. Pieces never depend on the number of threads.
constexpr Index piece_rows = 256;
constexpr Index piece_columns = 64;

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

}  // namespace

template <class T>
void multiply(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add) {
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

template <class T>
void add_transposed_product(Matrix<const T> a, Matrix<const T> b, Matrix<T> c) {
  parallel_ranges(a.cols, piece_columns, [&](Index begin, Index end) {
    product(true, false, columns_of(a, begin, end), b, rows_of(c, begin, end), true);
  });
}

template <class T>
void add_column_sums(Matrix<const T> x, T* sums) {
  const Index pieces = (x.rows + piece_rows - 1) / piece_rows;
  std::vector<T> partial(static_cast<std::size_t>(pieces * x.cols), T{0});
  parallel_ranges(x.rows, piece_rows, [&](Index begin, Index end) {
    T* mine = partial.data() + begin / piece_rows * x.cols;
    for (Index i = begin; i < end; ++i)
      for (Index j = 0; j < x.cols; ++j) mine[j] += x.data[i * x.stride + j];
  });
  for (Index piece = 0; piece < pieces; ++piece)
    for (Index j = 0; j < x.cols; ++j) sums[j] += partial[static_cast<std::size_t>(piece * x.cols + j)];
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
