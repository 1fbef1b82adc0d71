// Per-target include: everything that happens to a tile of scores between the
// two matrix products, forward and backward.
#if defined(REGARD_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_SOFTMAX_INL_H_
#undef REGARD_SOFTMAX_INL_H_
#else
#define REGARD_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <cstdlib>

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

// Fills the last vector of every row, so that loops run in whole vectors.
HWY_INLINE void FillTail(const Tile& tile, float value) {
  const Index whole = padded(tile.keys, kLanes);
  if (whole == tile.keys) return;
  for (Index i = 0; i < tile.rows; ++i)
    for (Index j = tile.keys; j < whole; ++j) tile.data[i * tile.stride + j] = value;
}

// One function over every vector of a tile: f(scores, row, first column).
template <class F>
HWY_INLINE void ForEachVector(const Tile& tile, F f) {
  const D d;
  for (Index i = 0; i < tile.rows; ++i) {
    float* row = tile.data + i * tile.stride;
    for (Index j = 0; j < tile.keys; j += kLanes) hn::StoreU(f(hn::LoadU(d, row + j), i, j), d, row + j);
  }
}

// Maxima of Rows rows side by side: independent chains hide each other's
// latency.
template <int Rows>
HWY_INLINE void RowMaxima(const float* row, Index stride, Index keys, float* maxima) {
  const D d;
  V top[Rows];
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) top[r] = hn::Set(d, -kInfinity);
  for (Index j = 0; j < keys; j += kLanes)
    REGARD_UNROLL for (int r = 0; r < Rows; ++r) top[r] = hn::Max(top[r], hn::LoadU(d, row + r * stride + j));
  REGARD_UNROLL for (int r = 0; r < Rows; ++r) maxima[r] = hn::GetLane(hn::MaxOfLanes(d, top[r]));
}

HWY_INLINE void ScaleRow(float* row, Index cols, float factor) {
  const D d;
  for (Index j = 0; j < cols; j += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, factor)), d, row + j);
}

// Replaces a row by exp(score - top); returns the sum and, with Spread, the
// sum of exp(x) * x for x = score - top.
template <bool Spread>
HWY_INLINE float ExpRow(float* row, Index keys, float top, float* spread) {
  const D d;
  const V reference = hn::Set(d, top);
  V sum = hn::Zero(d), moment = hn::Zero(d);
  for (Index j = 0; j < keys; j += kLanes) {
    const V x = hn::Sub(hn::LoadU(d, row + j), reference), weight = ExpNegative(d, x);
    hn::StoreU(weight, d, row + j);
    sum = hn::Add(sum, weight);
    if (Spread) moment = hn::MulAdd(weight, AtLeast(d, kLowest, x), moment);
  }
  if (Spread) *spread = hn::GetLane(hn::SumOfLanes(d, moment));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// What a block of keys does to the running maxima of up to kLanes rows.
struct MaxUpdate {
  HWY_ALIGN_MAX float top[kLanes];     // maximum; 0 where nothing is visible yet, which gives weights of exactly 0
  HWY_ALIGN_MAX float moved[kLanes];   // old maximum - top
  HWY_ALIGN_MAX float factor[kLanes];  // exp(moved)
};

HWY_INLINE MaxUpdate UpdateMaxima(const SoftmaxStep& step, Index first, Index count) {
  const D d;
  HWY_ALIGN_MAX float found[kLanes] = {}, known[kLanes] = {};
  const float* rows = step.scores.data + first * step.scores.stride;
  Index i = 0;
  for (; i + 4 <= count; i += 4)
    RowMaxima<4>(rows + i * step.scores.stride, step.scores.stride, step.scores.keys, found + i);
  for (; i < count; ++i) RowMaxima<1>(rows + i * step.scores.stride, 0, step.scores.keys, found + i);
  std::copy_n(step.row_max + first, count, known);
  const V before = hn::Load(d, known), after = hn::Max(hn::Load(d, found), before);
  const V top = hn::IfThenZeroElse(hn::Eq(after, hn::Set(d, -kInfinity)), after), moved = hn::Sub(before, top);
  MaxUpdate update;
  hn::Store(top, d, update.top);
  hn::Store(moved, d, update.moved);
  hn::Store(ExpNegative(d, moved), d, update.factor);
  hn::Store(after, d, known);
  std::copy_n(known, count, step.row_max + first);
  return update;
}

template <bool Spread>
HWY_INLINE void SoftmaxRow(const SoftmaxStep& step, Index i, const MaxUpdate& update, Index at) {
  const float factor = update.factor[at];
  float spread = 0;
  const float sum =
      ExpRow<Spread>(step.scores.data + i * step.scores.stride, step.scores.keys, update.top[at], &spread);
  if (factor != 1.0f) {
    if (Spread)
      step.row_spread[i] = factor == 0.0f ? 0.0f : factor * (step.row_spread[i] + step.row_sum[i] * update.moved[at]);
    step.row_sum[i] *= factor;
    ScaleRow(step.out + i * step.out_stride, step.out_cols, factor);
  }
  step.row_sum[i] += sum;
  if (Spread) step.row_spread[i] += spread;
}

template <bool Spread>
HWY_INLINE void RunSoftmaxStep(const SoftmaxStep& step) {
  FillTail(step.scores, -kInfinity);
  for (Index first = 0; first < step.scores.rows; first += kLanes) {
    const Index count = std::min<Index>(kLanes, step.scores.rows - first);
    const MaxUpdate update = UpdateMaxima(step, first, count);
    for (Index r = 0; r < count; ++r) SoftmaxRow<Spread>(step, first + r, update, r);
  }
}

void RunAnySoftmaxStep(const SoftmaxStep& step) {
  if (step.row_spread)
    RunSoftmaxStep<true>(step);
  else
    RunSoftmaxStep<false>(step);
}

// weights = exp(score - lse); d(score) = weight * (d(weight) - shared) * scale. A
// weight of 0 passes nothing on, whatever d(weight) holds: hidden pairs have
// weight 0.
void RunSoftmaxGradient(const SoftmaxGradient& g) {
  const D d;
  const V zero = hn::Zero(d), scale = hn::Set(d, g.scale);
  for (Index i = 0; i < g.weights.rows; ++i) {
    float* weights = g.weights.data + i * g.weights.stride;
    float* gradients = g.gradients.data + i * g.gradients.stride;
    const float* keep = g.keep ? g.keep + i * g.weights.stride : nullptr;
    // lse = -inf means that nothing is visible: +inf makes every weight 0.
    const V lse = hn::Set(d, g.lse[i] == -kInfinity ? kInfinity : g.lse[i]);
    const V shared = hn::Set(d, g.shared[i]);
    for (Index j = 0; j < g.weights.keys; j += kLanes) {
      // Hidden pairs stay at 0 also where a visible NaN made the whole lse NaN.
      const V score = hn::LoadU(d, weights + j);
      const V weight = hn::IfThenZeroElse(hn::Eq(score, hn::Set(d, -kInfinity)), ExpNegative(d, hn::Sub(score, lse)));
      V dweight = hn::LoadU(d, gradients + j);
      if (keep) {
        const V kept = hn::LoadU(d, keep + j);
        dweight = hn::IfThenZeroElse(hn::Eq(kept, zero), hn::Mul(dweight, kept));
        hn::StoreU(hn::Mul(weight, kept), d, weights + j);
      } else {
        hn::StoreU(weight, d, weights + j);
      }
      const V gradient = hn::Mul(hn::Mul(weight, hn::Sub(dweight, shared)), scale);
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, zero), gradient), d, gradients + j);
    }
  }
}

void RunHide(const Tile& tile, const std::uint8_t* visible, Index visible_stride) {
  for (Index i = 0; i < tile.rows; ++i) {
    float* HWY_RESTRICT row = tile.data + i * tile.stride;
    const std::uint8_t* HWY_RESTRICT see = visible + i * visible_stride;
    for (Index j = 0; j < tile.keys; ++j) row[j] = see[j] ? row[j] : -kInfinity;
  }
}

bool RunAllVisible(const Tile& tile) {
  const D d;
  const V hidden = hn::Set(d, -kInfinity);
  auto any = hn::Eq(hidden, hn::Zero(d));  // none yet
  bool rest = false;
  for (Index i = 0; i < tile.rows; ++i) {
    const float* row = tile.data + i * tile.stride;
    ForColumns(
        tile.keys, [&](Index j) HWY_ATTR { any = hn::Or(any, hn::Eq(hn::LoadU(d, row + j), hidden)); },
        [&](Index j) { rest |= row[j] == -kInfinity; });
  }
  return !rest && hn::AllFalse(d, any);
}

bool RunMarkVisible(const Tile& tile, std::uint8_t* visible, Index visible_stride) {
  bool all = true;
  for (Index i = 0; i < tile.rows; ++i)
    for (Index j = 0; j < tile.keys; ++j) {
      const bool seen = tile.data[i * tile.stride + j] != -kInfinity;
      visible[i * visible_stride + j] = seen;
      all &= seen;
    }
  return all;
}

void RunAddBias(const Tile& tile, const float* bias, Index row_stride, Index key_stride) {
  for (Index i = 0; i < tile.rows; ++i) {
    float* HWY_RESTRICT row = tile.data + i * tile.stride;
    const float* HWY_RESTRICT add = bias + i * row_stride;
    if (key_stride == 1)
      for (Index j = 0; j < tile.keys; ++j) row[j] = add[j] == -kInfinity ? -kInfinity : row[j] + add[j];
    else
      for (Index j = 0; j < tile.keys; ++j)
        row[j] = add[j * key_stride] == -kInfinity ? -kInfinity : row[j] + add[j * key_stride];
  }
}

void RunSoftcap(const Tile& tile, float cap) {
  const D d;
  const V scale = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  ForEachVector(tile, [&](V score, Index, Index) HWY_ATTR { return hn::Mul(scale, Tanh(d, hn::Mul(score, inverse))); });
}

void RunSoftcapChain(const Tile& gradients, const float* scores, float cap) {
  const D d;
  const V inverse = hn::Set(d, 1.0f / cap);
  ForEachVector(gradients, [&](V gradient, Index i, Index j) HWY_ATTR {
    const V capped = Tanh(d, hn::Mul(hn::LoadU(d, scores + i * gradients.stride + j), inverse));
    const V slope = hn::NegMulAdd(capped, capped, hn::Set(d, 1.0f));
    // A gradient of 0 stays 0, also where a hidden pair's score is NaN.
    return hn::IfThenZeroElse(hn::Eq(gradient, hn::Zero(d)), hn::Mul(gradient, slope));
  });
}

void RunAlibi(const Tile& tile, float slope, std::int32_t distance0) {
  const D d;
  const hn::Rebind<std::int32_t, D> di;
  const V steep = hn::Set(d, slope);
  ForEachVector(tile, [&](V score, Index i, Index j) HWY_ATTR {
    const auto first = hn::Set(di, distance0 + static_cast<std::int32_t>(i - j));
    const V distance = hn::ConvertTo(d, hn::Sub(first, hn::Iota(di, 0)));
    return hn::NegMulAdd(steep, hn::Abs(distance), score);
  });
}

void RunScale(const Tile& tile, float factor) {
  const D d;
  const V wide = hn::Set(d, factor);
  ForEachVector(tile, [&](V value, Index, Index) HWY_ATTR { return hn::Mul(value, wide); });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
