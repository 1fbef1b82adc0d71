// Numbers of nodes that compute in float, or in double where F64 comes in.
#pragma once

#include <string>
#include <type_traits>

#include "regard/dtype.h"

namespace regard::onnx {

template <class T>
Tensor<T> numbers(const AnyTensor& tensor, const std::string& what) {
  if constexpr (std::is_same_v<T, double>)
    return to_double(tensor, what);
  else
    return to_float(tensor, what);
}

// Results leave in the type of the inputs: halves compute in float and are
// rounded once, and Attention's softmax_precision may ask for double.
inline AnyTensor stored(const Tensor<float>& tensor, DType as) { return any_tensor(tensor, as); }
inline AnyTensor stored(const Tensor<double>& tensor, DType as) {
  if (as == DType::f64) return any_tensor(tensor);
  auto rounded = Tensor<float>::uninitialised(tensor.shape());
  for (Index i = 0; i < tensor.count(); ++i) rounded[i] = static_cast<float>(tensor[i]);
  return any_tensor(rounded, as);
}

}  // namespace regard::onnx
