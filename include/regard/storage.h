// What the operator reads and writes: strided tensors whose storage type is
// known at run time, so that q, k and v may each have a type of their own.
//
//   attend(q, quantize(k), quantize(v));      // float queries, int8 keys and values
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "regard/dtype.h"
#include "regard/half.h"
#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

// The element types that tensors of the operator are stored in.
template <class T>
constexpr bool is_stored = std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <class T>
requires is_stored<T>
constexpr DType storage_of = std::is_same_v<T, float>      ? DType::f32
                             : std::is_same_v<T, BFloat16> ? DType::bf16
                                                           : DType::f16;

// int8 numbers with one scale per head and token: element = value * scale.
struct Quantized {
  Tensor<std::int8_t> values;  // [batch, heads, length, size]
  Tensor<float> scales;        // [batch, heads, length]
};
// Symmetric, nearest, ties to even: scale = largest magnitude of the token's
// head / 127, so the largest error is scale / 2. A token of zeros has scale 0.
// Throws ArgumentError for numbers that are not finite.
Quantized quantize(View<const float, 4> x);

// Non-owning, any strides (elements): float, bfloat16, float16, or int8 with
// scales. Valid while what it looks at lives: of a temporary, to the end of the
// call, so name the tensor before you name the view.
class InputView {
 public:
  using Sizes = std::array<Index, 4>;

  InputView() = default;
  template <class T>
  requires is_stored<std::remove_const_t<T>> InputView(const View<T, 4>& view)  // NOLINT: implicit
      : data_(view.data()),
        sizes_(view.sizes()),
        strides_(view.strides()),
        dtype_(storage_of<std::remove_const_t<T>>) {}
  template <class T>
  requires is_stored<T> InputView(const Tensor<T>& tensor)  // NOLINT: implicit
      : InputView(tensor.template view<4>()) {}
  // Numbers in memory of yours.
  template <class T>
  requires is_stored<T> InputView(const T* data, Sizes sizes, Sizes strides)
      : InputView(View<const T, 4>(data, sizes, strides)) {}
  // scales [batch, heads, length] of values [batch, heads, length, size]; throws
  // ArgumentError when they don't fit.
  InputView(const View<const std::int8_t, 4>& values, const View<const float, 3>& scales);
  InputView(const Quantized& x) : InputView(x.values.view<4>(), x.scales.view<3>()) {}  // NOLINT: implicit

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  Index size(int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  Index stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  const View<const float, 3>& scales() const { return scales_; }  // int8 only
  // Rows first, first + step, ... of one batch entry: [1, heads, count, size].
  InputView every(Index batch, Index first, Index step, Index count) const;
  std::string text() const { return shape_text(sizes_.data(), 4); }

 private:
  const void* data_ = nullptr;
  Sizes sizes_{}, strides_{};
  DType dtype_ = DType::f32;
  View<const float, 3> scales_;
};

// The same for results: float, bfloat16 or float16. Numbers are rounded once,
// to nearest even, as they are written.
class OutputView {
 public:
  using Sizes = std::array<Index, 4>;

  OutputView() = default;
  template <class T>
  requires is_stored<T> OutputView(const View<T, 4>& view)  // NOLINT: implicit
      : data_(view.data()), sizes_(view.sizes()), strides_(view.strides()), dtype_(storage_of<T>) {}
  template <class T>
  requires is_stored<T> OutputView(Tensor<T>& tensor)  // NOLINT: implicit
      : OutputView(tensor.template view<4>()) {}

  template <class T>
  requires is_stored<T> OutputView(T* data, Sizes sizes, Sizes strides)
      : OutputView(View<T, 4>(data, sizes, strides)) {}

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  Index size(int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  Index stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  Index count() const { return sizes_[0] * sizes_[1] * sizes_[2] * sizes_[3]; }
  OutputView every(Index batch, Index first, Index step, Index count) const;  // as InputView's
  std::string text() const { return shape_text(sizes_.data(), 4); }

 private:
  void* data_ = nullptr;
  Sizes sizes_{}, strides_{};
  DType dtype_ = DType::f32;
};

// What the elements stand for, packed.
Tensor<float> to_float(const InputView& x);

// Rounded to nearest even.
template <class T>
requires is_stored<T> Tensor<T> rounded(const Tensor<float>& x) {
  auto result = Tensor<T>::uninitialised(x.shape());
  std::transform(x.values().begin(), x.values().end(), result.values().begin(), [](float value) { return T(value); });
  return result;
}

// Windows on a packed 4-D tensor of F32, BF16 or F16; what else it may be throws
// ArgumentError naming `what`.
InputView input_view(const AnyTensor& tensor, const std::string& what);
OutputView output_view(AnyTensor& tensor, const std::string& what);

}  // namespace regard
