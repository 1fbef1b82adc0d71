// Per-target include: the one matrix product behind scores, outputs and all
// gradients. A register tile of row_tile x 2 vectors accumulates over the
// depth in order, so an element's bits never depend on its neighbours.
#if defined(REGARD_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_PRODUCT_INL_H_
#undef REGARD_PRODUCT_INL_H_
#else
#define REGARD_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <array>
#include <utility>

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

constexpr int kLanes = HWY_LANES(float);
// 12 accumulators fit in 16 registers, 24 in the 32 of AVX-512.
#if HWY_TARGET == HWY_AVX3
constexpr int kRowTile = 12;
#else
constexpr int kRowTile = 6;
#endif
constexpr int kColumnTile = 2 * kLanes;

// M rows x N vectors of c. UnitRow: the rows of a lie next to each other.
template <int M, int N, bool UnitRow>
HWY_NOINLINE void RegisterTile(const Product& p, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                               float* HWY_RESTRICT c) {
  const D d;
  const Index a_row = UnitRow ? 1 : p.a_row, a_depth = p.a_depth;
  V sum[M][N];
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) sum[m][n] = p.accumulate ? hn::LoadU(d, c + m * p.c_row + n * kLanes) : hn::Zero(d);
  for (Index k = 0; k < p.depth; ++k) {
    V column[N];
    for (int n = 0; n < N; ++n) column[n] = hn::Load(d, b + k * kColumnTile + n * kLanes);
    for (int m = 0; m < M; ++m) {
      const V row = hn::Set(d, a[m * a_row + k * a_depth]);
      for (int n = 0; n < N; ++n) sum[m][n] = hn::MulAdd(row, column[n], sum[m][n]);
    }
  }
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) hn::StoreU(sum[m][n], d, c + m * p.c_row + n * kLanes);
}

using TileFunction = void (*)(const Product&, const float*, const float*, float*);

template <int N, bool UnitRow, int... M>
constexpr std::array<TileFunction, sizeof...(M)> TileTable(std::integer_sequence<int, M...>) {
  return {&RegisterTile<M + 1, N, UnitRow>...};
}
template <int N, bool UnitRow>
constexpr auto kTiles = TileTable<N, UnitRow>(std::make_integer_sequence<int, kRowTile>());

template <bool UnitRow>
HWY_INLINE void RunProduct(const Product& p) {
  for (Index col = 0; col < p.cols; col += kColumnTile) {
    const auto& tiles = p.cols - col <= kLanes ? kTiles<1, UnitRow> : kTiles<2, UnitRow>;
    const float* b = p.b + col / kColumnTile * p.b_panel;
    for (Index row = 0; row < p.rows; row += kRowTile) {
      const Index count = std::min<Index>(kRowTile, p.rows - row);
      tiles[static_cast<std::size_t>(count - 1)](p, p.a + row / kRowTile * p.a_group, b, p.c + row * p.c_row + col);
    }
  }
}

void RunAnyProduct(const Product& p) {
  if (p.a_row == 1)
    RunProduct<true>(p);
  else
    RunProduct<false>(p);
}

// Pair by pair, for the rare tiles that hold NaN or infinity behind a mask;
// the same order of sums as RegisterTile.
void RunSelectedProduct(const Product& p, const Selection& select) {
  const D d;
  for (Index row = 0; row < p.rows; ++row) {
    const float* a = p.a + row / kRowTile * p.a_group + row % kRowTile * p.a_row;
    for (Index col = 0; col < p.cols; col += kLanes) {
      const float* b = p.b + col / kColumnTile * p.b_panel + col % kColumnTile;
      float* c = p.c + row * p.c_row + col;
      V sum = p.accumulate ? hn::LoadU(d, c) : hn::Zero(d);
      for (Index k = 0; k < p.depth; ++k)
        if (select.visible[row * select.row_stride + k * select.depth_stride])
          sum = hn::MulAdd(hn::Set(d, a[k * p.a_depth]), hn::Load(d, b + k * kColumnTile), sum);
      hn::StoreU(sum, d, c);
    }
  }
}

void AddRows(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index cols) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) to[i * to_stride + j] += from[i * from_stride + j];
}

// All bits of the exponent set: infinity or NaN.
HWY_INLINE bool IsFinite(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return (bits & 0x7F800000u) != 0x7F800000u;
}

// Four rows by four depths, turned round in 128-bit registers; `bad` collects
// x - x, which is 0 for every finite x.
using D4 = hn::CappedTag<float, 4>;
using V4 = hn::Vec<D4>;
HWY_INLINE void TurnFour(const float* from, Index row_stride, V4 scale, float* to, Index width, V4& bad) {
  const D4 d;
  const V4 r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + row_stride);
  const V4 r2 = hn::LoadU(d, from + 2 * row_stride), r3 = hn::LoadU(d, from + 3 * row_stride);
  bad = hn::Add(bad, hn::Add(hn::Add(hn::Sub(r0, r0), hn::Sub(r1, r1)), hn::Add(hn::Sub(r2, r2), hn::Sub(r3, r3))));
  const V4 a = hn::InterleaveLower(d, r0, r2), b = hn::InterleaveUpper(d, r0, r2);
  const V4 c = hn::InterleaveLower(d, r1, r3), e = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::Mul(hn::InterleaveLower(d, a, c), scale), d, to);
  hn::StoreU(hn::Mul(hn::InterleaveUpper(d, a, c), scale), d, to + width);
  hn::StoreU(hn::Mul(hn::InterleaveLower(d, b, e), scale), d, to + 2 * width);
  hn::StoreU(hn::Mul(hn::InterleaveUpper(d, b, e), scale), d, to + 3 * width);
}

// Rows [first, last) of one group, element by element.
HWY_INLINE bool PackRows(const Matrix& from, Index first, Index last, Index first_depth, Index width, float scale,
                         float* to) {
  bool finite = true;
  for (Index i = first; i < last; ++i)
    for (Index k = first_depth; k < from.depth; ++k) {
      const float value = from.data[i * from.row_stride + k * from.depth_stride];
      finite &= IsFinite(value);
      to[k * width + i] = value * scale;
    }
  return finite;
}

bool PackInterleaved(const Matrix& from, Index width, float scale, float* HWY_RESTRICT to) {
  const D4 d;
  const V4 factor = hn::Set(d, scale);
  V4 bad = hn::Zero(d);
  bool finite = true;
  Matrix group = from;
  for (Index row = 0; row < from.rows; row += width, to += width * from.depth) {
    const Index count = std::min(width, from.rows - row);
    group.data = from.data + row * from.row_stride;
    if (count < width) std::fill_n(to, width * from.depth, 0.0f);
    const Index fast_rows = from.depth_stride == 1 ? count / 4 * 4 : 0, fast_depth = from.depth / 4 * 4;
    for (Index i = 0; i < fast_rows; i += 4)
      for (Index k = 0; k < fast_depth; k += 4)
        TurnFour(group.data + i * from.row_stride + k, from.row_stride, factor, to + k * width + i, width, bad);
    finite &= PackRows(group, 0, fast_rows, fast_depth, width, scale, to);
    finite &= PackRows(group, fast_rows, count, 0, width, scale, to);
  }
  return finite && hn::AllFalse(d, hn::Ne(bad, hn::Zero(d)));
}

bool PackPanels(const Matrix& from, float scale, float* HWY_RESTRICT to) {
  bool finite = true;
  for (Index start = 0; start < from.depth; start += kColumnTile) {
    const Index count = std::min<Index>(kColumnTile, from.depth - start);
    for (Index row = 0; row < from.rows; ++row, to += kColumnTile) {
      const float* source = from.data + row * from.row_stride + start * from.depth_stride;
      for (Index i = 0; i < count; ++i) {
        to[i] = source[i * from.depth_stride] * scale;
        finite &= IsFinite(to[i]);
      }
      for (Index i = count; i < kColumnTile; ++i) to[i] = 0.0f;
    }
  }
  return finite;
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
