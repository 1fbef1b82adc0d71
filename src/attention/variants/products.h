// Matrix products of the variants: the kernels' one product with its packing
// and blocking around it, over scratch matrices that have room for whole vectors.
#pragma once

#include <algorithm>

#include "attention/kernels/kernels.h"
#include "regard/tensor.h"

namespace regard::detail {

// Row-major scratch; rows start on a cache line and may be written to the end of
// their last vector.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Index rows, Index cols) { resize(rows, cols); }
  // Contents are undefined afterwards.
  void resize(Index rows, Index cols);
  void zero();

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  Index stride() const { return stride_; }
  float* row(Index i) { return values_.data() + i * stride_; }
  const float* row(Index i) const { return values_.data() + i * stride_; }
  // Rows [first, first + count) as the operand of a product.
  kernels::Matrix matrix(Index first, Index count) const { return {row(first), count, cols_, stride_, 1}; }
  kernels::Matrix matrix() const { return matrix(0, rows_); }

 private:
  AlignedVector<float> values_;
  Index rows_ = 0, cols_ = 0, stride_ = 0;
};

inline float element(const kernels::Matrix& x, Index i, Index k) {
  return x.floats()[i * x.row_stride + k * x.depth_stride];
}

// Row i, its depth numbers side by side.
inline void copy_row(const kernels::Matrix& x, Index i, float* to) {
  const float* from = x.floats() + i * x.row_stride;
  if (x.depth_stride == 1)
    std::copy_n(from, x.depth, to);
  else
    for (Index k = 0; k < x.depth; ++k) to[k] = from[k * x.depth_stride];
}

inline kernels::Matrix transposed(const kernels::Matrix& x) {
  return {x.data, x.depth, x.rows, x.depth_stride, x.row_stride};
}

// The right-hand side of a product, packed.
class PackedMatrix {
 public:
  // b [depth, cols], times `scale`.
  void pack(const kernels::Matrix& b, float scale = 1.0f);
  Index depth() const { return depth_; }
  Index cols() const { return cols_; }
  const float* data() const { return values_.data(); }
  // Whether every element packed last was finite.
  bool finite() const { return finite_; }

 private:
  AlignedVector<float> values_;
  Index depth_ = 0, cols_ = 0;
  bool finite_ = true;
};

enum class Into { fresh, sum };  // overwrite, or add to what is there

// Rows [first, first + a.rows) of c (+)= a . b; a of any strides.
void multiply(Scratch& c, Index first, const kernels::Matrix& a, const PackedMatrix& b, Into into);
inline void multiply(Scratch& c, const kernels::Matrix& a, const PackedMatrix& b, Into into = Into::fresh) {
  multiply(c, 0, a, b, into);
}

// Adds a . b without the pairs (row, depth) whose `visible` byte is 0.
void add_visible(Scratch& c, const kernels::Matrix& a, const PackedMatrix& b, const kernels::Selection& select);

// Adds a . b; where b is not all finite, zeros of a take nothing from it: a
// hidden pair's weight is 0 and must not meet a NaN.
void add_where_nonzero(Scratch& c, Index first, const kernels::Matrix& a, const PackedMatrix& b);

}  // namespace regard::detail
