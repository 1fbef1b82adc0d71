#include "regard/tensor.h"

#include <limits>

namespace regard {

std::string shape_text(const Index* sizes, std::size_t rank) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (axis > 0) text += ',';
    text += std::to_string(sizes[axis]);
  }
  return text + "]";
}

std::string shape_text(const Shape& shape) { return shape_text(shape.data(), shape.size()); }

Index element_count(const Shape& shape) {
  Index count = 1;
  bool has_zero = false;
  for (Index size : shape) {
    if (size < 0) throw ArgumentError("shape " + shape_text(shape) + " has a negative size");
    has_zero = has_zero || size == 0;
  }
  if (has_zero) return 0;
  for (Index size : shape) {
    if (count > std::numeric_limits<Index>::max() / size)
      throw ArgumentError("shape " + shape_text(shape) + " has more elements than 63 bits can count");
    count *= size;
  }
  return count;
}

}  // namespace regard
