// Which panels of a tile anybody sees. Tiles are wide so that packing and the
// running softmax cost little; masks cut through them, and what a mask hides is not
// multiplied, panel by panel.
#pragma once

#include <array>

#include "attention/call.h"

namespace regard::detail {

// Keys [first, first + keys) of a tile, in panels of `width`; the last one may
// be shorter. No panel outside is seen by any row.
struct PanelCoverage {
  static constexpr Index most = widest_key_block / kernels::narrowest_panel;
  Index width = 0, first = 0, keys = 0;
  Coverage whole = Coverage::all;      // of all of them
  std::array<Coverage, most> of = {};  // one by one, unless all are seen whole

  Spot within(const Spot& tile) const { return {tile.b, tile.h, tile.row, tile.rows, tile.key + first, keys}; }
};

// Neighbouring panels that some row sees: keys [first, first + keys), counted from
// panels.first. Scores of a tile's runs stand side by side, those of a run from
// `column` on; what lies between runs is neither multiplied nor stored. That changes
// no bit: it would add zeros, and panels are whole vectors in every sum.
struct SeenRun {
  Index first, keys, column;

  Spot within(const PanelCoverage& panels, const Spot& tile) const {
    return {tile.b, tile.h, tile.row, tile.rows, tile.key + panels.first + first, keys};
  }
};

// f(run) for each of them, in order. Returns the columns of all.
template <class F>
Index for_seen_runs(const PanelCoverage& panels, F f) {
  Index columns = 0;
  const auto hidden = [&](Index key) {
    return panels.whole == Coverage::some && panels.of[static_cast<std::size_t>(key / panels.width)] == Coverage::none;
  };
  for (Index begin = 0; begin < panels.keys;) {
    Index end = begin;
    while (end < panels.keys && !hidden(end)) end += panels.width;
    const SeenRun run{begin, std::min(end, panels.keys) - begin, columns};
    if (run.keys > 0) f(run);
    columns += std::max<Index>(0, run.keys);
    for (begin = end; begin < panels.keys && hidden(begin);) begin += panels.width;
  }
  return columns;
}
// What a run's panels show.
PanelCoverage panels_of(const PanelCoverage& panels, const SeenRun& run);

// Keys [first, first + keys) of a tile.
inline kernels::Tile columns_of(const kernels::Tile& tile, Index first, Index keys) {
  return {tile.data + first, tile.stride, tile.rows, keys};
}

// keys = 0 if the mask hides the whole tile.
PanelCoverage seen_panels(const Call& call, const Spot& tile);
// A tile taken as one panel.
PanelCoverage one_panel(const Spot& tile, Coverage coverage);

// Scores of hidden pairs become -inf. `spot` is what panels.within says; some row sees
// each panel, or nobody sees any.
void hide_pairs(const Call& call, const Spot& spot, const PanelCoverage& panels, const kernels::Tile& scores,
                std::uint8_t* scratch);

}  // namespace regard::detail
