// Whether two strided windows have an element in common.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>

#include "regard/storage.h"

namespace regard::detail {

// What two views of any kind are compared by.
struct Window {
  using Four = std::array<Index, 4>;

  template <class AnyView>
  requires std::same_as<AnyView, InputView> || std::same_as<AnyView, OutputView> Window(
      const AnyView& x)  // NOLINT: implicit
      : start(static_cast<const char*>(x.data())),
        sizes(x.sizes()),
        strides(x.strides()),
        bytes(static_cast<Index>(dtype_size(x.dtype()))) {}

  template <class T>
  Window(const View<T, 4>& x)  // NOLINT: implicit
      : Window(InputView(x)) {}

  bool empty() const { return std::find(sizes.begin(), sizes.end(), 0) != sizes.end(); }

  const char* start;
  Four sizes, strides;  // strides in elements
  Index bytes;          // of an element
};

// Exact for every layout in use: columns of one packed tensor lie apart although
// their addresses interleave, and stride 0 stays in its place. Strides so irregular
// that the question takes too long count as sharing.
bool share_memory(const Window& a, const Window& b);

}  // namespace regard::detail
