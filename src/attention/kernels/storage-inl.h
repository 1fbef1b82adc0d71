// Per-target include: vectors of float from what tensors are stored in, and back.
#if defined(REGARD_STORAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_STORAGE_INL_H_
#undef REGARD_STORAGE_INL_H_
#else
#define REGARD_STORAGE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "hwy/highway.h"
#include "regard/half.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

constexpr int kLanes = HWY_LANES(float);

// Each names its element type and widens one element or one vector of any float
// tag. kScaled: every row has a scale of its own.
struct FloatRows {
  using T = float;
  static constexpr bool kScaled = false;
  static HWY_INLINE float One(T x) { return x; }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> Load(DF d, const T* from) {
    return hn::LoadU(d, from);
  }
};

struct BFloat16Rows {
  using T = std::uint16_t;
  static constexpr bool kScaled = false;
  static HWY_INLINE float One(T x) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> Load(DF d, const T* from) {
    const hn::Rebind<std::uint16_t, DF> half;
    const hn::Rebind<std::uint32_t, DF> whole;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(whole, hn::LoadU(half, from))));
  }
};

struct Float16Rows {
  using T = std::uint16_t;
  static constexpr bool kScaled = false;
  static HWY_INLINE float One(T x) { return from_float16(x); }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> Load(DF d, const T* from) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
    // Exponent and mantissa in place, 2^112 makes up for the other bias, and
    // what was infinite or NaN is so again.
    const hn::Rebind<std::uint16_t, DF> half;
    const hn::Rebind<std::uint32_t, DF> whole;
    const auto bits = hn::PromoteTo(whole, hn::LoadU(half, from));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(whole, 0x7FFFu)));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(whole, 0x8000u)));
    const auto value = hn::BitCast(whole, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
    const hn::Rebind<std::int32_t, DF> si;
    const auto special = hn::Gt(hn::BitCast(si, magnitude), hn::Set(si, 0x0F7FFFFF));
    const auto fixed =
        hn::IfThenElse(hn::RebindMask(whole, special), hn::Or(magnitude, hn::Set(whole, 0x7F800000u)), value);
    return hn::BitCast(d, hn::Or(fixed, sign));
#else
    const hn::Rebind<hwy::float16_t, DF> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
  }
};

struct Int8Rows {
  using T = std::int8_t;
  static constexpr bool kScaled = true;
  static HWY_INLINE float One(T x) { return static_cast<float>(x); }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> Load(DF d, const T* from) {
    const hn::Rebind<std::int8_t, DF> byte;
    const hn::Rebind<std::int32_t, DF> whole;
    return hn::ConvertTo(d, hn::PromoteTo(whole, hn::LoadU(byte, from)));
  }
};

// f of the rows' kind.
template <class F>
HWY_INLINE auto WithStorage(const Matrix& x, F f) {
  switch (x.dtype) {
    case DType::bf16: return f(BFloat16Rows());
    case DType::f16: return f(Float16Rows());
    case DType::i8: return f(Int8Rows());
    default: return f(FloatRows());
  }
}

template <class Rows>
HWY_INLINE const typename Rows::T* RowOf(const Matrix& x, Index row) {
  return static_cast<const typename Rows::T*>(x.data) + row * x.row_stride;
}

template <class Rows>
HWY_INLINE float ScaleOf(const Matrix& x, Index row) {
  return Rows::kScaled ? x.row_scales[row * x.scale_stride] : 1.0f;
}

// kLanes elements from (row, column) on, at any stride.
template <class Rows>
HWY_INLINE V LoadElements(const Matrix& x, Index row, Index column) {
  const D d;
  const auto* from = RowOf<Rows>(x, row) + column * x.depth_stride;
  V values;
  if (x.depth_stride == 1) {
    values = Rows::Load(d, from);
  } else {
    HWY_ALIGN_MAX float lanes[kLanes];
    for (Index lane = 0; lane < kLanes; ++lane) lanes[lane] = Rows::One(from[lane * x.depth_stride]);
    values = hn::Load(d, lanes);
  }
  return Rows::kScaled ? hn::Mul(values, hn::Set(d, ScaleOf<Rows>(x, row))) : values;
}

template <class Rows>
HWY_INLINE float OneElement(const Matrix& x, Index row, Index column) {
  const float value = Rows::One(RowOf<Rows>(x, row)[column * x.depth_stride]);
  return Rows::kScaled ? value * ScaleOf<Rows>(x, row) : value;
}

// All bits of the exponent set: infinity or NaN.
HWY_INLINE bool IsFinite(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return (bits & 0x7F800000u) != 0x7F800000u;
}

bool WidenRows(const Matrix& from, float* to, Index to_stride) {
  return WithStorage(from, [&](auto rows) HWY_ATTR {
    using Rows = decltype(rows);
    const D d;
    V bad = hn::Zero(d);  // x - x, which is 0 for every finite x
    bool finite = true;
    const Index whole = from.depth / kLanes * kLanes;
    for (Index i = 0; i < from.rows; ++i) {
      float* row = to + i * to_stride;
      for (Index k = 0; k < whole; k += kLanes) {
        const V x = LoadElements<Rows>(from, i, k);
        bad = hn::Add(bad, hn::Sub(x, x));
        hn::StoreU(x, d, row + k);
      }
      for (Index k = whole; k < from.depth; ++k) {
        row[k] = OneElement<Rows>(from, i, k);
        finite &= IsFinite(row[k]);
      }
    }
    return finite && hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
  });
}

// Rounding to nearest even by carrying into the bits that stay; NaN stays NaN.
HWY_INLINE void StoreBFloat16(V value, std::uint16_t* to) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> half;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::Ne(value, value)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(chosen)), half, to);
  (void)d;
}

HWY_INLINE void StoreFloat16(V value, std::uint16_t* to) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4
  HWY_ALIGN_MAX float lanes[kLanes];
  hn::Store(value, D(), lanes);
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = float16_from(lanes[lane]);
#else
  const hn::Rebind<hwy::float16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
#endif
}

template <class Store, class One>
HWY_INLINE void NarrowTo(const StridedRows& from, const StoredRows& to, Store store, One one) {
  const D d;
  const Index whole = from.cols / kLanes * kLanes;
  for (Index i = 0; i < from.rows; ++i) {
    const float* row = from.data + i * from.stride;
    auto* out = static_cast<std::uint16_t*>(to.data) + i * to.row_stride;
    for (Index k = 0; k < whole; k += kLanes) store(hn::LoadU(d, row + k), out + k);
    for (Index k = whole; k < from.cols; ++k) out[k] = one(row[k]);
  }
}

void NarrowRows(const StridedRows& from, const StoredRows& to) {
  if (to.dtype == DType::bf16)
    NarrowTo(
        from, to, [](V value, std::uint16_t* out) HWY_ATTR { StoreBFloat16(value, out); }, bfloat16_from);
  else if (to.dtype == DType::f16)
    NarrowTo(
        from, to, [](V value, std::uint16_t* out) HWY_ATTR { StoreFloat16(value, out); }, float16_from);
  else
    for (Index i = 0; i < from.rows; ++i)
      std::memcpy(static_cast<float*>(to.data) + i * to.row_stride, from.data + i * from.stride,
                  sizeof(float) * static_cast<std::size_t>(from.cols));
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
