// Conversions of float16 and bfloat16, checked over every value they have.
#include "regard/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace regard {
namespace {

// The value of a float16 from its fields, without the code under test.
double value_of_float16(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  const double magnitude = exponent == 31  ? std::numeric_limits<double>::infinity()
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
  return bits & 0x8000u ? -magnitude : magnitude;
}

bool is_nan16(std::uint32_t bits, std::uint32_t infinity) { return (bits & 0x7FFFu) > infinity; }

TEST(float16, every_value_has_its_meaning_and_comes_back) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = from_float16(static_cast<std::uint16_t>(bits));
    if (is_nan16(bits, 0x7C00)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(is_nan16(float16_from(value), 0x7C00)) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), value_of_float16(bits)) << bits;
    ASSERT_EQ(std::signbit(value), bits >> 15 == 1) << bits;
    ASSERT_EQ(float16_from(value), bits);
  }
}

// Half-way between neighbours the even one wins; a hair beside, the nearer one.
TEST(float16, rounds_to_nearest_and_ties_to_even) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const auto middle =
        static_cast<float>((value_of_float16(bits) + value_of_float16(bits + 1)) / 2);  // exact in float
    const std::uint32_t even = bits + (bits & 1u);
    ASSERT_EQ(float16_from(middle), even) << bits;
    ASSERT_EQ(float16_from(-middle), even | 0x8000u) << bits;
    ASSERT_EQ(float16_from(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(float16_from(std::nextafter(middle, 1e9f)), bits + 1);
  }
}

TEST(float16, the_largest_number_is_65504_and_65520_rounds_to_infinity) {
  EXPECT_EQ(float16_from(65504.0f), 0x7BFF);
  EXPECT_EQ(float16_from(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(float16_from(65520.0f), 0x7C00);
  EXPECT_EQ(float16_from(-65520.0f), 0xFC00);
  EXPECT_EQ(float16_from(1e30f), 0x7C00);
  EXPECT_EQ(float16_from(std::numeric_limits<float>::infinity()), 0x7C00);
}

TEST(float16, the_smallest_numbers_are_subnormal) {
  EXPECT_EQ(float16_from(0x1p-24f), 1);
  EXPECT_EQ(float16_from(0x1p-25f), 0);  // a tie; 0 is even
  EXPECT_EQ(float16_from(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(float16_from(-0x1p-25f), 0x8000);
  EXPECT_EQ(float16_from(0x1p-14f), 0x0400);
  EXPECT_EQ(float16_from(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(from_float16(0x03FF), 1023 * 0x1p-24f);
}

TEST(bfloat16, every_value_comes_back) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = from_bfloat16(static_cast<std::uint16_t>(bits));
    if (is_nan16(bits, 0x7F80)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(is_nan16(bfloat16_from(value), 0x7F80)) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    ASSERT_EQ(bfloat16_from(value), bits);
  }
}

TEST(bfloat16, rounds_to_nearest_and_ties_to_even) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const std::uint32_t middle = bits << 16 | 0x8000u, even = bits + (bits & 1u);
    ASSERT_EQ(bfloat16_from(std::bit_cast<float>(middle)), even) << bits;
    ASSERT_EQ(bfloat16_from(std::bit_cast<float>(middle - 1)), bits);
    ASSERT_EQ(bfloat16_from(std::bit_cast<float>(middle + 1)), bits + 1);
  }
  EXPECT_EQ(from_bfloat16(bfloat16_from(257.0f)), 256.0f);
  EXPECT_EQ(from_bfloat16(bfloat16_from(259.0f)), 260.0f);
  EXPECT_EQ(bfloat16_from(std::numeric_limits<float>::max()), 0x7F80);
}

// A NaN whose payload lies in the bits that are cut off must not become infinity.
TEST(bfloat16, a_nan_with_a_low_payload_stays_nan) {
  EXPECT_TRUE(std::isnan(from_bfloat16(bfloat16_from(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(from_bfloat16(bfloat16_from(std::bit_cast<float>(0xFFFFFFFFu)))));
  EXPECT_TRUE(std::isnan(from_float16(float16_from(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace regard
