#include "regard/npy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "files.h"
#include "regard/file.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

class NpyTest : public ::testing::Test {
 protected:
  // As the format's description spells a file of this version out.
  static std::string npy(int version, const std::string& header, const std::string& data) {
    std::string bytes = "\x93NUMPY";
    bytes += static_cast<char>(version);
    bytes += '\0';
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> 8 * i & 255);
    return bytes + header + data;
  }
  static std::string dict(const std::string& type, const std::string& order, const std::string& shape) {
    return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  }
  AnyTensor read_bytes(const std::string& bytes) {
    write_file(path_, bytes);
    return read_npy(path_);
  }
  void expect_refused(const std::string& bytes, const std::string& part) {
    testing::expect_file_error(path_, part, [&] { read_bytes(bytes); });
  }

  const testing::Folder folder_;
  const std::string path_ = folder_ / "x.npy";
};

const std::string int16_0_to_5("\0\0\1\0\2\0\3\0\4\0\5\0", 12);

TEST_F(NpyTest, all_three_formats_are_read) {
  for (int version : {1, 2, 3}) {
    const AnyTensor tensor = read_bytes(npy(version, dict("<i2", "False", "(2, 3)"), int16_0_to_5));
    EXPECT_EQ(tensor.dtype, DType::i16);
    EXPECT_EQ(tensor.shape, (Shape{2, 3}));
    const auto values = to_int64(tensor, "x");
    for (Index i = 0; i < 6; ++i) EXPECT_EQ(values[i], i);
  }
}

TEST_F(NpyTest, fortran_order_becomes_row_major) {
  // Columns (0,1), (2,3), (4,5): rows are 0 2 4 and 1 3 5.
  const auto values = to_int64(read_bytes(npy(1, dict("<i2", "True", "(2, 3)"), int16_0_to_5)), "x");
  const std::vector<std::int64_t> expected{0, 2, 4, 1, 3, 5};
  EXPECT_EQ(std::vector<std::int64_t>(values.values().begin(), values.values().end()), expected);
  // Entry [i,j,k] of [1,2,3] is number i + j + 2 k.
  const auto cube = to_int64(read_bytes(npy(1, dict("<i2", "True", "(1, 2, 3)"), int16_0_to_5)), "x");
  EXPECT_EQ(std::vector<std::int64_t>(cube.values().begin(), cube.values().end()), expected);
}

TEST_F(NpyTest, every_plain_type_is_read_by_its_name) {
  const std::pair<const char*, DType> types[] = {{"<f8", DType::f64}, {"<f4", DType::f32},    {"<f2", DType::f16},
                                                 {"<i8", DType::i64}, {"<i4", DType::i32},    {"|i1", DType::i8},
                                                 {"<u8", DType::u64}, {"<u4", DType::u32},    {"<u2", DType::u16},
                                                 {"|u1", DType::u8},  {"|b1", DType::boolean}};
  for (const auto& [name, dtype] : types)
    EXPECT_EQ(read_bytes(npy(1, dict(name, "False", "(1,)"), std::string(dtype_size(dtype), '\1'))).dtype, dtype);
  // 0x3c00 is 1 in half precision, 0xc000 is -2.
  const auto half = to_float(read_bytes(npy(1, dict("<f2", "False", "(2,)"), std::string("\0\x3c\0\xc0", 4))), "x");
  EXPECT_EQ(half[0], 1.0f);
  EXPECT_EQ(half[1], -2.0f);
}

TEST_F(NpyTest, scalars_and_empty_arrays_are_read) {
  EXPECT_TRUE(read_bytes(npy(1, dict("|u1", "False", "()"), "x")).shape.empty());
  EXPECT_EQ(read_bytes(npy(1, dict("<f4", "False", "(0, 7)"), "")).shape, (Shape{0, 7}));
  EXPECT_EQ(read_bytes(npy(1, dict("<f4", "True", "(7, 0)"), "")).shape, (Shape{7, 0}));
}

TEST_F(NpyTest, written_file_is_that_of_the_format) {
  write_npy(path_, any_tensor(Tensor<float>({2}, {1.0f, -2.0f})));
  const std::string bytes = read_file(path_);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\1\0", 8));
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_EQ(bytes.substr(10, header.size()), header);
  const std::size_t length = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((10 + length) % 64, 0u);
  EXPECT_EQ(bytes[10 + length - 1], '\n');
  EXPECT_EQ(bytes.substr(10 + length), std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
}

TEST_F(NpyTest, what_was_written_is_read_back) {
  write_npy(path_, any_tensor(Tensor<double>({2, 1, 2}, {1, 2.5, -3, 4})));
  const auto back = to_double(read_npy(path_), "x");
  EXPECT_EQ(back.shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(back[2], -3.0);
  write_npy(path_, any_tensor(Tensor<float>({0}), DType::f16));
  EXPECT_EQ(read_npy(path_).shape, (Shape{0}));
}

TEST_F(NpyTest, bad_files_give_one_clear_line) {
  expect_refused("", "no .npy file");
  expect_refused("PK\x03\x04", "no .npy file");
  expect_refused("\x93NUMPY", "truncated");
  expect_refused(std::string("\x93NUMPY\1\0\xff", 9), "truncated");
  expect_refused(std::string("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), "truncated");
  expect_refused(std::string("\x93NUMPY\4\0\0\0", 10), "format 4");
  expect_refused(npy(1, dict("<i2", "False", "(2, 3)"), "123"), "truncated");
  expect_refused(npy(1, dict("<i2", "False", "(2, 3)"), int16_0_to_5 + "x"), "after its numbers");
  expect_refused(npy(1, dict(">f4", "False", "(1,)"), "1234"), "big-endian");
  expect_refused(npy(1, dict("|O", "False", "(1,)"), "1234"), "'|O'");
  expect_refused(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"), "records");
  expect_refused(npy(1, dict("<f4", "False", "(4294967296, 4294967296)"), ""), "too large");
  expect_refused(npy(1, dict("<f4", "False", "(99999999999999999999,)"), ""), "too large");
  expect_refused(npy(1, dict("<f4", "False", "(-1,)"), ""), "malformed");
  expect_refused(npy(1, dict("<f4", "0", "(1,)"), "1234"), "malformed");
  expect_refused(npy(1, "{'descr': '<f4', 'shape': (1,)}", "1234"), "malformed");
  expect_refused(npy(1, "{'shape': (1,), 'descr': '<f4', 'shape': (1,)}", "1234"), "malformed");
}

TEST_F(NpyTest, writer_refuses_what_numpy_could_not_read) {
  EXPECT_THROW(write_npy(path_, any_tensor(Tensor<float>({1}), DType::bf16)), FileError);
  AnyTensor tensor = any_tensor(Tensor<float>({2}));
  tensor.shape = {3};
  EXPECT_THROW(write_npy(path_, tensor), FileError);
  EXPECT_FALSE(fs::exists(path_));
}

}  // namespace
}  // namespace regard
