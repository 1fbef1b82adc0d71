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

#include "attention/kernels/ahead.h"
#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/storage-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

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
// wait for its own sums.
template <int N>
HWY_INLINE Index RowsOfTile(Index rows) {
  constexpr Index most = N == 1 ? kTallTile : kRowTile;
  const Index tiles = (rows + most - 1) / most;
  return tiles == 0 ? most : (rows + tiles - 1) / tiles;
}

// Register tiles of a product of that shape.
Index ProductSteps(Index rows, Index cols) {
  const Index wide = RowsOfTile<2>(rows), tall = RowsOfTile<1>(rows);
  const Index last = cols % kColumnTile, narrow = last > 0 && last <= kLanes;
  return (cols / kColumnTile + (last > kLanes)) * ((rows + wide - 1) / wide) + narrow * ((rows + tall - 1) / tall);
}

template <int N, bool UnitRow, bool Accumulate>
HWY_INLINE void RunColumns(const Product& p, Index col) {
  const float* b = p.b + col / kColumnTile * p.b_panel;
  const float* a = p.a;
  float* c = p.c + col;
  const auto tile = [](Index rows) { return kTiles<N, UnitRow, Accumulate>[static_cast<std::size_t>(rows - 1)]; };
  const Index step = RowsOfTile<N>(p.rows), rest = p.rows % step;
  const Index a_step = step * p.a_row, c_step = step * p.c_row;
  const TileFunction whole = tile(step);
  for (Index row = step; row <= p.rows; row += step, a += a_step, c += c_step) {
    whole(p, a, b, c);
    if (p.ahead) p.ahead->step();
  }
  if (rest == 0) return;
  tile(rest)(p, a, b, c);
  if (p.ahead) p.ahead->step();
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
    const float* a = p.a + row * p.a_row;
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
template <class Out, class Dout>
HWY_INLINE float RowDot(const Matrix& out, const Matrix& dout, Index i) {
  const D d;
  const Index whole = out.depth / kLanes * kLanes;
  V sum = hn::Zero(d);
  for (Index j = 0; j < whole; j += kLanes) {
    const V value = LoadElements<Out>(out, i, j);
    sum = hn::Add(sum, hn::IfThenZeroElse(hn::Eq(value, hn::Zero(d)), hn::Mul(value, LoadElements<Dout>(dout, i, j))));
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (Index j = whole; j < out.depth; ++j) {
    const float value = OneElement<Out>(out, i, j);
    total += value == 0.0f ? 0.0f : value * OneElement<Dout>(dout, i, j);
  }
  return total;
}

void RowDots(const Matrix& out, const Matrix& dout, float* sums) {
  WithStorage(out, [&](auto outs) HWY_ATTR {
    WithStorage(dout, [&](auto douts) HWY_ATTR {
      for (Index i = 0; i < out.rows; ++i) sums[i] = RowDot<decltype(outs), decltype(douts)>(out, dout, i);
    });
  });
}

void AddRows(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index cols) {
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) to[i * to_stride + j] += from[i * from_stride + j];
}

bool AllFinite(const Matrix& x) {
  return WithStorage(x, [&](auto rows) HWY_ATTR {
    using Rows = decltype(rows);
    const D d;
    V bad = hn::Zero(d);  // 0 * x is 0 for every finite x
    bool finite = true;
    const Index whole = x.depth / kLanes * kLanes;
    for (Index i = 0; i < x.rows; ++i) {
      for (Index j = 0; j < whole; j += kLanes) bad = hn::MulAdd(LoadElements<Rows>(x, i, j), hn::Zero(d), bad);
      for (Index j = whole; j < x.depth; ++j) finite &= IsFinite(OneElement<Rows>(x, i, j));
    }
    return finite && hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
  });
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

// Four rows from `from` on times their factors.
template <class Rows>
HWY_INLINE void TurnFour(const typename Rows::T* from, Index row_stride, const VTurn factors[4], float* to, Index width,
                         VTurn bad[2]) {
  const DTurn d;
  const VTurn zero = hn::Zero(d);
  const VTurn s0 = hn::Mul(Rows::Load(d, from), factors[0]);
  const VTurn s1 = hn::Mul(Rows::Load(d, from + row_stride), factors[1]);
  const VTurn s2 = hn::Mul(Rows::Load(d, from + 2 * row_stride), factors[2]);
  const VTurn s3 = hn::Mul(Rows::Load(d, from + 3 * row_stride), factors[3]);
  bad[0] = hn::MulAdd(s2, zero, hn::MulAdd(s0, zero, bad[0]));
  bad[1] = hn::MulAdd(s3, zero, hn::MulAdd(s1, zero, bad[1]));
  const VTurn a = hn::InterleaveLower(d, s0, s2), b = hn::InterleaveUpper(d, s0, s2);
  const VTurn c = hn::InterleaveLower(d, s1, s3), e = hn::InterleaveUpper(d, s1, s3);
  StoreTurned(hn::InterleaveLower(d, a, c), to, width);
  StoreTurned(hn::InterleaveUpper(d, a, c), to + width, width);
  StoreTurned(hn::InterleaveLower(d, b, e), to + 2 * width, width);
  StoreTurned(hn::InterleaveUpper(d, b, e), to + 3 * width, width);
}

// Rows [first, last) of one panel, element by element.
template <class Rows>
HWY_INLINE bool PackRows(const Matrix& from, Index first, Index last, Index first_depth, Index width, float scale,
                         float* to) {
  bool finite = true;
  for (Index i = first; i < last; ++i) {
    const float factor = scale * ScaleOf<Rows>(from, i);
    const auto* row = RowOf<Rows>(from, i);
    for (Index k = first_depth; k < from.depth; ++k) {
      const float value = Rows::One(row[k * from.depth_stride]) * factor;
      finite &= IsFinite(value);
      to[k * width + i] = value;
    }
  }
  return finite;
}

template <class Rows>
HWY_INLINE bool PackInterleavedFrom(const Matrix& from, Index width, float scale, float* HWY_RESTRICT to) {
  const DTurn d;
  VTurn factors[4], bad[2] = {hn::Zero(d), hn::Zero(d)};
  REGARD_UNROLL for (int r = 0; r < 4; ++r) factors[r] = hn::Set(d, scale);
  bool finite = true;
  for (Index row = 0; row < from.rows; row += width, to += width * from.depth) {
    const Index count = std::min(width, from.rows - row);
    const Matrix group = rows_from(from, row);
    if (count < width) std::fill_n(to, width * from.depth, 0.0f);
    const Index fast_rows = from.depth_stride == 1 ? count / 4 * 4 : 0, fast_depth = from.depth / kTurn * kTurn;
    for (Index i = 0; i < fast_rows; i += 4) {
      if (Rows::kScaled)
        REGARD_UNROLL for (int r = 0; r < 4; ++r) factors[r] = hn::Set(d, scale * ScaleOf<Rows>(group, i + r));
      for (Index k = 0; k < fast_depth; k += kTurn)
        TurnFour<Rows>(RowOf<Rows>(group, i) + k, from.row_stride, factors, to + k * width + i, width, bad);
    }
    finite &= PackRows<Rows>(group, 0, fast_rows, fast_depth, width, scale, to);
    finite &= PackRows<Rows>(group, fast_rows, count, 0, width, scale, to);
  }
  return finite && hn::AllTrue(d, hn::Eq(hn::Add(bad[0], bad[1]), hn::Zero(d)));
}

bool PackInterleaved(const Matrix& from, Index width, float scale, float* to) {
  return WithStorage(from,
                     [&](auto rows) HWY_ATTR { return PackInterleavedFrom<decltype(rows)>(from, width, scale, to); });
}

// One row of `count` <= kColumnTile elements, element by element.
template <class Rows>
HWY_INLINE bool PackPanelRow(const typename Rows::T* source, Index depth_stride, Index count, float factor, float* to) {
  bool finite = true;
  for (Index i = 0; i < count; ++i) {
    to[i] = Rows::One(source[i * depth_stride]) * factor;
    finite &= IsFinite(to[i]);
  }
  std::fill(to + count, to + kColumnTile, 0.0f);
  return finite;
}

template <class Rows>
HWY_INLINE bool PackPanelsFrom(const Matrix& from, float scale, float* HWY_RESTRICT to) {
  const D d;
  V bad0 = hn::Zero(d), bad1 = hn::Zero(d);  // x - x, which is 0 for every finite x
  bool finite = true;
  for (Index start = 0; start < from.depth; start += kColumnTile) {
    const Index count = std::min<Index>(kColumnTile, from.depth - start);
    const bool whole = count == kColumnTile && from.depth_stride == 1;
    for (Index row = 0; row < from.rows; ++row, to += kColumnTile) {
      const auto* source = RowOf<Rows>(from, row) + start * from.depth_stride;
      const float factor = scale * ScaleOf<Rows>(from, row);
      if (!whole) {
        finite &= PackPanelRow<Rows>(source, from.depth_stride, count, factor, to);
        continue;
      }
      const V wide = hn::Set(d, factor);
      const V first = hn::Mul(Rows::Load(d, source), wide), second = hn::Mul(Rows::Load(d, source + kLanes), wide);
      bad0 = hn::Add(bad0, hn::Sub(first, first));
      bad1 = hn::Add(bad1, hn::Sub(second, second));
      hn::StoreU(first, d, to);
      hn::StoreU(second, d, to + kLanes);
    }
  }
  return finite && hn::AllTrue(d, hn::Eq(hn::Add(bad0, bad1), hn::Zero(d)));
}

bool PackPanels(const Matrix& from, float scale, float* to) {
  return WithStorage(from, [&](auto rows) HWY_ATTR { return PackPanelsFrom<decltype(rows)>(from, scale, to); });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
