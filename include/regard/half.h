// float16 and bfloat16 as storage: conversions that round to nearest, ties to
// even, and keep NaN a NaN.
#pragma once

#include <cstdint>

namespace regard {

std::uint16_t bfloat16_from(float value);
float from_bfloat16(std::uint16_t bits);
std::uint16_t float16_from(float value);
float from_float16(std::uint16_t bits);

}  // namespace regard
