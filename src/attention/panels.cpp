#include "attention/panels.h"

#include <algorithm>

namespace regard::detail {
namespace {

Spot keys_of(const Spot& tile, Index first, Index keys) {
  return {tile.b, tile.h, tile.row, tile.rows, tile.key + first, keys};
}

}  // namespace

PanelCoverage one_panel(const Spot& tile, Coverage coverage) {
  return {std::max<Index>(1, tile.keys), 0, coverage == Coverage::none ? 0 : tile.keys, coverage, {coverage}};
}

PanelCoverage seen_panels(const Call& call, const Spot& tile) {
  const Mask& mask = call.options.mask;
  const Coverage whole = mask.coverage(mask_block(call, tile));
  if (whole != Coverage::some) return one_panel(tile, whole);
  PanelCoverage panels{call.kernels.column_tile, 0, 0, whole, {}};
  Index count = 0;
  for (Index key = 0; key < tile.keys; key += panels.width) {
    const Index keys = std::min(panels.width, tile.keys - key);
    const Coverage coverage = mask.coverage(mask_block(call, keys_of(tile, key, keys)));
    if (panels.keys == 0 && coverage == Coverage::none) continue;
    if (panels.keys == 0) panels.first = key;
    panels.of[static_cast<std::size_t>(count++)] = coverage;
    if (coverage != Coverage::none) panels.keys = key + keys - panels.first;
  }
  return panels;
}

void hide_pairs(const Call& call, const Spot& spot, const PanelCoverage& panels, const kernels::Tile& scores,
                std::uint8_t* scratch) {
  if (panels.whole == Coverage::all) return;
  const auto is_whole = [&](Index key) {
    return panels.of[static_cast<std::size_t>(key / panels.width)] == Coverage::all;
  };
  for (Index begin = 0; begin < spot.keys; begin += panels.width) {
    if (is_whole(begin)) continue;
    Index end = begin + panels.width;
    while (end < spot.keys && !is_whole(end)) end += panels.width;
    end = std::min(end, spot.keys);
    call.options.mask.fill(mask_block(call, keys_of(spot, begin, end - begin)), scratch + begin, scores.stride);
    call.kernels.hide({scores.data + begin, scores.stride, scores.rows, end - begin}, scratch + begin, scores.stride);
    begin = end - panels.width;
  }
}

}  // namespace regard::detail
