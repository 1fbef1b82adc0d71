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
// Rows of a register tile that is one vector wide.
constexpr int kTallTile = 12;

// Small loops over register arrays: left to itself the compiler keeps the
// arrays in memory on the way in and out.
#define REGARD_UNROLL _Pragma("GCC unroll 16")

// M rows x N vectors of c. UnitRow: the rows of a lie next to each other.
template <int M, int N, bool UnitRow, bool Accumulate>
HWY_NOINLINE void RegisterTile(const Product& p, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                               float* HWY_RESTRICT c) {
  const D d;
  const Index a_row = UnitRow ? 1 : p.a_row, a_depth = p.a_depth;
  V sum[M][N];
  REGARD_UNROLL for (int m = 0; m < M; ++m) REGARD_UNROLL for (int n = 0; n < N; ++n) sum[m][n] =
      Accumulate ? hn::LoadU(d, c + m * p.c_row + n * kLanes) : hn::Zero(d);
  const Index depth = p.depth;
  for (Index k = 0; k < depth; ++k) {
    V column[N];
    REGARD_UNROLL for (int n = 0; n < N; ++n) column[n] = hn::LoadU(d, b + n * kLanes);
    REGARD_UNROLL for (int m = 0; m < M; ++m) {
      const V row = hn::Set(d, a[m * a_row + k * a_depth]);
      REGARD_UNROLL for (int n = 0; n < N; ++n) sum[m][n] = hn::MulAdd(row, column[n], sum[m][n]);
    }
    b += p.b_depth;
  }
  REGARD_UNROLL for (int m = 0; m < M; ++m) REGARD_UNROLL for (int n = 0; n < N; ++n)
      hn::StoreU(sum[m][n], d, c + m * p.c_row + n * kLanes);
}

using TileFunction = void (*)(const Product&, const float*, const float*, float*);

template <int N, bool UnitRow, bool Accumulate, int... M>
constexpr std::array<TileFunction, sizeof...(M)> TileTable(std::integer_sequence<int, M...>) {
  return {&RegisterTile<M + 1, N, UnitRow, Accumulate>...};
}
template <int N, bool UnitRow, bool Accumulate>
constexpr auto kTiles =
    TileTable<N, UnitRow, Accumulate>(std::make_integer_sequence<int, N == 1 ? kTallTile : kRowTile>());

// Rows of one tile: as many as registers hold, but no short rest, which would
// wait for its own sums, if all rows lie at one stride.
template <int N>
HWY_INLINE Index RowsOfTile(const Product& p) {
  if (p.a_group != kRowTile * p.a_row) return kRowTile;
  constexpr Index most = N == 1 ? kTallTile : kRowTile;
  const Index tiles = (p.rows + most - 1) / most;
  return tiles == 0 ? most : (p.rows + tiles - 1) / tiles;
}

template <int N, bool UnitRow, bool Accumulate>
HWY_INLINE void RunColumns(const Product& p, Index col) {
  const float* b = p.b + col / kColumnTile * p.b_panel;
  const Index step = RowsOfTile<N>(p);
  for (Index row = 0; row < p.rows; row += step) {
    const Index count = std::min<Index>(step, p.rows - row);
    const float* a = p.a + row / kRowTile * p.a_group + row % kRowTile * p.a_row;
    kTiles<N, UnitRow, Accumulate>[static_cast<std::size_t>(count - 1)](p, a, b, p.c + row * p.c_row + col);
  }
}

template <bool UnitRow, bool Accumulate>
HWY_INLINE void RunProduct(const Product& p) {
  for (Index col = 0; col < p.cols; col += kColumnTile)
    p.cols - col <= kLanes ? RunColumns<1, UnitRow, Accumulate>(p, col) : RunColumns<2, UnitRow, Accumulate>(p, col);
}

void RunAnyProduct(const Product& p) {
  if (p.a_row == 1)
    p.accumulate ? RunProduct<true, true>(p) : RunProduct<true, false>(p);
  else
    p.accumulate ? RunProduct<false, true>(p) : RunProduct<false, false>(p);
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
          sum = hn::MulAdd(hn::Set(d, a[k * p.a_depth]), hn::LoadU(d, b + k * p.b_depth), sum);
      hn::StoreU(sum, d, c);
    }
  }
}

// f(column, lanes from there on) over `cols` columns in whole vectors, then g
// over the rest one by one.
template <class F, class G>
HWY_INLINE void ForColumns(Index cols, F f, G g) {
  Index j = 0;
  for (; j + kLanes <= cols; j += kLanes) f(j);
  for (; j < cols; ++j) g(j);
}

// A factor of 0 makes zeros of anything.
void ScaleRows(const float* from, Index from_stride, const StridedRows& to, const float* factors) {
  const D d;
  for (Index i = 0; i < to.rows; ++i) {
    const float* x = from + i * from_stride;
    float* y = to.data + i * to.stride;
    const float factor = factors[i];
    const V wide = hn::Set(d, factor);
    const auto nothing = hn::Eq(wide, hn::Zero(d));
    ForColumns(
        to.cols,
        [&](Index j)
            HWY_ATTR { hn::StoreU(hn::IfThenZeroElse(nothing, hn::Mul(hn::LoadU(d, x + j), wide)), d, y + j); },
        [&](Index j) { y[j] = factor == 0.0f ? 0.0f : x[j] * factor; });
  }
}

// An output of 0 takes no share of dout, not even of NaN: a row that sees no
// key leaves every gradient alone.
// The order of sums is the same for any strides.
void RowDots(const Matrix& out, const Matrix& dout, float* sums) {
  const D d;
  const auto load = [&](const Matrix& x, Index i, Index j) HWY_ATTR {
    const float* from = x.data + i * x.row_stride + j * x.depth_stride;
    if (x.depth_stride == 1) return hn::LoadU(d, from);
    HWY_ALIGN_MAX float lanes[kLanes];
    for (Index lane = 0; lane < kLanes; ++lane) lanes[lane] = from[lane * x.depth_stride];
    return hn::Load(d, lanes);
  };
  const Index whole = out.depth / kLanes * kLanes;
  for (Index i = 0; i < out.rows; ++i) {
    V sum = hn::Zero(d);
    for (Index j = 0; j < whole; j += kLanes) {
      const V value = load(out, i, j);
      sum = hn::Add(sum, hn::IfThenZeroElse(hn::Eq(value, hn::Zero(d)), hn::Mul(value, load(dout, i, j))));
    }
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (Index j = whole; j < out.depth; ++j) {
      const float value = out.data[i * out.row_stride + j * out.depth_stride];
      total += value == 0.0f ? 0.0f : value * dout.data[i * dout.row_stride + j * dout.depth_stride];
    }
    sums[i] = total;
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

bool AllFinite(const Matrix& x) {
  const D d;
  V bad = hn::Zero(d);  // 0 * x is 0 for every finite x
  bool finite = true;
  for (Index i = 0; i < x.rows; ++i) {
    const float* row = x.data + i * x.row_stride;
    const Index whole = x.depth_stride == 1 ? x.depth / kLanes * kLanes : 0;
    for (Index j = 0; j < whole; j += kLanes) bad = hn::MulAdd(hn::LoadU(d, row + j), hn::Zero(d), bad);
    for (Index j = whole; j < x.depth; ++j) finite &= IsFinite(row[j * x.depth_stride]);
  }
  return finite && hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// Four rows by up to eight depths, turned round within blocks of 128 bits;
// `bad` collects 0 * x, which is 0 for every finite x.
using DTurn = hn::CappedTag<float, 8>;
using VTurn = hn::Vec<DTurn>;
constexpr int kTurn = kLanes < 8 ? kLanes : 8;

HWY_INLINE void StoreTurned(VTurn v, float* to, Index width) {
  const hn::CappedTag<float, 4> d4;
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
  hn::StoreU(v, d4, to);
  (void)width;
#else
  hn::StoreU(hn::LowerHalf(d4, v), d4, to);
  hn::StoreU(hn::UpperHalf(d4, v), d4, to + 4 * width);
#endif
}

HWY_INLINE void TurnFour(const float* from, Index row_stride, VTurn scale, float* to, Index width, VTurn bad[2]) {
  const DTurn d;
  const VTurn zero = hn::Zero(d);
  const VTurn r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + row_stride);
  const VTurn r2 = hn::LoadU(d, from + 2 * row_stride), r3 = hn::LoadU(d, from + 3 * row_stride);
  bad[0] = hn::MulAdd(r2, zero, hn::MulAdd(r0, zero, bad[0]));
  bad[1] = hn::MulAdd(r3, zero, hn::MulAdd(r1, zero, bad[1]));
  const VTurn s0 = hn::Mul(r0, scale), s1 = hn::Mul(r1, scale), s2 = hn::Mul(r2, scale), s3 = hn::Mul(r3, scale);
  const VTurn a = hn::InterleaveLower(d, s0, s2), b = hn::InterleaveUpper(d, s0, s2);
  const VTurn c = hn::InterleaveLower(d, s1, s3), e = hn::InterleaveUpper(d, s1, s3);
  StoreTurned(hn::InterleaveLower(d, a, c), to, width);
  StoreTurned(hn::InterleaveUpper(d, a, c), to + width, width);
  StoreTurned(hn::InterleaveLower(d, b, e), to + 2 * width, width);
  StoreTurned(hn::InterleaveUpper(d, b, e), to + 3 * width, width);
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
  const DTurn d;
  const VTurn factor = hn::Set(d, scale);
  VTurn bad[2] = {hn::Zero(d), hn::Zero(d)};
  bool finite = true;
  Matrix group = from;
  for (Index row = 0; row < from.rows; row += width, to += width * from.depth) {
    const Index count = std::min(width, from.rows - row);
    group.data = from.data + row * from.row_stride;
    if (count < width) std::fill_n(to, width * from.depth, 0.0f);
    const Index fast_rows = from.depth_stride == 1 ? count / 4 * 4 : 0, fast_depth = from.depth / kTurn * kTurn;
    for (Index i = 0; i < fast_rows; i += 4)
      for (Index k = 0; k < fast_depth; k += kTurn)
        TurnFour(group.data + i * from.row_stride + k, from.row_stride, factor, to + k * width + i, width, bad);
    finite &= PackRows(group, 0, fast_rows, fast_depth, width, scale, to);
    finite &= PackRows(group, fast_rows, count, 0, width, scale, to);
  }
  return finite && hn::AllTrue(d, hn::Eq(hn::Add(bad[0], bad[1]), hn::Zero(d)));
}

// One row of `count` <= kColumnTile elements, element by element.
HWY_INLINE bool PackPanelRow(const float* source, Index depth_stride, Index count, float scale, float* to) {
  bool finite = true;
  for (Index i = 0; i < count; ++i) {
    to[i] = source[i * depth_stride] * scale;
    finite &= IsFinite(to[i]);
  }
  std::fill(to + count, to + kColumnTile, 0.0f);
  return finite;
}

bool PackPanels(const Matrix& from, float scale, float* HWY_RESTRICT to) {
  const D d;
  const V factor = hn::Set(d, scale);
  V bad0 = hn::Zero(d), bad1 = hn::Zero(d);  // x - x, which is 0 for every finite x
  bool finite = true;
  for (Index start = 0; start < from.depth; start += kColumnTile) {
    const Index count = std::min<Index>(kColumnTile, from.depth - start);
    const bool whole = count == kColumnTile && from.depth_stride == 1;
    const float* source = from.data + start * from.depth_stride;
    for (Index row = 0; row < from.rows; ++row, to += kColumnTile, source += from.row_stride) {
      if (!whole) {
        finite &= PackPanelRow(source, from.depth_stride, count, scale, to);
        continue;
      }
      const V first = hn::Mul(hn::LoadU(d, source), factor), second = hn::Mul(hn::LoadU(d, source + kLanes), factor);
      bad0 = hn::Add(bad0, hn::Sub(first, first));
      bad1 = hn::Add(bad1, hn::Sub(second, second));
      hn::StoreU(first, d, to);
      hn::StoreU(second, d, to + kLanes);
    }
  }
  return finite && hn::AllTrue(d, hn::Eq(hn::Add(bad0, bad1), hn::Zero(d)));
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
