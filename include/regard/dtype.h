// Storage types and tensors whose type is known at run time only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::size_t dtype_size(DType dtype);
// The names of the safetensors format: "F64", "F32", "F16", "BF16", "I64", ..., "BOOL".
const char* dtype_name(DType dtype);
// Throws ArgumentError for a name that is none of these.
DType dtype_from_name(const std::string& name);

// A packed tensor of any storage type, as files hold it.
struct AnyTensor {
  DType dtype = DType::f32;
  Shape shape;
  AlignedVector<std::byte> bytes;
};

// Exact widening of f32, f16 and bf16 (and f64 for to_double). Other types, or
// a narrowing that would lose bits silently, throw ArgumentError naming `what`.
Tensor<float> to_float(const AnyTensor& tensor, const std::string& what);
Tensor<double> to_double(const AnyTensor& tensor, const std::string& what);
// Any integer type.
Tensor<std::int64_t> to_int64(const AnyTensor& tensor, const std::string& what);
// BOOL only; nonzero bytes become 1.
Tensor<std::uint8_t> to_boolean(const AnyTensor& tensor, const std::string& what);

AnyTensor any_tensor(const Tensor<double>& tensor);
AnyTensor any_tensor(const Tensor<std::int64_t>& tensor);
// As BOOL.
AnyTensor any_boolean(const Tensor<std::uint8_t>& tensor);
// Rounds to nearest even where `as` is f16 or bf16; f32 and f64 are exact.
AnyTensor any_tensor(const Tensor<float>& tensor, DType as = DType::f32);

}  // namespace regard
