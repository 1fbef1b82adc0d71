// Format: numpy.lib.format in NumPy's documentation. A magic string, a version,
// the header's length, a Python dictionary as text, then the numbers.
#include "regard/npy.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "regard/error.h"
#include "regard/file.h"

namespace regard {
namespace {

constexpr std::string_view magic{"\x93NUMPY", 6};

constexpr std::pair<std::string_view, DType> type_names[] = {
    {"<f8", DType::f64}, {"<f4", DType::f32}, {"<f2", DType::f16}, {"<i8", DType::i64},
    {"<i4", DType::i32}, {"<i2", DType::i16}, {"|i1", DType::i8},  {"<u8", DType::u64},
    {"<u4", DType::u32}, {"<u2", DType::u16}, {"|u1", DType::u8},  {"|b1", DType::boolean}};

struct Header {
  DType dtype = DType::f32;
  bool fortran = false;
  Shape shape{};
};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } and no
// other Python.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : rest_(text), path_(path) {}

  Header read() {
    Header header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !std::exchange(has_type, true))
        header.dtype = type();
      else if (key == "fortran_order" && !std::exchange(has_order, true))
        header.fortran = boolean();
      else if (key == "shape" && !std::exchange(has_shape, true))
        header.shape = tuple();
      else
        fail();
      if (!accept(',') && peek() != '}') fail();
    }
    if (!has_type || !has_order || !has_shape || peek() != '\0') fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    throw FileError(path_ + ": the .npy header is malformed: needs descr, fortran_order and shape, once each");
  }
  char peek() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_[0];
  }
  bool accept(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail();
  }
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail();
    const auto end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail();
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  DType type() {
    if (peek() == '[') throw FileError(path_ + ": holds records; only plain numbers can be read");
    std::string name(quoted());
    // A single byte has no order, whatever is written.
    if (name.ends_with('1') && name.starts_with('<')) name[0] = '|';
    for (const auto& [known, dtype] : type_names)
      if (known == name) return dtype;
    if (name.starts_with('>')) throw FileError(path_ + ": is big-endian; save it with a little-endian dtype");
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
    throw FileError(path_ + ": dtype '" + name.substr(0, 20) + "' can't be read; use bool, int, uint or float");
  }
  bool boolean() {
    peek();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return value;
      }
    fail();
  }
  Index number() {
    Index value = 0;
    if (!std::isdigit(static_cast<unsigned char>(peek()))) fail();
    for (; !rest_.empty() && std::isdigit(static_cast<unsigned char>(rest_[0])); rest_.remove_prefix(1))
      if (__builtin_mul_overflow(value, Index{10}, &value) ||
          __builtin_add_overflow(value, Index{rest_[0] - '0'}, &value))
        throw FileError(path_ + ": a size in the shape is too large");
    return value;
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(number());
      if (!accept(',') && peek() != ')') fail();
    }
    return shape;
  }

  std::string_view rest_;
  const std::string& path_;
};

std::size_t byte_count(const Header& header, const std::string& path) {
  std::size_t count = dtype_size(header.dtype);
  // A size of 0 makes the rest harmless, however large.
  if (std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end()) return 0;
  for (Index size : header.shape)
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(size), &count) ||
        count > static_cast<std::size_t>(std::numeric_limits<Index>::max()))
      throw FileError(path + ": shape " + shape_text(header.shape) + " is too large");
  return count;
}

// The header's text; what follows it are the numbers.
std::string_view take_header(std::string_view& bytes, const std::string& path) {
  if (!bytes.starts_with(magic)) throw FileError(path + ": is no .npy file: doesn't start with \\x93NUMPY");
  if (bytes.size() < 8) throw FileError(path + ": truncated: " + std::to_string(bytes.size()) + " bytes");
  const int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3) throw FileError(path + ": .npy format " + std::to_string(version) + " is unknown");
  const std::size_t field = version == 1 ? 2 : 4;
  bytes.remove_prefix(8);
  std::size_t length = 0;
  for (std::size_t i = std::min(field, bytes.size()); i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (bytes.size() < field || length > bytes.size() - field) throw FileError(path + ": truncated in its header");
  const std::string_view text = bytes.substr(field, length);
  bytes.remove_prefix(field + length);
  return text;
}

// From column-major to row-major.
void reorder(std::string_view from, AnyTensor& to) {
  const std::size_t item = dtype_size(to.dtype);
  Shape index(to.shape.size(), 0);
  std::size_t written = 0;
  for (; written < to.bytes.size(); written += item) {
    Index offset = 0, stride = 1;
    for (std::size_t axis = 0; axis < index.size(); ++axis) {
      offset += index[axis] * stride;
      stride *= to.shape[axis];
    }
    std::memcpy(to.bytes.data() + written, from.data() + static_cast<std::size_t>(offset) * item, item);
    for (std::size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < to.shape[axis]) break;
      index[axis] = 0;
    }
  }
}

std::string header_text(const std::string_view type, const Shape& shape) {
  std::string text = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis ? ", " : "") + std::to_string(shape[axis]) + (shape.size() == 1 ? "," : "");
  text += "), }";
  // With the ten bytes before it the numbers start on a multiple of 64.
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  return text + "\n";
}

}  // namespace

AnyTensor read_npy(const std::string& path) {
  const std::string file = read_file(path);
  std::string_view bytes = file;
  const std::string_view text = take_header(bytes, path);
  const Header header = HeaderReader(text, path).read();
  if (const std::size_t need = byte_count(header, path); need != bytes.size())
    throw FileError(path + (need > bytes.size() ? ": truncated: " : ": has bytes after its numbers: ") +
                    shape_text(header.shape) + " " + dtype_name(header.dtype) + " takes " + std::to_string(need) +
                    " bytes, the file has " + std::to_string(bytes.size()));
  AnyTensor tensor{.dtype = header.dtype, .shape = header.shape, .bytes = {}};
  tensor.bytes.resize(bytes.size());
  if (header.fortran && header.shape.size() > 1)
    reorder(bytes, tensor);
  else if (!bytes.empty())
    std::memcpy(tensor.bytes.data(), bytes.data(), bytes.size());
  return tensor;
}

void write_npy(const std::string& path, const AnyTensor& tensor) {
  std::string_view type;
  for (const auto& [name, dtype] : type_names)
    if (dtype == tensor.dtype) type = name;
  if (type.empty()) throw FileError(path + ": NumPy has no type for " + dtype_name(tensor.dtype) + "; save it as F32");
  for (Index size : tensor.shape)
    if (size < 0) throw FileError(path + ": negative size in " + shape_text(tensor.shape));
  if (byte_count({.dtype = tensor.dtype, .shape = tensor.shape}, path) != tensor.bytes.size())
    throw FileError(path + ": shape " + shape_text(tensor.shape) + " doesn't match its " +
                    std::to_string(tensor.bytes.size()) + " bytes");
  const std::string header = header_text(type, tensor.shape);
  if (header.size() > 0xffff) throw FileError(path + ": " + std::to_string(tensor.shape.size()) + " axes are too many");
  std::string bytes(magic);
  bytes += {'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  write_file(path, bytes);
}

}  // namespace regard
