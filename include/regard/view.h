// View<T, Rank>: a strided, non-owning window on memory; the type every kernel
// and every layer takes. Index arithmetic is 64-bit throughout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace regard {

using Index = std::int64_t;

// "[2,8,16,64]": how shapes are written in every message.
std::string shape_text(const Index* sizes, std::size_t rank);

// Strides count elements, not bytes; 0 (broadcast) and negative ones are fine
// for reading. A default-constructed view has no data and all sizes 0.
template <class T, int Rank>
class View {
 public:
  using Sizes = std::array<Index, Rank>;

  View() = default;
  View(T* data, Sizes sizes, Sizes strides) : data_(data), sizes_(sizes), strides_(strides) {}
  // Packed, row-major.
  View(T* data, Sizes sizes) : data_(data), sizes_(sizes) {
    Index stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      strides_[axis] = stride;
      stride *= sizes_[axis];
    }
  }
  // View<T> reads as View<const T>.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_const_v<U>)
      View(const View<U, Rank>& other)  // NOLINT: implicit on purpose
      : data_(other.data()), sizes_(other.sizes()), strides_(other.strides()) {}

  T* data() const { return data_; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  Index size(int axis) const { return sizes_[axis]; }
  Index stride(int axis) const { return strides_[axis]; }
  Index count() const {
    Index product = 1;
    for (Index size : sizes_) product *= size;
    return product;
  }
  bool empty() const { return count() == 0; }
  // True where the view was given at all (a view of size 0 may still be given).
  bool given() const { return data_ != nullptr || sizes_ != Sizes{}; }

  template <class... I>
  requires(sizeof...(I) == Rank) T& operator()(I... index) const {
    return data_[offset(std::array<Index, Rank>{static_cast<Index>(index)...})];
  }

  // The view of one entry along the first axis.
  View<T, Rank - 1> operator[](Index index) const requires(Rank > 1) {
    std::array<Index, Rank - 1> sizes, strides;
    for (int axis = 1; axis < Rank; ++axis) {
      sizes[axis - 1] = sizes_[axis];
      strides[axis - 1] = strides_[axis];
    }
    return {data_ + index * strides_[0], sizes, strides};
  }

  // Entries [begin, end) of one axis.
  View slice(int axis, Index begin, Index end) const {
    View part = *this;
    part.data_ = data_ + begin * strides_[axis];
    part.sizes_[axis] = end - begin;
    return part;
  }

  // The same elements with two axes exchanged; nothing is copied.
  View transposed(int a, int b) const {
    View swapped = *this;
    std::swap(swapped.sizes_[a], swapped.sizes_[b]);
    std::swap(swapped.strides_[a], swapped.strides_[b]);
    return swapped;
  }

  std::string text() const { return shape_text(sizes_.data(), Rank); }

 private:
  Index offset(const Sizes& index) const {
    Index sum = 0;
    for (int axis = 0; axis < Rank; ++axis) sum += index[axis] * strides_[axis];
    return sum;
  }

  T* data_ = nullptr;
  Sizes sizes_{};
  Sizes strides_{};
};

}  // namespace regard
