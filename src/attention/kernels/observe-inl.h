// Per-target include: what observers ask of a tile of weights. Loops run in
// whole vectors over the end of a row; kernels.h says what lies there.
#if defined(REGARD_OBSERVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_OBSERVE_INL_H_
#undef REGARD_OBSERVE_INL_H_
#else
#define REGARD_OBSERVE_INL_H_
#endif

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

void RunWeights(const Tile& tile, const float* row_max, const float* row_sum) {
  const D d;
  for (Index i = 0; i < tile.rows; ++i) {
    float* row = tile.data + i * tile.stride;
    const V top = hn::Set(d, row_max[i] == -kInfinity ? 0.0f : row_max[i]);
    const V share = hn::Set(d, row_sum[i] == 0.0f ? 0.0f : 1.0f / row_sum[i]);
    const bool is_number = row_sum[i] == row_sum[i];
    for (Index j = 0; j < tile.keys; j += kLanes) {
      const V score = hn::LoadU(d, row + j);
      const V weight = hn::Mul(ExpNegative(d, hn::Sub(score, top)), share);
      // 0 where hidden, also in a row whose sum is NaN.
      hn::StoreU(is_number ? weight : hn::IfThenZeroElse(hn::Eq(score, hn::Set(d, -kInfinity)), weight), d, row + j);
    }
  }
}

// Vectors that are folded side by side, so that one does not wait for another.
constexpr int kAbreast = 4;

struct AddWeights {
  HWY_INLINE V operator()(V a, V b) const { return hn::Add(a, b); }
};
// Weights are not negative, so their bits, read as whole numbers, are in order,
// and NaN comes last: it is kept, where a maximum of floats would lose it.
struct LargerWeight {
  HWY_INLINE V operator()(V a, V b) const {
    const D d;
    const hn::Rebind<std::uint32_t, D> du;
    return hn::BitCast(d, hn::Max(hn::BitCast(du, a), hn::BitCast(du, b)));
  }
};

// to[0 .. N vectors) = the fold of `count` such runs, `step` apart, in order.
template <int N, class Fold>
HWY_INLINE void FoldRuns(const float* first, Index step, Index count, float* to) {
  const D d;
  V folded[N];
  REGARD_UNROLL for (int n = 0; n < N; ++n) folded[n] = hn::Zero(d);
  for (Index i = 0; i < count; ++i, first += step)
    REGARD_UNROLL for (int n = 0; n < N; ++n) folded[n] = Fold()(folded[n], hn::LoadU(d, first + n * kLanes));
  REGARD_UNROLL for (int n = 0; n < N; ++n) hn::StoreU(folded[n], d, to + n * kLanes);
}

template <class Fold>
HWY_INLINE void FoldAllRuns(const float* first, Index step, Index count, Index width, float* to) {
  Index j = 0;
  for (; j + (kAbreast - 1) * kLanes < width; j += kAbreast * kLanes)
    FoldRuns<kAbreast, Fold>(first + j, step, count, to + j);
  for (; j < width; j += kLanes) FoldRuns<1, Fold>(first + j, step, count, to + j);
}

void ColumnSums(const Tile& weights, float* sums) {
  FoldAllRuns<AddWeights>(weights.data, weights.stride, weights.rows, weights.keys, sums);
}

void ColumnMaxima(const Tile& weights, float* maxima) {
  FoldAllRuns<LargerWeight>(weights.data, weights.stride, weights.rows, weights.keys, maxima);
}

// Down one row, one key to the right: the columns of rows that lean to the left.
void DiagonalSums(const Tile& weights, float* sums) {
  const Index lean = weights.rows - 1;
  FoldAllRuns<AddWeights>(weights.data - lean, weights.stride + 1, weights.rows, weights.keys + lean, sums);
}

template <int Rows>
HWY_INLINE void SumDistances(const Tile& weights, Index first, float distance0, float* sums) {
  const D d;
  const float* row = weights.data + first * weights.stride;
  V sum[Rows], distance[Rows];
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) {
    sum[r] = hn::Zero(d);
    distance[r] = hn::Set(d, distance0 + static_cast<float>(first + r));
  }
  V key = hn::Iota(d, 0.0f);
  for (Index j = 0; j < weights.keys; j += kLanes) {
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) sum[r] =
        hn::MulAdd(hn::LoadU(d, row + r * weights.stride + j), hn::Abs(hn::Sub(distance[r], key)), sum[r]);
    key = hn::Add(key, hn::Set(d, static_cast<float>(kLanes)));
  }
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) sums[first + r] = hn::GetLane(hn::SumOfLanes(d, sum[r]));
}

void DistanceSums(const Tile& weights, float distance0, float* sums) {
  Index i = 0;
  for (; i + kAbreast <= weights.rows; i += kAbreast) SumDistances<kAbreast>(weights, i, distance0, sums);
  for (; i < weights.rows; ++i) SumDistances<1>(weights, i, distance0, sums);
}

// One bit a lane. Read in the bytes they were written in, or the load waits.
HWY_INLINE std::uint64_t BitsAbove(V values, V low) {
  const D d;
  std::uint8_t bytes[8];
  hn::StoreMaskBits(d, hn::Gt(values, low), bytes);
  return kLanes <= 8 ? bytes[0] : bytes[0] | std::uint64_t{bytes[1]} << 8;
}

Index FindAbove(const float* row, Index keys, float limit, std::int32_t* found) {
  const D d;
  const V low = hn::Set(d, limit);
  Index count = 0;
  for (Index j = 0; j < keys; j += kAbreast * kLanes) {
    V run[kAbreast], top = hn::LoadU(d, row + j);
    REGARD_UNROLL for (int n = 0; n < kAbreast; ++n) {
      run[n] = hn::LoadU(d, row + j + n * kLanes);
      top = hn::Max(top, run[n]);
    }
    if (hn::AllFalse(d, hn::Gt(top, low))) continue;
    std::uint64_t bits = 0;
    REGARD_UNROLL for (int n = 0; n < kAbreast; ++n) bits |= BitsAbove(run[n], low) << (n * kLanes);
    for (; bits != 0; bits &= bits - 1) found[count++] = static_cast<std::int32_t>(j + __builtin_ctzll(bits));
  }
  return count;
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
