#include "attention/variants/products.h"

#include <algorithm>

namespace regard::detail {
namespace {

// Depths of one pass over a panel: what stays in the first-level cache.
constexpr Index depth_block = 256;

kernels::Product product_of(Scratch& c, Index first, const kernels::Matrix& a, const PackedMatrix& b) {
  const kernels::Kernels& kernels = kernels::active();
  return {a.floats(),          a.row_stride, a.depth_stride, b.data(), b.depth() * kernels.column_tile,
          kernels.column_tile, c.row(first), c.stride(),     a.rows,   b.cols(),
          b.depth(),           false};
}

}  // namespace

void Scratch::resize(Index rows, Index cols) {
  rows_ = rows;
  cols_ = cols;
  stride_ = kernels::padded(std::max<Index>(cols, 1), 16);
  const auto wanted = static_cast<std::size_t>(rows * stride_);
  if (values_.size() < wanted) values_.resize(wanted);
}

void Scratch::zero() { std::fill_n(values_.begin(), rows_ * stride_, 0.0f); }

void PackedMatrix::pack(const kernels::Matrix& b, float scale) {
  const kernels::Kernels& kernels = kernels::active();
  depth_ = b.rows;
  cols_ = b.depth;
  const auto wanted = static_cast<std::size_t>(depth_ * kernels::padded(cols_, kernels.column_tile));
  if (values_.size() < wanted) values_.resize(wanted);
  const bool rows_lie_together = b.depth_stride == 1 || b.row_stride != 1;
  finite_ = rows_lie_together ? kernels.pack_panels(b, scale, values_.data())
                              : kernels.pack_interleaved(transposed(b), kernels.column_tile, scale, values_.data());
}

void multiply(Scratch& c, Index first, const kernels::Matrix& a, const PackedMatrix& b, Into into) {
  const kernels::Kernels& kernels = kernels::active();
  kernels::Product product = product_of(c, first, a, b);
  product.accumulate = into == Into::sum;
  if (b.depth() == 0 && into == Into::fresh)
    for (Index i = 0; i < a.rows; ++i) std::fill_n(c.row(first + i), c.stride(), 0.0f);
  for (Index k = 0; k < b.depth(); k += depth_block) {
    product.depth = std::min(depth_block, b.depth() - k);
    product.a = a.floats() + k * a.depth_stride;
    product.b = b.data() + k * kernels.column_tile;
    kernels.product(product);
    product.accumulate = true;
  }
}

void add_visible(Scratch& c, const kernels::Matrix& a, const PackedMatrix& b, const kernels::Selection& select) {
  kernels::Product product = product_of(c, 0, a, b);
  product.accumulate = true;
  kernels::active().product_selected(product, select);
}

void add_where_nonzero(Scratch& c, Index first, const kernels::Matrix& a, const PackedMatrix& b) {
  if (b.finite()) return multiply(c, first, a, b, Into::sum);
  std::vector<std::uint8_t> nonzero(static_cast<std::size_t>(a.rows * a.depth));
  for (Index i = 0; i < a.rows; ++i)
    for (Index k = 0; k < a.depth; ++k) nonzero[static_cast<std::size_t>(i * a.depth + k)] = element(a, i, k) != 0.0f;
  kernels::Product product = product_of(c, first, a, b);
  product.accumulate = true;
  kernels::active().product_selected(product, {nonzero.data(), a.depth, 1});
}

}  // namespace regard::detail
