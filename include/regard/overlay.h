// Cross-attention laid over the picture it reads: where each character was read.
#pragma once

#include <string>
#include <vector>

#include "regard/figure.h"
#include "regard/terminal.h"

namespace regard {

// The picture once as it is, and under it once for every row of the map, its
// background in the colours of the row's weights and its ink in black or white,
// whichever reads better there; a frame around the patch of the largest weight.
// `map` is a cross-attention map over the picture's patches. Throws ArgumentError for
// a map of other sizes, a picture without pixels, or options out of range.
std::string figure_overlay(const HeatMap& map, const PatchedPicture& picture, FigureFormat format,
                           const FigureOptions& options = {});

// The picture, and under it a line for every row of each map, its weights below the
// pixels they belong to (of patches one over the other, the largest); one scale.
std::string terminal_overlay(const std::vector<HeatMap>& maps, const PatchedPicture& picture,
                             const TerminalOptions& options = {});

}  // namespace regard
