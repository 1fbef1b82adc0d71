// Which panels of a tile anybody sees. Tiles are wide so that packing and the
// running softmax cost little; masks cut through them, and what a mask hides at
// either side is not computed, panel by panel.
#pragma once

#include <array>

#include "attention/call.h"

namespace regard::detail {

// Keys [first, first + keys) of a tile, in panels of `width`; the last one may
// be shorter. No panel outside is seen by any row. Leaving hidden panels out
// changes no bit: they would add zeros.
struct PanelCoverage {
  static constexpr Index most = widest_key_block / kernels::narrowest_panel;
  Index width = 0, first = 0, keys = 0;
  Coverage whole = Coverage::all;      // of all of them
  std::array<Coverage, most> of = {};  // one by one, unless all are seen whole

  Spot within(const Spot& tile) const { return {tile.b, tile.h, tile.row, tile.rows, tile.key + first, keys}; }
};

// keys = 0 if the mask hides the whole tile.
PanelCoverage seen_panels(const Call& call, const Spot& tile);
// A tile taken as one panel.
PanelCoverage one_panel(const Spot& tile, Coverage coverage);

// Scores of hidden pairs become -inf. `spot` is what panels.within says.
void hide_pairs(const Call& call, const Spot& spot, const PanelCoverage& panels, const kernels::Tile& scores,
                std::uint8_t* scratch);

}  // namespace regard::detail
