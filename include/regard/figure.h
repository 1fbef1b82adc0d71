// Figures for papers and slides: SVG, PNG and PDF as bytes, made by Pango and
// Cairo. Text stays text in SVG and PDF; the same input gives the same bytes.
#pragma once

#include <string>

#include "regard/heatmap.h"

namespace regard {

enum class FigureFormat { svg, png, pdf };

// From a file name's ending; throws ArgumentError for any other.
FigureFormat figure_format(const std::string& path);

constexpr double column_inches = 3.25;  // one column of a two-column paper
constexpr double page_inches = 6.75;    // both columns

struct FigureOptions {
  double width_inches = column_inches;  // more only where labels would be cut
  double font_points = 8;               // largest size; crowded labels go down to 5 before they thin out
  std::string font = "sans-serif";      // other scripts come from whatever font has them
  double dpi = 300;                     // PNG only
  bool transparent = false;             // else white
  bool caption = true;                  // written under the picture; always in the file's description
  bool numbers = true;                  // in cells with room for them (matrix only)
  double line_mass = 0.8;               // share of each row's weight that its lines carry (lines only)
};

// One head: title, labels on both axes, cells (vectors up to 64 x 64, one
// unsmoothed image above), scale bar with its meaning, caption. Throws
// ArgumentError for an empty map or options out of range.
std::string figure_matrix(const HeatMap& map, FigureFormat format, const FigureOptions& options = {});

// Layers down, heads across, one scale for all.
// Heads of more than 2048 cells a side in all are pooled (see pooled()), which
// the caption says.
std::string figure_grid(const HeatGrid& grid, FigureFormat format, const FigureOptions& options = {});

// One head as lines from queries (left) to keys (right): each row's strongest
// keys, until they carry line_mass of its weight; width and colour tell the
// weight. Throws ArgumentError above 2,000 lines and says what to do.
std::string figure_lines(const HeatMap& map, FigureFormat format, const FigureOptions& options = {});

}  // namespace regard
