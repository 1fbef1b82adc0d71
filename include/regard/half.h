// float16 and bfloat16 as storage: conversions that round to nearest, ties to
// even, and keep NaN a NaN.
#pragma once

#include <cstdint>

namespace regard {

std::uint16_t bfloat16_from(float value);
float from_bfloat16(std::uint16_t bits);
std::uint16_t float16_from(float value);
float from_float16(std::uint16_t bits);

// Elements of tensors that are stored in half the bytes. They compute nothing:
// arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float value) : bits(bfloat16_from(value)) {}
  explicit operator float() const { return from_bfloat16(bits); }
};
struct Float16 {
  std::uint16_t bits;
  Float16() = default;
  explicit Float16(float value) : bits(float16_from(value)) {}
  explicit operator float() const { return from_float16(bits); }
};

}  // namespace regard
