// Matrix products of the layers: oneDNN for float, plain loops for double. All
// matrices are packed row-major; bits do not depend on the number of threads.
#pragma once

#include "regard/view.h"

namespace regard::detail {

template <class T>
struct Matrix {
  T* data;
  Index rows, cols;
  Index stride;  // elements between rows
  Matrix(T* d, Index r, Index c) : data(d), rows(r), cols(c), stride(c) {}
  Matrix(T* d, Index r, Index c, Index s) : data(d), rows(r), cols(c), stride(s) {}
};

// c = a . b, or c += a . b
template <class T>
void multiply(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add = false);

// c = a . b^T, or c += a . b^T
template <class T>
void multiply_transposed(Matrix<const T> a, Matrix<const T> b, Matrix<T> c, bool add = false);

// c += a^T . b, summing over the rows of a and b: gradients of weights.
template <class T>
void add_transposed_product(Matrix<const T> a, Matrix<const T> b, Matrix<T> c);

// sums[j] += sum over rows of x(i, j), in an order that the number of threads
// does not change: gradients of biases.
template <class T>
void add_column_sums(Matrix<const T> x, T* sums);

}  // namespace regard::detail
