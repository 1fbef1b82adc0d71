// Per-target include: exponentials and their relatives on Highway vectors.
#if defined(REGARD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_MATH_INL_H_
#undef REGARD_MATH_INL_H_
#else
#define REGARD_MATH_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;
// exp2 below this is 0: hidden scores (-inf) come out as exactly 0.
constexpr float kLowest = -127.0f;

// max(limit, x) that keeps NaN.
HWY_INLINE V AtLeast(D d, float limit, V x) {
  const V low = hn::Set(d, limit);
#if HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#else
  return hn::Max(low, x);  // x86 returns the second operand when one is NaN
#endif
}

// Added to a number, leaves its whole part n, plus 127, in the low bits.
constexpr float kMagic = 12582912.0f + 127.0f;

// x = n + r with n whole and r in [-1/2, 1/2]; two_n = 2^n (0 for n = -127).
struct Split {
  V r, two_n;
};
HWY_INLINE Split SplitExponent(D d, V x) {
  const V magic = hn::Set(d, kMagic);
  const V shifted = hn::Add(x, magic);
  const hn::Rebind<std::int32_t, D> di;
  return {hn::Sub(x, hn::Sub(shifted, magic)), hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)))};
}

// (2^r - 1) / r on [-1/2, 1/2]: fitted to a relative error of 2e-9 in 2^r.
HWY_INLINE V ExpTail(D d, V r) {
  V tail = hn::Set(d, 0.00015353362f);
  tail = hn::MulAdd(tail, r, hn::Set(d, 0.0013398874f));
  tail = hn::MulAdd(tail, r, hn::Set(d, 0.009618437f));
  tail = hn::MulAdd(tail, r, hn::Set(d, 0.055503324f));
  tail = hn::MulAdd(tail, r, hn::Set(d, 0.24022648f));
  return hn::MulAdd(tail, r, hn::Set(d, 0.6931472f));
}

// 2^x for x <= 0 (x already at least kLowest, or NaN).
HWY_INLINE V Exp2(D d, V x) {
  const Split split = SplitExponent(d, x);
  return hn::Mul(hn::MulAdd(ExpTail(d, split.r), split.r, hn::Set(d, 1.0f)), split.two_n);
}

// exp(x) for x <= 0, 0 for -inf, NaN for NaN.
HWY_INLINE V ExpNegative(D d, V x) { return Exp2(d, AtLeast(d, kLowest, hn::Mul(x, hn::Set(d, kLog2E)))); }

// exp(score - reference) for a whole row. The reference is 2^n with a whole
// n = round(top / ln 2), so that one fused multiply-add splits the score into
// exponent and rest: five operations less per vector than subtracting first.
// That needs |n| well inside the mantissa and a fused multiply-add; `wide`
// rows subtract top itself.
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
constexpr bool kFused = false;
#else
constexpr bool kFused = true;
#endif
constexpr float kNarrowTop = 524288.0f;

HWY_INLINE bool IsWide(float top) { return !kFused || !(top <= kNarrowTop && top >= -kNarrowTop); }
HWY_INLINE V WholeExponent(D d, V top) { return hn::Round(hn::Mul(top, hn::Set(d, kLog2E))); }

class NarrowExp {
 public:
  // Of rows whose maximum is `top`.
  HWY_INLINE NarrowExp(D d, float top) : NarrowExp(d, WholeExponent(d, hn::Set(d, top))) {}
  // Of a row relative to 2^exponent.
  HWY_INLINE NarrowExp(D d, V exponent)
      : offset_(hn::Sub(hn::Set(d, kMagic), exponent)),
        low_(hn::Mul(hn::Add(exponent, hn::Set(d, kLowest)), hn::Set(d, kLn2))) {}
  HWY_INLINE V operator()(D d, V score) const {
    const V log2e = hn::Set(d, kLog2E);
#if HWY_TARGET == HWY_EMU128
    const V s = hn::IfThenElse(hn::Lt(score, low_), low_, score);
#else
    const V s = hn::Max(low_, score);  // x86 returns the second operand when one is NaN
#endif
    const V shifted = hn::MulAdd(s, log2e, offset_);
    const V r = hn::MulSub(s, log2e, hn::Sub(shifted, offset_));
    const hn::Rebind<std::int32_t, D> di;
    const V two_n = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
    return hn::Mul(hn::MulAdd(ExpTail(d, r), r, hn::Set(d, 1.0f)), two_n);
  }

 private:
  V offset_, low_;
};

class WideExp {
 public:
  HWY_INLINE WideExp(D d, float top) : top_(hn::Set(d, top)) {}
  HWY_INLINE V operator()(D d, V score) const { return ExpNegative(d, hn::Sub(score, top_)); }

 private:
  V top_;
};

// What weights of a row are relative to: natural logarithm.
inline double RowReference(float row_max) {
  if (row_max == -kInfinity) return 0.0;
  if (IsWide(row_max)) return static_cast<double>(row_max);
  const D d;
  return static_cast<double>(hn::GetLane(WholeExponent(d, hn::Set(d, row_max)))) * 0.69314718055994530942;
}

// tanh through e^(2x) - 1, which keeps small x exact to the last bits.
HWY_INLINE V Tanh(D d, V x) {
  const V doubled = hn::Mul(x, hn::Set(d, 2.0f * kLog2E));
  const V high = hn::Set(d, 60.0f);
  const V bounded = hn::IfThenElse(hn::Gt(doubled, high), high, AtLeast(d, -60.0f, doubled));
  const Split split = SplitExponent(d, bounded);
  const V one = hn::Set(d, 1.0f);
  const V below_one = hn::MulAdd(hn::Mul(ExpTail(d, split.r), split.r), split.two_n, hn::Sub(split.two_n, one));
  return hn::Div(below_one, hn::Add(below_one, hn::Set(d, 2.0f)));
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
