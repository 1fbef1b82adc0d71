// What the passes and the definition of Nystrom attention share: checks, and where
// landmarks lie.
#pragma once

#include <algorithm>

#include "attention/problem.h"
#include "regard/nystrom.h"

namespace regard::detail {

// Throws ArgumentError beginning with `call`.
template <class T>
Sizes check_nystrom(const char* call, const NystromInputs<T>& in);

inline bool is_real(const NystromOptions& options, Index b, Index token) {
  const auto& mask = options.key_mask;
  return !mask.given() || mask(mask.size(0) == 1 ? 0 : b, token) != 0;
}

// Segment n of the tokens: [first(n), first(n + 1)).
struct Segments {
  Index length, count;
  Segments(const Sizes& sizes, const NystromOptions& options)
      : length(sizes.q_len), count(std::min(options.landmarks, sizes.q_len)) {}
  Index first(Index n) const { return n * length / count; }
};

}  // namespace regard::detail
