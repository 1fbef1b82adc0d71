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

// Rows of k or v of one run. Its dot products go by groups of keys: as many as
// keep the multiply-add units busy and leave the sums in registers.
constexpr int kRunRows = 12;
template <int Rows>
constexpr int kKeysOfGroup = Rows == 4   ? 3
                             : Rows == 2 ? 4
                                         : 12;

// Asks for `rows` rows that come a while after `first`: hardware does not follow
// rows across the turns between keys and values, and several rows side by side
// are no stream to it. A few lines at a time: the processor waits when too many
// are on their way.
constexpr Index kAhead = 2 * kRunRows;
template <class T>
HWY_INLINE void AskAhead(const T* first, Index row_stride, int rows, Index depth) {
  for (int j = 0; j < rows; ++j)
    for (Index i = 0; i < depth; i += static_cast<Index>(64 / sizeof(T)))
      hwy::Prefetch(first + (kAhead + j) * row_stride + i);
}

// The value, and not the memory it came from: GCC would read that again in every
// multiply-add, and reads are what these loops have too few of.
HWY_INLINE V InRegister(V value) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  __asm__("" : "+v"(value.raw));
#endif
  return value;
}

// Halves onto halves, down to four lanes.
template <class DF>
HWY_INLINE void StoreFolded(DF d, hn::Vec<DF> sums, float* to) {
  if constexpr (hn::MaxLanes(DF()) <= 4) {
    hn::StoreU(sums, d, to);
  } else {
    const hn::Half<DF> half;
    StoreFolded(half, hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)), to);
  }
}

// The sums over lanes of four vectors, each in the same order of additions.
HWY_INLINE void SumsOfFour(const V* four, float* sums) {
  const D d;
  const V ac = hn::Add(hn::InterleaveLower(d, four[0], four[2]), hn::InterleaveUpper(d, four[0], four[2]));
  const V be = hn::Add(hn::InterleaveLower(d, four[1], four[3]), hn::InterleaveUpper(d, four[1], four[3]));
  StoreFolded(d, hn::Add(hn::InterleaveLower(d, ac, be), hn::InterleaveUpper(d, ac, be)), sums);
}

// sums[j, r] of Rows queries and a group of keys from `first` on; past the end of
// k its last key stands again.
template <class Stored, int Rows>
HWY_INLINE void DotGroup(const Matrix& q, const Matrix& k, Index first, float* sums) {
  constexpr int kKeys = kKeysOfGroup<Rows>, kSums = Rows * kKeys;
  const D d;
  const float* queries = q.floats();
  const typename Stored::T* keys[kKeys];
  REGARD_UNROLL for (int j = 0; j < kKeys; ++j) keys[j] = RowOf<Stored>(k, std::min(first + j, k.rows - 1));
  AskAhead(RowOf<Stored>(k, first), k.row_stride, kKeys, k.depth);
  V sum[kSums];
  REGARD_UNROLL for (int n = 0; n < kSums; ++n) sum[n] = hn::Zero(d);
  for (Index i = 0; i < q.depth; i += kLanes) {
    V key[kKeys];
    REGARD_UNROLL for (int j = 0; j < kKeys; ++j) {
      key[j] = Stored::Load(d, keys[j] + i);
      if (Rows > 1) key[j] = InRegister(key[j]);
    }
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
      const V query = InRegister(hn::LoadU(d, queries + r * q.row_stride + i));
      REGARD_UNROLL for (int j = 0; j < kKeys; ++j) sum[j * Rows + r] = hn::MulAdd(query, key[j], sum[j * Rows + r]);
    }
  }
  REGARD_UNROLL for (int n = 0; n < kSums; n += 4) SumsOfFour(sum + n, sums + n);
}

// scores[r, j] of Rows queries and all keys of a run.
template <class Stored, int Rows>
HWY_INLINE void DotKeys(const Matrix& q, const Matrix& k, float* scores, Index stride) {
  HWY_ALIGN_MAX float sums[kRunRows * Rows];
  for (Index j = 0; j < k.rows; j += kKeysOfGroup<Rows>) DotGroup<Stored, Rows>(q, k, j, sums + j * Rows);
  for (Index j = 0; j < k.rows; ++j) {
    const float scale = ScaleOf<Stored>(k, j);
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) scores[r * stride + j] =
        Stored::kScaled ? sums[j * Rows + r] * scale : sums[j * Rows + r];
  }
}

// `Columns` vectors of columns of out[r] += sum of weights[r, j] * v[j] over the
// keys of a run.
template <class Stored, int Rows, int Columns>
HWY_INLINE void WeighColumns(const float* weights, Index stride, const Matrix& v, Index column, float* out,
                             Index out_stride) {
  const D d;
  V sum[Rows][Columns];
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) REGARD_UNROLL for (int c = 0; c < Columns; ++c) sum[r][c] =
      hn::LoadU(d, out + r * out_stride + column + c * kLanes);
  const typename Stored::T* values = RowOf<Stored>(v, 0) + column;
  for (Index j = 0; j < v.rows; ++j) {
    AskAhead(values + j * v.row_stride, v.row_stride, 1, Columns * kLanes);
    V value[Columns];
    REGARD_UNROLL for (int c = 0; c < Columns; ++c) value[c] =
        InRegister(Stored::Load(d, values + j * v.row_stride + c * kLanes));
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
      const V weight = hn::Set(d, weights[r * stride + j]);
      REGARD_UNROLL for (int c = 0; c < Columns; ++c) sum[r][c] = hn::MulAdd(weight, value[c], sum[r][c]);
    }
  }
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) REGARD_UNROLL for (int c = 0; c < Columns; ++c)
      hn::StoreU(sum[r][c], d, out + r * out_stride + column + c * kLanes);
}

// The scales of v go into the weights: there are fewer of them.
template <class Stored, int Rows>
HWY_INLINE void WeighValues(const float* weights, Index stride, const Matrix& v, float* out, Index out_stride) {
  HWY_ALIGN_MAX float scaled[Rows * kRunRows];
  if (Stored::kScaled) {
    for (int r = 0; r < Rows; ++r)
      for (Index j = 0; j < v.rows; ++j) scaled[r * kRunRows + j] = weights[r * stride + j] * ScaleOf<Stored>(v, j);
    weights = scaled;
    stride = kRunRows;
  }
  constexpr int kColumns = Rows == 4 ? 2 : 4;
  Index i = 0;
  for (; i + kColumns * kLanes <= v.depth; i += kColumns * kLanes)
    WeighColumns<Stored, Rows, kColumns>(weights, stride, v, i, out, out_stride);
  for (; i < v.depth; i += kLanes) WeighColumns<Stored, Rows, 1>(weights, stride, v, i, out, out_stride);
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

// f(first, rows) over runs of kRunRows rows of x.
template <class F>
HWY_INLINE void ForRuns(const Matrix& x, F f) {
  for (Index j = 0; j < x.rows; j += kRunRows) {
    Matrix run = rows_from(x, j);
    run.rows = std::min<Index>(kRunRows, run.rows);
    f(j, run);
  }
}

void DotRows(const Matrix& q, const Matrix& k, const Tile& scores) {
  WithStorage(k, [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    ForRuns(k, [&](Index first, const Matrix& run) HWY_ATTR {
      ForRowGroups(q.rows, [&](auto rows, Index r) HWY_ATTR {
        DotKeys<Stored, decltype(rows)::value>(rows_from(q, r), run, scores.data + r * scores.stride + first,
                                               scores.stride);
      });
    });
  });
}

void WeighRows(const Tile& weights, const Matrix& v, float* out, Index out_stride) {
  WithStorage(v, [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    ForRuns(v, [&](Index first, const Matrix& run) HWY_ATTR {
      ForRowGroups(weights.rows, [&](auto rows, Index r) HWY_ATTR {
        WeighValues<Stored, decltype(rows)::value>(weights.data + r * weights.stride + first, weights.stride, run,
                                                   out + r * out_stride, out_stride);
      });
    });
  });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
