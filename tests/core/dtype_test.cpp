// Storage types: names, sizes, exact widening, refusals.
#include "regard/dtype.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

template <class T>
AnyTensor stored(DType dtype, const std::vector<T>& values) {
  AnyTensor tensor{dtype, {static_cast<Index>(values.size())}, {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

using testing::message_of;

// Names and widths of the safetensors format.
TEST(dtype, names_and_sizes_are_those_of_the_format) {
  const std::vector<std::pair<std::string, std::size_t>> format{
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
      {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, size] : format) {
    EXPECT_EQ(dtype_name(dtype_from_name(name)), name);
    EXPECT_EQ(dtype_size(dtype_from_name(name)), size) << name;
  }
  EXPECT_EQ(message_of([] { dtype_from_name("FOO"); }), "unknown dtype 'FOO'");
  EXPECT_THROW(dtype_from_name("f32"), ArgumentError);
  EXPECT_THROW(dtype_from_name(""), ArgumentError);
}

TEST(dtype, floats_widen_exactly) {
  const std::vector<std::uint16_t> half{0x3C00, 0xC000, 0x0001, 0x7BFF}, brain{0x3F80, 0xC000, 0x0001, 0x7F7F};
  const auto a = to_float(stored(DType::f16, half), "x"), b = to_float(stored(DType::bf16, brain), "x");
  EXPECT_EQ((std::vector<float>(a.values().begin(), a.values().end())), (std::vector<float>{1, -2, 0x1p-24f, 65504}));
  EXPECT_EQ((std::vector<float>(b.values().begin(), b.values().end())),
            (std::vector<float>{1, -2, 0x1p-133f, 0x1.FEp127f}));
  EXPECT_EQ(to_double(stored(DType::f64, std::vector<double>{0.1}), "x")[0], 0.1);
  EXPECT_EQ(to_double(stored(DType::f32, std::vector<float>{0.1f}), "x")[0], static_cast<double>(0.1f));
}

TEST(dtype, a_conversion_that_would_lose_something_is_refused_by_name) {
  EXPECT_EQ(message_of([] { to_float(stored(DType::f64, std::vector<double>{1}), "weight"); }),
            "weight has dtype F64 where F32, F16 or BF16 is needed");
  EXPECT_EQ(message_of([] { to_double(stored(DType::i32, std::vector<std::int32_t>{1}), "weight"); }),
            "weight has dtype I32 where F64, F32, F16 or BF16 is needed");
  EXPECT_EQ(message_of([] { to_int64(stored(DType::f32, std::vector<float>{1}), "ids"); }),
            "ids has dtype F32 where integers are needed");
  EXPECT_EQ(message_of([] { to_boolean(stored(DType::u8, std::vector<std::uint8_t>{1}), "mask"); }),
            "mask has dtype U8 where BOOL is needed (true = may attend)");
  EXPECT_EQ(message_of([] { any_tensor(Tensor<float>({1}), DType::i8); }),
            "any_tensor: float numbers can't be stored as I8");
}

TEST(dtype, integers_of_every_width_keep_their_value) {
  EXPECT_EQ(to_int64(stored(DType::i8, std::vector<std::int8_t>{-128}), "x")[0], -128);
  EXPECT_EQ(to_int64(stored(DType::u8, std::vector<std::uint8_t>{255}), "x")[0], 255);
  EXPECT_EQ(to_int64(stored(DType::i16, std::vector<std::int16_t>{-32768}), "x")[0], -32768);
  EXPECT_EQ(to_int64(stored(DType::u16, std::vector<std::uint16_t>{65535}), "x")[0], 65535);
  EXPECT_EQ(to_int64(stored(DType::i32, std::vector<std::int32_t>{-7}), "x")[0], -7);
  EXPECT_EQ(to_int64(stored(DType::u32, std::vector<std::uint32_t>{4294967295u}), "x")[0], 4294967295);
  const Index most = std::numeric_limits<Index>::max();
  EXPECT_EQ(to_int64(stored(DType::i64, std::vector<Index>{-most}), "x")[0], -most);
  EXPECT_EQ(to_int64(stored(DType::u64, std::vector<std::uint64_t>{9223372036854775807u}), "x")[0], most);
}

TEST(dtype, an_unsigned_number_beyond_63_bits_is_refused_not_made_negative) {
  EXPECT_EQ(message_of([] { to_int64(stored(DType::u64, std::vector<std::uint64_t>{9223372036854775808u}), "ids"); }),
            "ids holds 9223372036854775808, more than 63 bits can hold");
}

TEST(dtype, a_shape_larger_than_its_bytes_is_refused) {
  AnyTensor tensor = stored(DType::f32, std::vector<float>{1, 2});
  tensor.shape = {3};
  EXPECT_EQ(message_of([&] { to_float(tensor, "x"); }), "a tensor of F32 [3] has 8 bytes");
  tensor.bytes.resize(11);
  EXPECT_EQ(message_of([&] { to_double(tensor, "x"); }), "a tensor of F32 [3] has 11 bytes");
}

TEST(dtype, booleans_are_zero_or_one) {
  const auto mask = to_boolean(stored(DType::boolean, std::vector<std::uint8_t>{0, 1, 255}), "mask");
  EXPECT_EQ((std::vector<std::uint8_t>(mask.values().begin(), mask.values().end())),
            (std::vector<std::uint8_t>{0, 1, 1}));
}

TEST(dtype, storing_rounds_only_where_the_type_is_shorter) {
  const Tensor<float> numbers({3}, {1.0f, 65520.0f, 257.0f});
  EXPECT_EQ(to_float(any_tensor(numbers), "x")[1], 65520.0f);
  EXPECT_EQ(to_double(any_tensor(numbers, DType::f64), "x")[2], 257.0);
  EXPECT_EQ(to_float(any_tensor(numbers, DType::bf16), "x")[2], 256.0f);
  EXPECT_EQ(to_float(any_tensor(numbers, DType::f16), "x")[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(any_tensor(numbers, DType::f16).bytes.size(), 6u);
  EXPECT_EQ(to_int64(any_tensor(Tensor<std::int64_t>({1}, {-5})), "x")[0], -5);
}

}  // namespace
}  // namespace regard
