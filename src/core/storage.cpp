#include "regard/storage.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "regard/error.h"

namespace regard {
namespace {

// One token of one head.
float quantize_token(const View<const float, 1>& from, std::int8_t* to) {
  float largest = 0.0f;
  for (Index d = 0; d < from.size(0); ++d) {
    if (!std::isfinite(from(d))) throw ArgumentError("quantize: x holds numbers that are not finite");
    largest = std::max(largest, std::abs(from(d)));
  }
  // No smaller than a normal number, which 255 steps can be told apart by.
  const float scale = largest == 0.0f ? 0.0f : std::max(largest / 127.0f, std::numeric_limits<float>::min());
  for (Index d = 0; d < from.size(0); ++d)
    to[d] = scale == 0.0f ? std::int8_t{0}
                          : static_cast<std::int8_t>(std::clamp(std::nearbyint(from(d) / scale), -127.0f, 127.0f));
  return scale;
}

}  // namespace

Quantized quantize(View<const float, 4> x) {
  Quantized result{Tensor<std::int8_t>::uninitialised({x.size(0), x.size(1), x.size(2), x.size(3)}),
                   Tensor<float>::uninitialised({x.size(0), x.size(1), x.size(2)})};
  if (x.empty()) return {std::move(result.values), Tensor<float>(result.scales.shape())};
  const View<std::int8_t, 4> values = result.values;
  const View<float, 3> scales = result.scales;
  for (Index b = 0; b < x.size(0); ++b)
    for (Index h = 0; h < x.size(1); ++h)
      for (Index i = 0; i < x.size(2); ++i) scales(b, h, i) = quantize_token(x[b][h][i], &values(b, h, i, 0));
  return result;
}

InputView::InputView(const View<const std::int8_t, 4>& values, const View<const float, 3>& scales)
    : data_(values.data()), sizes_(values.sizes()), strides_(values.strides()), dtype_(DType::i8), scales_(scales) {
  for (int axis = 0; axis < 3; ++axis)
    if (scales.size(axis) != values.size(axis))
      throw ArgumentError("InputView: int8 values " + values.text() + " need scales of their first three sizes, got " +
                          scales.text());
}

InputView InputView::every(Index batch, Index first, Index step, Index count) const {
  InputView part = *this;
  const Index offset = count == 0 ? 0 : batch * stride(0) + first * stride(2);
  part.data_ = static_cast<const char*>(data_) + offset * static_cast<Index>(dtype_size(dtype_));
  part.sizes_ = {1, sizes_[1], count, sizes_[3]};
  part.strides_[2] *= step;
  if (dtype_ == DType::i8)
    part.scales_ = {count == 0 ? scales_.data() : &scales_(batch, Index{0}, first),
                    {1, sizes_[1], count},
                    {scales_.stride(0), scales_.stride(1), scales_.stride(2) * step}};
  return part;
}

OutputView OutputView::every(Index batch, Index first, Index step, Index count) const {
  OutputView part = *this;
  const Index offset = count == 0 ? 0 : batch * stride(0) + first * stride(2);
  part.data_ = static_cast<char*>(data_) + offset * static_cast<Index>(dtype_size(dtype_));
  part.sizes_ = {1, sizes_[1], count, sizes_[3]};
  part.strides_[2] *= step;
  return part;
}

namespace {

template <class T>
Tensor<float> floats_of(const InputView& x) {
  const auto copy = packed(View<const T, 4>(static_cast<const T*>(x.data()), x.sizes(), x.strides()));
  auto result = Tensor<float>::uninitialised(copy.shape());
  std::transform(copy.values().begin(), copy.values().end(), result.values().begin(),
                 [](T value) { return static_cast<float>(value); });
  return result;
}

Tensor<float> scaled(Tensor<float> values, const View<const float, 3>& scales) {
  const Tensor<float> factors = packed(scales);
  const Index size = values.size(3);
  for (Index i = 0; i < values.count(); ++i) values[i] *= factors[i / size];
  return values;
}

InputView::Sizes sizes_of(const AnyTensor& tensor, const std::string& what) {
  if (tensor.shape.size() != 4)
    throw ArgumentError(what + " has shape " + shape_text(tensor.shape) + " but needs 4 dimensions");
  return {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3]};
}

[[noreturn]] void refuse_type(const AnyTensor& tensor, const std::string& what) {
  throw ArgumentError(what + " has dtype " + dtype_name(tensor.dtype) + " where F32, BF16 or F16 is needed");
}

}  // namespace

Tensor<float> to_float(const InputView& x) {
  switch (x.dtype()) {
    case DType::bf16: return floats_of<BFloat16>(x);
    case DType::f16: return floats_of<Float16>(x);
    case DType::i8: return scaled(floats_of<std::int8_t>(x), x.scales());
    default: return floats_of<float>(x);
  }
}

InputView input_view(const AnyTensor& tensor, const std::string& what) {
  const auto sizes = sizes_of(tensor, what);
  const void* data = tensor.bytes.data();
  switch (tensor.dtype) {
    case DType::f32: return View<const float, 4>(static_cast<const float*>(data), sizes);
    case DType::bf16: return View<const BFloat16, 4>(static_cast<const BFloat16*>(data), sizes);
    case DType::f16: return View<const Float16, 4>(static_cast<const Float16*>(data), sizes);
    default: refuse_type(tensor, what);
  }
}

OutputView output_view(AnyTensor& tensor, const std::string& what) {
  const auto sizes = sizes_of(tensor, what);
  void* data = tensor.bytes.data();
  switch (tensor.dtype) {
    case DType::f32: return View<float, 4>(static_cast<float*>(data), sizes);
    case DType::bf16: return View<BFloat16, 4>(static_cast<BFloat16*>(data), sizes);
    case DType::f16: return View<Float16, 4>(static_cast<Float16*>(data), sizes);
    default: refuse_type(tensor, what);
  }
}

}  // namespace regard
