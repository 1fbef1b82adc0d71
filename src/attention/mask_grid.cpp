// Neighbourhoods of image patches.
#include <algorithm>
#include <string>

#include "attention/mask_blocks.h"
#include "regard/error.h"
#include "regard/sparse_masks.h"

namespace regard {
namespace {

using detail::Span;

class NeighbourhoodRule final : public MaskRule {
 public:
  NeighbourhoodRule(const PatchGrid& grid, Index radius_y, Index radius_x)
      : grid_(grid), radius_y_(radius_y), radius_x_(radius_x) {}

  // Exact: rows of patches of the queries against those of the keys. In one row
  // of patches a block is a range of columns.
  Coverage coverage(const MaskBlock& block) const override {
    const Span queries = inside(detail::queries_of(block)), keys = inside(detail::keys_of(block));
    if (queries.first > queries.last || keys.first > keys.last) return Coverage::none;
    const bool all_patches = queries.last - queries.first + 1 == block.rows && keys.last - keys.first + 1 == block.keys;
    bool any = false, whole = all_patches;
    for (Index y = queries.first / grid_.width; y <= queries.last / grid_.width; ++y) {
      const Index first = std::max(y - radius_y_, keys.first / grid_.width);
      const Index last = std::min(y + radius_y_, keys.last / grid_.width);
      whole &= last - first == keys.last / grid_.width - keys.first / grid_.width;
      for (Index key_y = first; key_y <= last; ++key_y) {
        const Coverage one = of_columns(columns(queries, y), columns(keys, key_y));
        any |= one != Coverage::none;
        whole &= one == Coverage::all;
      }
      if (any && !whole) return Coverage::some;
    }
    return !any ? Coverage::none : whole ? Coverage::all : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const Index patches = grid_.height * grid_.width;
    for (Index r = 0; r < block.rows; ++r) {
      const Index query = block.q_start + block.row + r - grid_.first;
      std::uint8_t* row = visible + r * stride;
      for (Index j = 0; j < block.keys; ++j) {
        const Index key = block.key + j - grid_.first;
        row[j] &= query >= 0 && query < patches && key >= 0 && key < patches && sees(query, key);
      }
    }
  }

 private:
  bool sees(Index query, Index key) const {
    const Index y = query / grid_.width - key / grid_.width, x = query % grid_.width - key % grid_.width;
    return std::abs(y) <= radius_y_ && std::abs(x) <= radius_x_;
  }
  // Patches among positions.
  Span inside(const Span& positions) const {
    return {std::max<Index>(positions.first - grid_.first, 0),
            std::min(positions.last - grid_.first, grid_.height * grid_.width - 1)};
  }
  // Columns of row y that a range of patches has.
  Span columns(const Span& patches, Index y) const {
    return {std::max<Index>(patches.first - y * grid_.width, 0),
            std::min(patches.last - y * grid_.width, grid_.width - 1)};
  }
  Coverage of_columns(const Span& queries, const Span& keys) const {
    if (keys.first > queries.last + radius_x_ || keys.last < queries.first - radius_x_) return Coverage::none;
    const bool whole = keys.last <= queries.first + radius_x_ && keys.first >= queries.last - radius_x_;
    return whole ? Coverage::all : Coverage::some;
  }

  PatchGrid grid_;
  Index radius_y_, radius_x_;
};

}  // namespace

Mask neighbourhood(const PatchGrid& grid, Index radius_y, Index radius_x) {
  const auto fits = [](Index value, Index least) { return value >= least && value <= detail::longest_mask_length; };
  if (!fits(grid.height, 1) || !fits(grid.width, 1) || !fits(grid.first, 0))
    throw ArgumentError("neighbourhood: a grid of " + std::to_string(grid.height) + " x " + std::to_string(grid.width) +
                        " patches from position " + std::to_string(grid.first) + " does not exist");
  if (!fits(radius_y, 0) || !fits(radius_x, 0))
    throw ArgumentError("neighbourhood: radii must be 0 or above, got " + std::to_string(radius_y) + " and " +
                        std::to_string(radius_x));
  return Mask(std::make_shared<NeighbourhoodRule>(grid, radius_y, radius_x));
}

}  // namespace regard
