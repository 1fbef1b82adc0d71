#include "regard/dtype.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "regard/half.h"

namespace regard {
namespace {

struct TypeFacts {
  DType dtype;
  const char* name;
  std::size_t size;
};
constexpr std::array<TypeFacts, 13> types{{{DType::f64, "F64", 8},
                                           {DType::f32, "F32", 4},
                                           {DType::f16, "F16", 2},
                                           {DType::bf16, "BF16", 2},
                                           {DType::i64, "I64", 8},
                                           {DType::i32, "I32", 4},
                                           {DType::i16, "I16", 2},
                                           {DType::i8, "I8", 1},
                                           {DType::u64, "U64", 8},
                                           {DType::u32, "U32", 4},
                                           {DType::u16, "U16", 2},
                                           {DType::u8, "U8", 1},
                                           {DType::boolean, "BOOL", 1}}};

template <class Stored, class To, class Convert>
Tensor<To> converted(const AnyTensor& tensor, Convert convert) {
  auto result = Tensor<To>::uninitialised(tensor.shape);
  if (tensor.bytes.size() / sizeof(Stored) != static_cast<std::size_t>(result.count()))
    throw ArgumentError(std::string("a tensor of ") + dtype_name(tensor.dtype) + " " + shape_text(tensor.shape) +
                        " has " + std::to_string(tensor.bytes.size()) + " bytes");
  for (Index i = 0; i < result.count(); ++i) {
    Stored stored;
    std::memcpy(&stored, tensor.bytes.data() + static_cast<std::size_t>(i) * sizeof stored, sizeof stored);
    result[i] = convert(stored);
  }
  return result;
}

template <class To>
Tensor<To> widened(const AnyTensor& tensor, const std::string& what, const char* wanted) {
  switch (tensor.dtype) {
    case DType::f32: return converted<float, To>(tensor, [](float x) { return static_cast<To>(x); });
    case DType::f16:
      return converted<std::uint16_t, To>(tensor, [](std::uint16_t x) { return static_cast<To>(from_float16(x)); });
    case DType::bf16:
      return converted<std::uint16_t, To>(tensor, [](std::uint16_t x) { return static_cast<To>(from_bfloat16(x)); });
    default: throw ArgumentError(what + " has dtype " + dtype_name(tensor.dtype) + " where " + wanted + " is needed");
  }
}

template <class Stored>
Tensor<std::int64_t> integers(const AnyTensor& tensor) {
  return converted<Stored, std::int64_t>(tensor, [](Stored x) { return static_cast<std::int64_t>(x); });
}

Tensor<std::int64_t> unsigned_integers(const AnyTensor& tensor, const std::string& what) {
  return converted<std::uint64_t, std::int64_t>(tensor, [&](std::uint64_t x) {
    if (x > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      throw ArgumentError(what + " holds " + std::to_string(x) + ", more than 63 bits can hold");
    return static_cast<std::int64_t>(x);
  });
}

template <class T>
AnyTensor copied(const Tensor<T>& tensor, DType dtype) {
  AnyTensor any{dtype, tensor.shape(), {}};
  any.bytes.resize(static_cast<std::size_t>(tensor.count()) * sizeof(T));
  if (!tensor.empty()) std::memcpy(any.bytes.data(), tensor.data(), any.bytes.size());
  return any;
}

}  // namespace

std::size_t dtype_size(DType dtype) { return types[static_cast<std::size_t>(dtype)].size; }
const char* dtype_name(DType dtype) { return types[static_cast<std::size_t>(dtype)].name; }

DType dtype_from_name(const std::string& name) {
  for (const TypeFacts& type : types)
    if (name == type.name) return type.dtype;
  throw ArgumentError("unknown dtype '" + name + "'");
}

Tensor<float> to_float(const AnyTensor& tensor, const std::string& what) {
  return widened<float>(tensor, what, "F32, F16 or BF16");
}

Tensor<double> to_double(const AnyTensor& tensor, const std::string& what) {
  if (tensor.dtype == DType::f64) return converted<double, double>(tensor, [](double x) { return x; });
  return widened<double>(tensor, what, "F64, F32, F16 or BF16");
}

Tensor<std::int64_t> to_int64(const AnyTensor& tensor, const std::string& what) {
  switch (tensor.dtype) {
    case DType::i64: return integers<std::int64_t>(tensor);
    case DType::i32: return integers<std::int32_t>(tensor);
    case DType::i16: return integers<std::int16_t>(tensor);
    case DType::i8: return integers<std::int8_t>(tensor);
    case DType::u64: return unsigned_integers(tensor, what);
    case DType::u32: return integers<std::uint32_t>(tensor);
    case DType::u16: return integers<std::uint16_t>(tensor);
    case DType::u8: return integers<std::uint8_t>(tensor);
    default: throw ArgumentError(what + " has dtype " + dtype_name(tensor.dtype) + " where integers are needed");
  }
}

Tensor<std::uint8_t> to_boolean(const AnyTensor& tensor, const std::string& what) {
  if (tensor.dtype != DType::boolean)
    throw ArgumentError(what + " has dtype " + dtype_name(tensor.dtype) + " where BOOL is needed (true = may attend)");
  return converted<std::uint8_t, std::uint8_t>(tensor,
                                               [](std::uint8_t x) { return static_cast<std::uint8_t>(x != 0); });
}

AnyTensor any_tensor(const Tensor<double>& tensor) { return copied(tensor, DType::f64); }
AnyTensor any_tensor(const Tensor<std::int64_t>& tensor) { return copied(tensor, DType::i64); }
AnyTensor any_boolean(const Tensor<std::uint8_t>& tensor) { return copied(tensor, DType::boolean); }

AnyTensor any_tensor(const Tensor<float>& tensor, DType as) {
  if (as == DType::f32) return copied(tensor, as);
  if (as == DType::f64) {
    auto wide = Tensor<double>::uninitialised(tensor.shape());
    for (Index i = 0; i < wide.count(); ++i) wide[i] = static_cast<double>(tensor[i]);
    return copied(wide, as);
  }
  if (as != DType::f16 && as != DType::bf16)
    throw ArgumentError(std::string("any_tensor: float numbers can't be stored as ") + dtype_name(as));
  auto half = Tensor<std::uint16_t>::uninitialised(tensor.shape());
  for (Index i = 0; i < half.count(); ++i)
    half[i] = as == DType::f16 ? float16_from(tensor[i]) : bfloat16_from(tensor[i]);
  return copied(half, as);
}

}  // namespace regard
