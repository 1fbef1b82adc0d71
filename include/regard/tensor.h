// Tensor<T>: owns packed row-major numbers of any rank, aligned for SIMD.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/error.h"
#include "regard/view.h"

namespace regard {

using Shape = std::vector<Index>;

std::string shape_text(const Shape& shape);

// The number of elements; throws ArgumentError when it does not fit in 63 bits
// or a size is negative.
Index element_count(const Shape& shape);

namespace detail {
// Memory on a cache line. free_array is told the bytes that were asked for.
void* allocate_array(std::size_t bytes);
void free_array(void* place, std::size_t bytes);
constexpr std::size_t array_alignment = 64;
}  // namespace detail

// While one lives, the memory of large arrays (64 KiB and more) that go is kept
// for later ones of about the same size, in any thread; the last one to die
// gives all of it back. For loops that make the same tensors again and again,
// such as training: pages fresh from the system are slow to get. What is kept is
// at most the sum, over sizes, of what was in use at one time.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
};

// A vector's allocator that starts every array on a cache line and leaves
// numbers uninitialised unless a value is given.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  static_assert(alignof(T) <= detail::array_alignment);
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(std::size_t count) { return static_cast<T*>(detail::allocate_array(count * sizeof(T))); }
  void deallocate(T* pointer, std::size_t count) { detail::free_array(pointer, count * sizeof(T)); }
  template <class U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... A>
  void construct(U* place, A&&... arguments) {
    ::new (static_cast<void*>(place)) U(std::forward<A>(arguments)...);
  }
  bool operator==(const AlignedAllocator&) const { return true; }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

// Copying copies the numbers. A default-constructed tensor has shape [0]. T is any
// trivially copyable type but bool (use std::uint8_t for booleans).
template <class T>
class Tensor {
 public:
  Tensor() = default;
  // All zero.
  explicit Tensor(Shape shape) : shape_(std::move(shape)), values_(element_count(shape_), T{}) {}
  Tensor(Shape shape, T value) : shape_(std::move(shape)), values_(element_count(shape_), value) {}
  Tensor(Shape shape, std::initializer_list<T> values) : Tensor(std::move(shape), std::vector<T>(values)) {}
  Tensor(Shape shape, const std::vector<T>& values) : shape_(std::move(shape)), values_(values.begin(), values.end()) {
    if (element_count(shape_) != count())
      throw ArgumentError("Tensor: shape " + shape_text(shape_) + " does not hold " + std::to_string(count()) +
                          " values");
  }
  // The numbers are left uninitialised: for results that are written whole.
  static Tensor uninitialised(Shape shape) {  // NOLINT: it is moved from
    Tensor tensor;
    tensor.shape_ = std::move(shape);
    tensor.values_.resize(static_cast<std::size_t>(element_count(tensor.shape_)));
    return tensor;
  }

  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  // A negative axis counts from the end.
  Index size(int axis) const { return shape_[axis < 0 ? axis + shape_.size() : axis]; }
  Index count() const { return static_cast<Index>(values_.size()); }
  bool empty() const { return values_.empty(); }
  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  std::span<T> values() { return values_; }
  std::span<const T> values() const { return values_; }
  T& operator[](Index index) { return values_[static_cast<std::size_t>(index)]; }
  const T& operator[](Index index) const { return values_[static_cast<std::size_t>(index)]; }

  void fill(T value) { std::fill(values_.begin(), values_.end(), value); }
  // Same numbers, other shape; throws ArgumentError when the counts differ.
  void reshape(Shape shape) {
    if (element_count(shape) != count())
      throw ArgumentError("Tensor::reshape: " + shape_text(shape_) + " can't become " + shape_text(shape));
    shape_ = std::move(shape);
  }

  template <int Rank>
  View<T, Rank> view() {
    return {data(), sizes_of<Rank>()};
  }
  template <int Rank>
  View<const T, Rank> view() const {
    return {data(), sizes_of<Rank>()};
  }
  template <int Rank>
  operator View<T, Rank>() {  // NOLINT: implicit on purpose
    return view<Rank>();
  }
  template <int Rank>
  operator View<const T, Rank>() const {  // NOLINT: implicit on purpose
    return view<Rank>();
  }

  std::string text() const { return shape_text(shape_); }

 private:
  template <int Rank>
  std::array<Index, Rank> sizes_of() const {
    if (rank() != Rank)
      throw ArgumentError("Tensor: " + shape_text(shape_) + " is used where " + std::to_string(Rank) +
                          " dimensions are needed");
    std::array<Index, Rank> sizes;
    std::copy(shape_.begin(), shape_.end(), sizes.begin());
    return sizes;
  }

  Shape shape_{0};
  AlignedVector<T> values_;
};

// A packed copy of any view.
template <class T, int Rank>
Tensor<std::remove_const_t<T>> packed(const View<T, Rank>& view) {
  auto copy = Tensor<std::remove_const_t<T>>::uninitialised(Shape(view.sizes().begin(), view.sizes().end()));
  if (copy.empty()) return copy;
  auto* to = copy.data();
  auto walk = [&](auto&& self, int axis, Index offset) -> void {
    for (Index i = 0; i < view.size(axis); ++i) {
      const Index at = offset + i * view.stride(axis);
      if (axis + 1 == Rank)
        *to++ = view.data()[at];
      else
        self(self, axis + 1, at);
    }
  };
  walk(walk, 0, 0);
  return copy;
}

}  // namespace regard
