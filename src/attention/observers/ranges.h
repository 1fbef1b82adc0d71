// What the ranges of Observe mean for one call.
#pragma once

#include <algorithm>
#include <vector>

#include "attention/problem.h"

namespace regard::detail {

// Offsets query position - key: `count` of them from `first`.
struct Offsets {
  Index first, count;
};

inline Offsets offsets_of(const OffsetRange& range, const Sizes& sizes, const QueryStart& q_start) {
  Index first = 0, last = -1;
  const bool pairs = sizes.q_len > 0 && sizes.kv_len > 0;
  for (Index b = 0; pairs && b < sizes.batch; ++b) {
    const Index start = q_start.of(b, sizes.q_len, sizes.kv_len);
    first = b == 0 ? start - (sizes.kv_len - 1) : std::min(first, start - (sizes.kv_len - 1));
    last = b == 0 ? start + sizes.q_len - 1 : std::max(last, start + sizes.q_len - 1);
  }
  first = range.first.value_or(first);
  return {first, range.last.value_or(std::max(last, first - 1)) - first + 1};
}

// Where the cells of one axis of a pooled map begin and end.
inline std::vector<Index> even_bounds(Index length, Index cells) {
  std::vector<Index> bounds;
  for (Index cell = 0; cell <= cells; ++cell) bounds.push_back(cell * length / cells);
  return bounds;
}

inline SegmentBounds bounds_of(const MapSize& size, const Sizes& sizes) {
  return {even_bounds(sizes.q_len, size.rows), even_bounds(sizes.kv_len, size.columns)};
}

// The cell that holds `at`; of empty cells none does.
inline Index cell_that_holds(const std::vector<Index>& bounds, Index at) {
  return std::upper_bound(bounds.begin(), bounds.end(), at) - bounds.begin() - 1;
}

inline Index end_of(const QueryRange& range, const Sizes& sizes) { return range.end.value_or(sizes.q_len); }

}  // namespace regard::detail
