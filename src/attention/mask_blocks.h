// Arithmetic of mask rules over blocks of positions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "regard/mask.h"

namespace regard::detail {

// Far beyond any sequence, and products of two still fit.
constexpr Index longest_mask_length = Index{1} << 31;

// Rounded towards minus infinity; positions of queries may be negative.
inline Index floor_div(Index a, Index b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
inline Index modulo(Index a, Index b) { return a - floor_div(a, b) * b; }

// Positions first ... last.
struct Span {
  Index first, last;
};
inline Span queries_of(const MaskBlock& block) {
  return {block.q_start + block.row, block.q_start + block.row + block.rows - 1};
}
inline Span keys_of(const MaskBlock& block) { return {block.key, block.key + block.keys - 1}; }
inline Span blocks_of(const Span& positions, Index block) {
  return {floor_div(positions.first, block), floor_div(positions.last, block)};
}

// Clears what lies outside [begin, end) of a row of `keys` pairs.
inline void keep_only(std::uint8_t* row, Index keys, Index begin, Index end) {
  begin = std::clamp<Index>(begin, 0, keys);
  end = std::clamp(end, begin, keys);
  std::fill_n(row, begin, std::uint8_t{0});
  std::fill_n(row + end, keys - end, std::uint8_t{0});
}

}  // namespace regard::detail
