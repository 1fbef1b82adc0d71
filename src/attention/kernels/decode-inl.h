// Per-target include: few queries against many keys. Keys and values are read
// once, where they lie and as they are stored; the bound is memory.
#if defined(REGARD_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_DECODE_INL_H_
#undef REGARD_DECODE_INL_H_
#else
#define REGARD_DECODE_INL_H_
#endif

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/product-inl.h"
#include "attention/kernels/storage-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

// Accumulators of one step: enough independent sums to keep the multiply-add
// units busy, few enough to stay in registers.
constexpr int kSums = 8;

// Asks for the rows that come a while after `first`, line by line in the order of
// memory: hardware does not follow rows across the turns between keys and
// values, and several rows side by side are no stream to it.
constexpr Index kAhead = 2 * kSums;
template <class T>
HWY_INLINE void AskAhead(const T* first, Index row_stride, Index depth) {
  for (int j = 0; j < kSums; ++j)
    for (Index i = 0; i < depth; i += static_cast<Index>(64 / sizeof(T)))
      hwy::Prefetch(first + (kAhead + j) * row_stride + i);
}

// The sums over lanes of four vectors, each in the same order of additions.
HWY_INLINE void SumsOfFour(V a, V b, V c, V e, float* sums) {
  const D d;
  const V ac = hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));
  const V be = hn::Add(hn::InterleaveLower(d, b, e), hn::InterleaveUpper(d, b, e));
  const V all = hn::Add(hn::InterleaveLower(d, ac, be), hn::InterleaveUpper(d, ac, be));
  HWY_ALIGN_MAX float lanes[kLanes];
  hn::Store(all, d, lanes);
  for (int sum = 0; sum < 4; ++sum) {
    float total = lanes[sum];
    for (int block = 4; block < kLanes; block += 4) total += lanes[block + sum];
    sums[sum] = total;
  }
}

// scores[r, j] of Rows queries and Keys keys from `first` on.
template <class Stored, int Rows, int Keys>
HWY_INLINE void DotGroup(const Matrix& q, const Matrix& k, Index first, float* scores, Index stride) {
  static_assert(Rows * Keys <= kSums);
  const D d;
  const float* queries = q.floats();
  const typename Stored::T* keys = RowOf<Stored>(k, first);
  V sum[kSums];
  REGARD_UNROLL for (int n = 0; n < kSums; ++n) sum[n] = hn::Zero(d);
  for (Index i = 0; i < q.depth; i += kLanes) {
    V query[Rows];
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) query[r] = hn::LoadU(d, queries + r * q.row_stride + i);
    REGARD_UNROLL for (int j = 0; j < Keys; ++j) {
      const V key = Stored::Load(d, keys + j * k.row_stride + i);
      REGARD_UNROLL for (int r = 0; r < Rows; ++r) sum[r * Keys + j] = hn::MulAdd(query[r], key, sum[r * Keys + j]);
    }
  }
  float sums[kSums];
  SumsOfFour(sum[0], sum[1], sum[2], sum[3], sums);
  if (Rows * Keys > 4) SumsOfFour(sum[4], sum[5], sum[6], sum[7], sums + 4);
  REGARD_UNROLL for (int j = 0; j < Keys; ++j) {
    const float scale = ScaleOf<Stored>(k, first + j);
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) scores[r * stride + first + j] =
        Stored::kScaled ? sums[r * Keys + j] * scale : sums[r * Keys + j];
  }
}

template <class Stored, int Rows>
HWY_INLINE void DotKeys(const Matrix& q, const Matrix& k, float* scores, Index stride) {
  constexpr int kKeys = kSums / Rows;
  Index j = 0;
  for (; j + kKeys <= k.rows; j += kKeys) DotGroup<Stored, Rows, kKeys>(q, k, j, scores, stride);
  for (; j < k.rows; ++j) DotGroup<Stored, Rows, 1>(q, k, j, scores, stride);
}

// Two vectors of columns of out[r] += sum of weights[r, j] * v[j] over the keys
// [first, first + Keys).
template <class Stored, int Rows, int Keys, int Columns>
HWY_INLINE void WeighColumns(const float* weights, Index stride, const Matrix& v, Index first, Index column, float* out,
                             Index out_stride) {
  const D d;
  V sum[Rows][Columns];
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) REGARD_UNROLL for (int c = 0; c < Columns; ++c) sum[r][c] =
      hn::LoadU(d, out + r * out_stride + column + c * kLanes);
  const typename Stored::T* values = RowOf<Stored>(v, first) + column;
  REGARD_UNROLL for (int j = 0; j < Keys; ++j) {
    V value[Columns];
    REGARD_UNROLL for (int c = 0; c < Columns; ++c) value[c] = Stored::Load(d, values + j * v.row_stride + c * kLanes);
    if (Stored::kScaled) {
      const V scale = hn::Set(d, ScaleOf<Stored>(v, first + j));
      REGARD_UNROLL for (int c = 0; c < Columns; ++c) value[c] = hn::Mul(value[c], scale);
    }
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
      const V weight = hn::Set(d, weights[r * stride + j]);
      REGARD_UNROLL for (int c = 0; c < Columns; ++c) sum[r][c] = hn::MulAdd(weight, value[c], sum[r][c]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) REGARD_UNROLL for (int c = 0; c < Columns; ++c)
      hn::StoreU(sum[r][c], d, out + r * out_stride + column + c * kLanes);
}

template <class Stored, int Rows, int Keys>
HWY_INLINE void WeighGroup(const Tile& weights, Index row, const Matrix& v, Index first, float* out, Index out_stride) {
  const float* w = weights.data + row * weights.stride + first;
  out += row * out_stride;
  Index i = 0;
  for (; i + 2 * kLanes <= v.depth; i += 2 * kLanes)
    WeighColumns<Stored, Rows, Keys, 2>(w, weights.stride, v, first, i, out, out_stride);
  for (; i < v.depth; i += kLanes) WeighColumns<Stored, Rows, Keys, 1>(w, weights.stride, v, first, i, out, out_stride);
}

template <class Stored, int Rows>
HWY_INLINE void WeighValues(const Tile& weights, Index row, const Matrix& v, Index first, Index keys, float* out,
                            Index out_stride) {
  if (keys == kSums) return WeighGroup<Stored, Rows, kSums>(weights, row, v, first, out, out_stride);
  for (Index j = first; j < first + keys; ++j) WeighGroup<Stored, Rows, 1>(weights, row, v, j, out, out_stride);
}

// f<Rows>(first row) over groups of four rows, which share one look at a key,
// and the rest.
template <class F>
HWY_INLINE void ForRowGroups(Index rows, F f) {
  Index r = 0;
  for (; r + 4 <= rows; r += 4) f(std::integral_constant<int, 4>(), r);
  for (; r + 2 <= rows; r += 2) f(std::integral_constant<int, 2>(), r);
  for (; r < rows; ++r) f(std::integral_constant<int, 1>(), r);
}

// f(first, count) over runs of kSums rows of x, each after the rows to come have
// been asked for.
template <class Stored, class F>
HWY_INLINE void ForRuns(const Matrix& x, F f) {
  for (Index j = 0; j < x.rows; j += kSums) {
    const Index count = std::min<Index>(kSums, x.rows - j);
    AskAhead(RowOf<Stored>(x, j), x.row_stride, x.depth);
    f(j, count);
  }
}

void DotRows(const Matrix& q, const Matrix& k, const Tile& scores) {
  WithStorage(k, [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    ForRuns<Stored>(k, [&](Index first, Index count) HWY_ATTR {
      Matrix some = rows_from(k, first);
      some.rows = count;
      ForRowGroups(q.rows, [&](auto rows, Index r) HWY_ATTR {
        DotKeys<Stored, decltype(rows)::value>(rows_from(q, r), some, scores.data + r * scores.stride + first,
                                               scores.stride);
      });
    });
  });
}

void WeighRows(const Tile& weights, const Matrix& v, float* out, Index out_stride) {
  WithStorage(v, [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    ForRuns<Stored>(v, [&](Index first, Index count) HWY_ATTR {
      ForRowGroups(weights.rows, [&](auto rows, Index r) HWY_ATTR {
        WeighValues<Stored, decltype(rows)::value>(weights, r, v, first, count, out, out_stride);
      });
    });
  });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
