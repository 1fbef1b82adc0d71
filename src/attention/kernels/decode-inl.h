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
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

// Keys and values are read as several streams side by side, each a run of neighbouring
// rows: hardware reads only so far ahead of one stream, which leaves a quarter of the
// memory's bandwidth unused. (Prefetch instructions in its place took half as long
// again.) Keys go by steps of four rows of each of three streams, which the groups of
// queries then share.
constexpr int kKeyStreams = 3, kKeyStep = 4 * kKeyStreams;

// Keys that meet `Rows` queries at a time: as many as keep the multiply-add units
// busy and leave the sums in registers.
template <int Rows>
constexpr int kKeysOfGroup = Rows == 4   ? 3
                             : Rows == 2 ? 4
                                         : 12;

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

// Rows of a step: those past its end repeat its last one.
template <int Most>
struct RowList {
  Index at[Most];
  int count = 0;

  void add(Index row) { at[count++] = row; }
  void fill() {
    for (int n = count; n < Most; ++n) at[n] = at[count - 1];
  }
};

// sums[j, r] of Rows queries and the rows of k listed in `at`.
template <class Stored, int Rows>
HWY_INLINE void DotGroup(const Matrix& q, const Matrix& k, const Index* at, float* sums) {
  constexpr int kKeys = kKeysOfGroup<Rows>, kSums = Rows * kKeys;
  const D d;
  const float* queries = q.floats();
  const typename Stored::T* keys[kKeys];
  REGARD_UNROLL for (int j = 0; j < kKeys; ++j) keys[j] = RowOf<Stored>(k, at[j]);
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

// The scores of four queries and a whole step: four keys of each stream lie next to
// each other.
template <class Stored>
HWY_INLINE void StoreStep(const float* sums, const Matrix& k, const RowList<kKeyStep>& keys, float* scores,
                          Index stride) {
  const hn::CappedTag<float, 4> d;
  using Four = hn::Vec<decltype(d)>;
  for (int stream = 0; stream < kKeyStreams; ++stream) {
    Four of_key[4];
    REGARD_UNROLL for (int t = 0; t < 4; ++t) {
      const int j = t * kKeyStreams + stream;
      of_key[t] = hn::LoadU(d, sums + 4 * j);
      if (Stored::kScaled) of_key[t] = hn::Mul(of_key[t], hn::Set(d, ScaleOf<Stored>(k, keys.at[j])));
    }
    const Four a = hn::InterleaveLower(d, of_key[0], of_key[2]), b = hn::InterleaveUpper(d, of_key[0], of_key[2]);
    const Four c = hn::InterleaveLower(d, of_key[1], of_key[3]), e = hn::InterleaveUpper(d, of_key[1], of_key[3]);
    float* to = scores + keys.at[stream];
    hn::StoreU(hn::InterleaveLower(d, a, c), d, to);
    hn::StoreU(hn::InterleaveUpper(d, a, c), d, to + stride);
    hn::StoreU(hn::InterleaveLower(d, b, e), d, to + 2 * stride);
    hn::StoreU(hn::InterleaveUpper(d, b, e), d, to + 3 * stride);
  }
}

// scores[r, key] of Rows queries and all keys of a step.
template <class Stored, int Rows>
HWY_INLINE void DotKeys(const Matrix& q, const Matrix& k, const RowList<kKeyStep>& keys, float* scores, Index stride) {
  HWY_ALIGN_MAX float sums[kKeyStep * Rows];
  for (int j = 0; j < keys.count; j += kKeysOfGroup<Rows>) DotGroup<Stored, Rows>(q, k, keys.at + j, sums + j * Rows);
  if (Rows == 4 && keys.count == kKeyStep) return StoreStep<Stored>(sums, k, keys, scores, stride);
  for (int j = 0; j < keys.count; ++j) {
    const float scale = ScaleOf<Stored>(k, keys.at[j]);
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) scores[r * stride + keys.at[j]] =
        Stored::kScaled ? sums[j * Rows + r] * scale : sums[j * Rows + r];
  }
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

// f(rows of a step) until all streams are through, then what no stream holds.
template <class F>
HWY_INLINE void ForKeySteps(Index rows, F f) {
  const Index run = rows / kKeyStreams;
  for (Index first = 0; first < run; first += kKeyStep / kKeyStreams) {
    RowList<kKeyStep> step;
    for (Index j = first; j < std::min<Index>(run, first + kKeyStep / kKeyStreams); ++j)
      for (Index stream = 0; stream < kKeyStreams; ++stream) step.add(stream * run + j);
    step.fill();
    f(step);
  }
  if (rows == run * kKeyStreams) return;
  RowList<kKeyStep> rest;
  for (Index j = run * kKeyStreams; j < rows; ++j) rest.add(j);
  rest.fill();
  f(rest);
}

void DotRows(const Matrix& q, const Matrix& k, const Tile& scores) {
  WithStorage(k, [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    ForKeySteps(k.rows, [&](const RowList<kKeyStep>& step) HWY_ATTR {
      ForRowGroups(q.rows, [&](auto rows, Index r) HWY_ATTR {
        DotKeys<Stored, decltype(rows)::value>(rows_from(q, r), k, step, scores.data + r * scores.stride,
                                               scores.stride);
      });
    });
  });
}

// `Columns` vectors of columns of out[r] += sum of weights[r, j] * values[j].
template <class Stored, int Rows, int Keys, int Columns>
HWY_INLINE void WeighColumns(const V (&weights)[Rows][Keys], const typename Stored::T* const (&values)[Keys],
                             Index column, float* HWY_RESTRICT out, Index out_stride) {
  const D d;
  V value[Keys][Columns];
  REGARD_UNROLL for (int j = 0; j < Keys; ++j) REGARD_UNROLL for (int c = 0; c < Columns; ++c) value[j][c] =
      InRegister(Stored::Load(d, values[j] + column + c * kLanes));
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
    float* row = out + r * out_stride + column;
    V sum[Columns];
    REGARD_UNROLL for (int c = 0; c < Columns; ++c) sum[c] = hn::LoadU(d, row + c * kLanes);
    REGARD_UNROLL for (int j = 0; j < Keys; ++j) REGARD_UNROLL for (int c = 0; c < Columns; ++c) sum[c] =
        hn::MulAdd(weights[r][j], value[j][c], sum[c]);
    REGARD_UNROLL for (int c = 0; c < Columns; ++c) hn::StoreU(sum[c], d, row + c * kLanes);
  }
}

// out[r] += sum of weights[r, at[j]] * v[at[j]]. The scales of v go into the weights:
// there are fewer of them.
template <class Stored, int Rows, int Keys>
HWY_INLINE void WeighGroup(const float* weights, Index stride, const Matrix& v, const Index (&at)[Keys], float* out,
                           Index out_stride) {
  const D d;
  const typename Stored::T* values[Keys];
  V weight[Rows][Keys];
  REGARD_UNROLL for (int j = 0; j < Keys; ++j) {
    values[j] = RowOf<Stored>(v, at[j]);
    const float scale = ScaleOf<Stored>(v, at[j]);
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) weight[r][j] =
        hn::Set(d, Stored::kScaled ? weights[r * stride + at[j]] * scale : weights[r * stride + at[j]]);
  }
  constexpr int kColumns = 2;
  Index i = 0;
  for (; i + kColumns * kLanes <= v.depth; i += kColumns * kLanes)
    WeighColumns<Stored, Rows, Keys, kColumns>(weight, values, i, out, out_stride);
  for (; i < v.depth; i += kLanes) WeighColumns<Stored, Rows, Keys, 1>(weight, values, i, out, out_stride);
}

// Of `Keys` rows of v, value_run apart.
template <class Stored, int Keys>
HWY_INLINE void WeighKeys(const Tile& weights, const Matrix& v, Index first, float* out, Index out_stride) {
  Index at[Keys];
  REGARD_UNROLL for (int j = 0; j < Keys; ++j) at[j] = first + j * value_run;
  ForRowGroups(weights.rows, [&](auto rows, Index r) HWY_ATTR {
    WeighGroup<Stored, decltype(rows)::value, Keys>(weights.data + r * weights.stride, weights.stride, v, at,
                                                    out + r * out_stride, out_stride);
  });
}

void WeighRows(const Tile& weights, const Matrix& v, Index before, float* out, Index out_stride) {
  WithStorage(v, [&](auto stored) HWY_ATTR {
    using Stored = decltype(stored);
    for_value_groups(before, v.rows, [&](Index first, Index keys) HWY_ATTR {
      switch (keys) {
        case 1: return WeighKeys<Stored, 1>(weights, v, first, out, out_stride);
        case 2: return WeighKeys<Stored, 2>(weights, v, first, out, out_stride);
        case 3: return WeighKeys<Stored, 3>(weights, v, first, out, out_stride);
        default: return WeighKeys<Stored, value_streams>(weights, v, first, out, out_stride);
      }
    });
  });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
