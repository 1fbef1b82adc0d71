#include "regard/safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "files.h"
#include "regard/file.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public ::testing::Test {
 protected:
  static std::string with_length(std::uint64_t length, const std::string& rest) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i & 255);
    return bytes + rest;
  }
  TensorFile read_bytes(const std::string& bytes) {
    write_file(path_, bytes);
    return read_safetensors(path_);
  }
  TensorFile read_header(const std::string& header, std::size_t data) {
    return read_bytes(with_length(header.size(), header + std::string(data, '\0')));
  }
  // The message names the file, holds `part`, and is one line.
  void expect_refused(const std::string& bytes, const std::string& part) {
    testing::expect_file_error(path_, part, [&] { read_bytes(bytes); });
  }
  void expect_header_refused(const std::string& header, std::size_t data, const std::string& part) {
    expect_refused(with_length(header.size(), header + std::string(data, '\0')), part);
  }

  const testing::Folder folder_;
  const std::string path_ = folder_ / "x.safetensors";
};

TEST_F(SafetensorsTest, what_was_written_is_read_back) {
  TensorFile file;
  file.tensors["b"] = any_tensor(Tensor<float>({2, 3}, {1, -2, 3.5f, 0, 5, 6}));
  file.tensors["a"] = any_tensor(Tensor<std::int64_t>({2}, {-1, 1LL << 40}));
  file.tensors["mask"] = any_boolean(Tensor<std::uint8_t>({3}, {1, 0, 1}));
  file.metadata["note"] = "h\u00e9";
  write_safetensors(path_, file);
  const TensorFile back = read_safetensors(path_);
  EXPECT_EQ(back.metadata, file.metadata);
  EXPECT_EQ(back.path, path_);
  ASSERT_EQ(back.tensors.size(), 3u);
  EXPECT_EQ(back.at("b").shape, (Shape{2, 3}));
  EXPECT_EQ(to_float(back.at("b"), "b")[2], 3.5f);
  EXPECT_EQ(to_int64(back.at("a"), "a")[1], 1LL << 40);
  EXPECT_EQ(to_boolean(back.at("mask"), "mask")[1], 0);
}

TEST_F(SafetensorsTest, bytes_are_those_of_the_format) {
  TensorFile file;
  file.tensors["x"] = any_tensor(Tensor<float>({1}, {1.0f}));
  write_safetensors(path_, file);
  std::string header = R"({"x":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_file(path_), with_length(header.size(), header + std::string("\0\0\x80\x3f", 4)));
}

TEST_F(SafetensorsTest, every_tensor_starts_at_a_multiple_of_its_size) {
  TensorFile file;
  file.tensors["a"] = any_boolean(Tensor<std::uint8_t>({3}, {1, 0, 1}));
  file.tensors["b"] = any_tensor(Tensor<double>({1}, {2.0}));
  write_safetensors(path_, file);
  EXPECT_NE(read_file(path_).find(R"("a":{"data_offsets":[8,11])"), std::string::npos);
  EXPECT_EQ(to_double(read_safetensors(path_).at("b"), "b")[0], 2.0);
}

TEST_F(SafetensorsTest, empty_and_scalar_tensors_are_accepted) {
  const TensorFile file = read_header(
      R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
      4);
  EXPECT_EQ(file.at("e").bytes.size(), 0u);
  EXPECT_EQ(file.at("s").bytes.size(), 4u);
  EXPECT_TRUE(file.at("s").shape.empty());
  EXPECT_TRUE(read_header("{}", 0).tensors.empty());
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,0]}})", 0, "takes 4 bytes");
}

TEST_F(SafetensorsTest, header_length_is_never_trusted) {
  expect_refused("", "0 bytes");
  expect_refused("1234567", "7 bytes");
  expect_refused(std::string(8, '\xff'), "limit");
  expect_refused(std::string(7, '\xff') + "\x7f", "limit");
  expect_refused(with_length(100'000'001, "{}"), "limit");
  expect_refused(with_length(100'000'000, "{}"), "truncated");
  expect_refused(with_length(0, ""), "doesn't start with {");
}

TEST_F(SafetensorsTest, header_that_is_not_json_in_utf8_is_refused) {
  expect_header_refused("{\"x\":", 0, "not valid JSON");
  expect_header_refused("{\"\xff\":1}", 0, "not valid JSON");
  expect_header_refused("[1]", 0, "doesn't start with {");
  expect_header_refused("{\"x\":1}", 0, "needs dtype");
  expect_header_refused("{\"__metadata__\":{\"a\":1}}", 0, "must be text");
}

TEST_F(SafetensorsTest, name_twice_is_refused_and_named) {
  const std::string one = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  expect_header_refused("{" + one + "," + one + "}", 4, "\"w\" occurs twice");
  expect_header_refused(R"({"w":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})", 4,
                        "\"dtype\" occurs");
}

TEST_F(SafetensorsTest, shape_larger_than_its_bytes_is_refused) {
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4, "takes 4000000 bytes");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                        "too large");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "whole numbers");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "whole numbers");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "data_offsets");
}

TEST_F(SafetensorsTest, overlaps_holes_and_spare_bytes_are_refused) {
  const auto two = [](const std::string& second) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":)" +
           second + "}}";
  };
  EXPECT_NO_THROW(read_header(two("[4,8]"), 8));
  expect_header_refused(two("[2,6]"), 8, "overlaps");
  expect_header_refused(two("[0,4]"), 8, "overlaps");
  expect_header_refused(two("[8,12]"), 12, "hole");
  expect_header_refused(two("[4,8]"), 7, "truncated");
  expect_header_refused(two("[4,8]"), 9, "belong to no tensor");
}

TEST_F(SafetensorsTest, unknown_dtype_is_refused_before_its_offsets_are_used) {
  expect_header_refused(R"({"x":{"dtype":"FOO","shape":[1],"data_offsets":[999999999,1000000003]}})", 4,
                        "unknown dtype \"FOO\"");
}

TEST_F(SafetensorsTest, other_kinds_of_file_are_recognised) {
  expect_refused("PK\x03\x04 and so on", "zip archive");
  expect_refused("version https://git-lfs.github.com/spec/v1\n", "Git LFS");
  EXPECT_THROW(read_safetensors(folder_ / "none"), FileError);
  EXPECT_THROW(read_safetensors(folder_.path()), FileError);
}

TEST_F(SafetensorsTest, writer_refuses_what_the_reader_would_refuse) {
  TensorFile file;
  file.tensors["\xff"] = any_tensor(Tensor<float>({1}, {1.0f}));
  EXPECT_THROW(write_safetensors(path_, file), FileError);
  file.tensors.clear();
  file.tensors["__metadata__"] = any_tensor(Tensor<float>({1}, {1.0f}));
  EXPECT_THROW(write_safetensors(path_, file), FileError);
  file.tensors.clear();
  file.tensors["x"] = any_tensor(Tensor<float>({1}, {1.0f}));
  file.tensors["x"].shape = {2};
  EXPECT_THROW(write_safetensors(path_, file), FileError);
  file.tensors.clear();
  file.metadata["big"] = std::string(100'000'001, 'x');
  EXPECT_THROW(write_safetensors(path_, file), FileError);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SafetensorsTest, missing_tensor_names_the_file_and_what_it_holds) {
  TensorFile file;
  file.path = "m.safetensors";
  file.tensors["q"];
  file.tensors["k"];
  try {
    file.at("v");
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "m.safetensors: no tensor \"v\"; it holds k, q");
  }
}

}  // namespace
}  // namespace regard
