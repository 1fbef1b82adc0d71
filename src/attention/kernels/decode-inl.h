// Per-target include: few queries against many keys. Keys and values are read
// once, four rows side by side, where they lie; the bound is memory.
#if defined(REGARD_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_DECODE_INL_H_
#undef REGARD_DECODE_INL_H_
#else
#define REGARD_DECODE_INL_H_
#endif

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/product-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

// Queries that share one look at a key.
constexpr int kSharedRows = 4;

// Asks for the rows after the next few: hardware follows one stream of rows
// well, but not across the turns between keys and values.
constexpr Index kAhead = 16;
template <int Rows>
HWY_INLINE void AskAhead(const Matrix& x, Index column) {
  if (column % 16 != 0) return;
  REGARD_UNROLL for (int j = 0; j < Rows; ++j) hwy::Prefetch(x.data + (j + kAhead) * x.row_stride + column);
}

// scores[r, j] of Rows queries and Keys keys.
template <int Rows, int Keys>
HWY_INLINE void DotGroup(const Matrix& q, const Matrix& k, float* scores, Index stride) {
  const D d;
  V sum[Rows][Keys];
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) REGARD_UNROLL for (int j = 0; j < Keys; ++j) sum[r][j] = hn::Zero(d);
  for (Index i = 0; i < q.depth; i += kLanes) {
    AskAhead<Keys>(k, i);
    V key[Keys];
    REGARD_UNROLL for (int j = 0; j < Keys; ++j) key[j] = hn::LoadU(d, k.data + j * k.row_stride + i);
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
      const V query = hn::LoadU(d, q.data + r * q.row_stride + i);
      REGARD_UNROLL for (int j = 0; j < Keys; ++j) sum[r][j] = hn::MulAdd(query, key[j], sum[r][j]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) REGARD_UNROLL for (int j = 0; j < Keys; ++j) scores[r * stride + j] =
      hn::GetLane(hn::SumOfLanes(d, sum[r][j]));
}

// out[r] += sum over Keys keys of weights[r, j] * v[j].
template <int Rows, int Keys>
HWY_INLINE void WeighGroup(const float* weights, Index stride, const Matrix& v, float* out, Index out_stride) {
  const D d;
  for (Index i = 0; i < v.depth; i += kLanes) {
    AskAhead<Keys>(v, i);
    V value[Keys];
    REGARD_UNROLL for (int j = 0; j < Keys; ++j) value[j] = hn::LoadU(d, v.data + j * v.row_stride + i);
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
      V sum = hn::LoadU(d, out + r * out_stride + i);
      REGARD_UNROLL for (int j = 0; j < Keys; ++j) sum = hn::MulAdd(hn::Set(d, weights[r * stride + j]), value[j], sum);
      hn::StoreU(sum, d, out + r * out_stride + i);
    }
  }
}

// f<Rows>(first row) over groups of kSharedRows rows and the rest.
template <class F>
HWY_INLINE void ForRowGroups(Index rows, F f) {
  Index r = 0;
  for (; r + kSharedRows <= rows; r += kSharedRows) f(std::integral_constant<int, kSharedRows>(), r);
  for (; r + 2 <= rows; r += 2) f(std::integral_constant<int, 2>(), r);
  for (; r < rows; ++r) f(std::integral_constant<int, 1>(), r);
}

HWY_INLINE Matrix RowsFrom(const Matrix& x, Index row) {
  return {x.data + row * x.row_stride, x.rows - row, x.depth, x.row_stride, x.depth_stride};
}

void DotRows(const Matrix& q, const Matrix& k, const Tile& scores) {
  Index j = 0;
  for (; j + 4 <= k.rows; j += 4)
    ForRowGroups(q.rows, [&](auto rows, Index r) HWY_ATTR {
      DotGroup<decltype(rows)::value, 4>(RowsFrom(q, r), RowsFrom(k, j), scores.data + r * scores.stride + j,
                                         scores.stride);
    });
  for (; j < k.rows; ++j)
    ForRowGroups(q.rows, [&](auto rows, Index r) HWY_ATTR {
      DotGroup<decltype(rows)::value, 1>(RowsFrom(q, r), RowsFrom(k, j), scores.data + r * scores.stride + j,
                                         scores.stride);
    });
}

void WeighRows(const Tile& weights, const Matrix& v, float* out, Index out_stride) {
  Index j = 0;
  for (; j + 4 <= v.rows; j += 4)
    ForRowGroups(weights.rows, [&](auto rows, Index r) HWY_ATTR {
      WeighGroup<decltype(rows)::value, 4>(weights.data + r * weights.stride + j, weights.stride, RowsFrom(v, j),
                                           out + r * out_stride, out_stride);
    });
  for (; j < v.rows; ++j)
    ForRowGroups(weights.rows, [&](auto rows, Index r) HWY_ATTR {
      WeighGroup<decltype(rows)::value, 1>(weights.data + r * weights.stride + j, weights.stride, RowsFrom(v, j),
                                           out + r * out_stride, out_stride);
    });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
