#include "regard/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "regard/error.h"
#include "regard/file.h"

namespace regard {
namespace {

using Json = nlohmann::json;

// The format's own limit; the writer keeps to it too, so that nothing is saved
// that can't be read back.
constexpr std::uint64_t header_limit = 100'000'000;
constexpr std::uint64_t length_bytes = 8;

struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape{};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Quoted and escaped: a name from a file can't break the one line of an error.
std::string quoted(const std::string& name) { return Json(name).dump(-1, ' ', true, Json::error_handler_t::replace); }

class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    if (!file_) throw FileError(path + ": can't be opened: " + std::strerror(errno));
    if (std::fseek(file_.get(), 0, SEEK_END) != 0) throw FileError(path + ": can't be read: not a plain file");
    const long end = std::ftell(file_.get());
    if (end < 0 || end == std::numeric_limits<long>::max()) throw FileError(path + ": can't be read: is a folder");
    size_ = static_cast<std::uint64_t>(end);
  }
  std::uint64_t size() const { return size_; }
  void read(std::uint64_t offset, void* to, std::uint64_t count) {
    if (count == 0) return;
    if (std::fseek(file_.get(), static_cast<long>(offset), SEEK_SET) != 0 ||
        std::fread(to, 1, count, file_.get()) != count)
      throw FileError(path_ + ": can't be read at byte " + std::to_string(offset));
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
};

std::uint64_t header_length(InputFile& file, const std::string& path) {
  unsigned char start[length_bytes] = {};
  file.read(0, start, std::min(file.size(), length_bytes));
  if (std::memcmp(start, "PK\3\4", 4) == 0)
    throw FileError(path + ": is a zip archive (a PyTorch or numpy file?), not safetensors; convert it first");
  if (std::memcmp(start, "version ", 8) == 0)
    throw FileError(path + ": looks like a Git LFS pointer, not safetensors; fetch the real file first");
  if (file.size() < length_bytes)
    throw FileError(path + ": is no safetensors file: " + std::to_string(file.size()) + " bytes, needs at least 8");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | start[i];
  if (length > header_limit)
    throw FileError(path + ": header of " + std::to_string(length) + " bytes, the limit is 100000000");
  if (length > file.size() - length_bytes)
    throw FileError(path + ": truncated: header of " + std::to_string(length) + " bytes in a file of " +
                    std::to_string(file.size()));
  return length;
}

// JSON keeps the last of two equal keys; here the second one is an error.
Json parse_header(const std::string& text, const std::string& path) {
  if (text.empty() || text[0] != '{')
    throw FileError(path + ": is no safetensors file: the header doesn't start with {");
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw FileError(path + ": the name " + quoted(value.get<std::string>()) + " occurs twice in the header");
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    throw FileError(path + ": the header is not valid JSON in UTF-8 (byte " + std::to_string(error.byte) + ")");
  }
}

std::uint64_t whole_number(const Json& value, const std::string& where) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > limit)
    throw FileError(where + ": sizes and offsets must be whole numbers from 0");
  return value.get<std::uint64_t>();
}

// The tensor's bytes; throws where they don't fit in 63 bits.
std::uint64_t byte_count(const Entry& entry, const std::string& where) {
  std::uint64_t count = dtype_size(entry.dtype);
  for (Index size : entry.shape)
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count) ||
        count > static_cast<std::uint64_t>(std::numeric_limits<Index>::max()))
      throw FileError(where + ": shape " + shape_text(entry.shape) + " is too large");
  return count;
}

Entry read_entry(const std::string& name, const Json& value, const std::string& path) {
  const std::string where = path + ": tensor " + quoted(name);
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets"))
    throw FileError(where + ": needs dtype, shape and data_offsets");
  const Json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    throw FileError(where + ": dtype, shape or data_offsets has the wrong type");
  Entry entry;
  entry.name = name;
  try {
    entry.dtype = dtype_from_name(dtype.get<std::string>());
  } catch (const ArgumentError&) {
    throw FileError(where + ": unknown dtype " + quoted(dtype.get<std::string>()));
  }
  for (const Json& size : shape) entry.shape.push_back(static_cast<Index>(whole_number(size, where)));
  entry.begin = whole_number(offsets[0], where);
  entry.end = whole_number(offsets[1], where);
  const std::uint64_t bytes = byte_count(entry, where);
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    throw FileError(where + ": " + shape_text(entry.shape) + " " + dtype_name(entry.dtype) + " takes " +
                    std::to_string(bytes) + " bytes, its data_offsets are [" + std::to_string(entry.begin) + ", " +
                    std::to_string(entry.end) + "]");
  return entry;
}

void read_metadata(const Json& value, TensorFile& file) {
  if (!value.is_object()) throw FileError(file.path + ": __metadata__ must be an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw FileError(file.path + ": __metadata__ " + quoted(key) + " must be text");
    file.metadata[key] = text.get<std::string>();
  }
}

// Every byte of the data belongs to exactly one tensor.
void check_ranges(std::vector<Entry>& entries, std::uint64_t data_size, const std::string& path) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered)
      throw FileError(path + ": tensor " + quoted(entry.name) +
                      (entry.begin < covered ? " overlaps the tensor before it" : " leaves a hole before it") +
                      " (begins at " + std::to_string(entry.begin) + ", expected " + std::to_string(covered) + ")");
    covered = entry.end;
  }
  if (covered != data_size)
    throw FileError(path + (covered > data_size ? ": truncated: " : ": has bytes that belong to no tensor: ") +
                    "the header describes " + std::to_string(covered) + " bytes of data, the file has " +
                    std::to_string(data_size));
}

std::vector<Entry> read_header(const Json& header, TensorFile& file) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      read_metadata(value, file);
    else
      entries.push_back(read_entry(name, value, file.path));
  }
  return entries;
}

void check_tensor(const std::string& name, const AnyTensor& tensor, const std::string& path) {
  const std::string where = path + ": tensor " + quoted(name);
  if (name == "__metadata__") throw FileError(where + ": this name is reserved");
  for (Index size : tensor.shape)
    if (size < 0) throw FileError(where + ": negative size in " + shape_text(tensor.shape));
  if (byte_count({.name = name, .dtype = tensor.dtype, .shape = tensor.shape}, where) != tensor.bytes.size())
    throw FileError(where + ": shape " + shape_text(tensor.shape) + " doesn't match its " +
                    std::to_string(tensor.bytes.size()) + " bytes");
}

using Named = std::pair<const std::string, AnyTensor>;

// Wide types first, so that every tensor starts at a multiple of its size.
std::vector<const Named*> data_order(const TensorFile& file) {
  std::vector<const Named*> order;
  for (const Named& named : file.tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return dtype_size(a->second.dtype) > dtype_size(b->second.dtype);
  });
  return order;
}

std::string header_text(const TensorFile& file, const std::vector<const Named*>& order, const std::string& path) {
  Json header = Json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  std::uint64_t offset = 0;
  for (const Named* named : order) {
    const auto& [name, tensor] = *named;
    check_tensor(name, tensor, path);
    const std::uint64_t end = offset + tensor.bytes.size();
    header[name] = {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw FileError(path + ": a tensor name or metadata text is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts on a multiple of 8
  if (text.size() > header_limit)
    throw FileError(path + ": header of " + std::to_string(text.size()) + " bytes, the limit is 100000000");
  return text;
}

}  // namespace

const AnyTensor& TensorFile::at(const std::string& name) const {
  if (const auto found = tensors.find(name); found != tensors.end()) return found->second;
  std::string names;
  std::size_t listed = 0;
  for (const auto& [held, tensor] : tensors) {
    if (++listed > 20) break;
    names += (names.empty() ? "" : ", ") + held;
  }
  if (tensors.size() > 20) names += ", and " + std::to_string(tensors.size() - 20) + " more";
  throw ArgumentError((path.empty() ? "TensorFile" : path) + ": no tensor " + quoted(name) + "; it holds " +
                      (names.empty() ? "none" : names));
}

TensorFile read_safetensors(const std::string& path) {
  InputFile input(path);
  const std::uint64_t length = header_length(input, path);
  std::string text(length, '\0');
  input.read(length_bytes, text.data(), length);
  TensorFile file;
  file.path = path;
  const Json header = parse_header(text, path);
  std::vector<Entry> entries = read_header(header, file);
  const std::uint64_t data_begin = length_bytes + length;
  check_ranges(entries, input.size() - data_begin, path);
  for (const Entry& entry : entries) {
    AnyTensor& tensor = file.tensors[entry.name];
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    tensor.bytes.resize(entry.end - entry.begin);
    input.read(data_begin + entry.begin, tensor.bytes.data(), entry.end - entry.begin);
  }
  return file;
}

void write_safetensors(const std::string& path, const TensorFile& file) {
  const std::vector<const Named*> order = data_order(file);
  const std::string header = header_text(file, order, path);
  std::size_t total = length_bytes + header.size();
  for (const Named* named : order) total += named->second.bytes.size();
  std::string bytes;
  bytes.reserve(total);
  for (std::uint64_t i = 0; i < length_bytes; ++i) bytes += static_cast<char>(header.size() >> 8 * i & 255);
  bytes += header;
  for (const Named* named : order)
    bytes.append(reinterpret_cast<const char*>(named->second.bytes.data()), named->second.bytes.size());
  write_file(path, bytes);
}

}  // namespace regard
