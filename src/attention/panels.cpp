#include "attention/panels.h"

#include <algorithm>
#include <limits>

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

PanelCoverage panels_of(const PanelCoverage& panels, const SeenRun& run) {
  PanelCoverage part{panels.width, 0, run.keys, Coverage::all, {}};
  if (panels.whole == Coverage::all) return part;
  const Index first = run.first / panels.width, count = (run.keys + panels.width - 1) / panels.width;
  for (Index n = 0; n < count; ++n) {
    const Coverage coverage = panels.of[static_cast<std::size_t>(first + n)];
    part.of[static_cast<std::size_t>(n)] = coverage;
    if (coverage != Coverage::all) part.whole = Coverage::some;
  }
  return part;
}

void hide_pairs(const Call& call, const Spot& spot, const PanelCoverage& panels, const kernels::Tile& scores,
                std::uint8_t* scratch) {
  if (panels.whole == Coverage::all) return;
  if (panels.whole == Coverage::none) {
    for (Index i = 0; i < scores.rows; ++i)
      std::fill_n(scores.data + i * scores.stride, scores.keys, -std::numeric_limits<float>::infinity());
    return;
  }
  const auto in_part = [&](Index key) {
    return panels.of[static_cast<std::size_t>(key / panels.width)] == Coverage::some;
  };
  for (Index begin = 0; begin < spot.keys;) {
    Index end = begin;
    while (end < spot.keys && in_part(end)) end += panels.width;
    if (const Index keys = std::min(end, spot.keys) - begin; keys > 0) {
      call.options.mask.fill(mask_block(call, keys_of(spot, begin, keys)), scratch + begin, scores.stride);
      call.kernels.hide(columns_of(scores, begin, keys), scratch + begin, scores.stride);
    }
    begin = end == begin ? begin + panels.width : end;
  }
}

}  // namespace regard::detail
