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

  // In every row of patches a query sees one run of keys; the rest is hidden.
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const Span keys = inside(detail::keys_of(block));
    for (Index r = 0; r < block.rows; ++r) {
      const Index query = block.q_start + block.row + r - grid_.first;
      const bool is_patch = query >= 0 && query < grid_.height * grid_.width && keys.first <= keys.last;
      std::uint8_t* row = visible + r * stride;
      Index from = 0;
      for (Index y = keys.first / grid_.width; is_patch && y <= keys.last / grid_.width; ++y) {
        const Span run = run_of(query, y, keys);
        if (std::abs(query / grid_.width - y) > radius_y_ || run.first > run.last) continue;
        const Index begin = run.first + grid_.first - block.key;
        std::fill(row + from, row + begin, std::uint8_t{0});
        from = begin + run.last - run.first + 1;
      }
      std::fill(row + from, row + block.keys, std::uint8_t{0});
    }
  }

 private:
  // Patches of row y in the columns that a query sees, among `keys`.
  Span run_of(Index query, Index y, const Span& keys) const {
    const Index x = query % grid_.width;
    return {std::max(keys.first, y * grid_.width + std::max<Index>(0, x - radius_x_)),
            std::min(keys.last, y * grid_.width + std::min(grid_.width - 1, x + radius_x_))};
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
