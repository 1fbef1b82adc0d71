// What formulas and measurements of cost agree on beyond their problem.
#pragma once

#include <algorithm>

#include "regard/view.h"

namespace regard::detail {

constexpr Index reformer_chunk = 64;
constexpr Index feature_rows = 64;  // rows whose features are in the works at once

inline Index reformer_rounds(Index budget) { return std::max<Index>(1, budget / reformer_chunk); }
// A bucket for every chunk; an even number, since each direction has its opposite.
inline Index reformer_buckets_of(Index n) { return std::max<Index>(2, n / reformer_chunk / 2 * 2); }

}  // namespace regard::detail
