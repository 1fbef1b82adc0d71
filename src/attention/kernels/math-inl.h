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
// 2^-127: exponentials of this and less are 0, so that hidden scores (-inf) come
// out as exactly 0.
constexpr float kLowest = -127.0f * kLn2;

// max(limit, x) that keeps NaN.
HWY_INLINE V AtLeast(D d, float limit, V x) {
  const V low = hn::Set(d, limit);
#if HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#else
  return hn::Max(low, x);  // x86 returns the second operand when one is NaN
#endif
}

// exponent = n + r with n whole and r in [-1/2, 1/2]; two_n = 2^n (0 for
// n = -127). exponent = x * factor, rounded only once where the processor has
// fused multiply-adds.
struct Split {
  V r, two_n;
};
HWY_INLINE Split SplitExponent(D d, V x, V factor) {
  // Adding 1.5 * 2^23 + 127 leaves n + 127, the exponent's bits, in the low bits.
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  const V shifted = hn::MulAdd(x, factor, magic);
  const hn::Rebind<std::int32_t, D> di;
  return {hn::MulSub(x, factor, hn::Sub(shifted, magic)), hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)))};
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

// exp(x) for x <= 0: exactly 1 for 0, 0 for -inf, NaN for NaN.
HWY_INLINE V ExpNegative(D d, V x) {
  const Split split = SplitExponent(d, AtLeast(d, kLowest, x), hn::Set(d, kLog2E));
  return hn::Mul(hn::MulAdd(ExpTail(d, split.r), split.r, hn::Set(d, 1.0f)), split.two_n);
}

// tanh through e^(2x) - 1, which keeps small x exact to the last bits.
HWY_INLINE V Tanh(D d, V x) {
  const V high = hn::Set(d, 20.0f);
  const V bounded = hn::IfThenElse(hn::Gt(x, high), high, AtLeast(d, -20.0f, x));
  const Split split = SplitExponent(d, bounded, hn::Set(d, 2.0f * kLog2E));
  const V one = hn::Set(d, 1.0f);
  const V below_one = hn::MulAdd(hn::Mul(ExpTail(d, split.r), split.r), split.two_n, hn::Sub(split.two_n, one));
  return hn::Div(below_one, hn::Add(below_one, hn::Set(d, 2.0f)));
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
