// Attention in a terminal. Every function returns the text to print.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regard/heatmap.h"
#include "regard/trace.h"

namespace regard {

enum class ColourDepth { none, sixteen, indexed, truecolour };  // indexed: 256 colours

// What is known about the place the text goes to; nothing is looked up.
struct TerminalFacts {
  bool is_terminal = false;                     // isatty(stdout)
  std::optional<std::string> term = {};         // $TERM, nullopt when unset
  std::optional<std::string> colour_term = {};  // $COLORTERM
  std::optional<std::string> no_colour = {};    // $NO_COLOR: any non-empty value means none
};

// None for pipes, NO_COLOR and dumb terminals.
ColourDepth colour_depth(const TerminalFacts& facts);

constexpr int narrowest_terminal = 20;  // columns; what is made for fewer takes as many

struct TerminalOptions {
  int width = 80;                         // columns; pictures never exceed it
  ColourDepth depth = ColourDepth::none;  // none: numbers, or characters where numbers don't fit
};

// One head: title, labels on both axes, scale. Up to 24 x 24 that fit the width
// one cell of two columns per pair; beyond, half-blocks (two rows a line), each
// cell the largest of several weights where even those don't fit.
std::string terminal_heat_map(const HeatMap& map, const TerminalOptions& options = {});

// Several heads side by side as the width permits, one scale below.
std::string terminal_heat_maps(const std::vector<HeatMap>& maps, const TerminalOptions& options = {});

// All heads of a kind, a line of pictures a layer as far as the width permits.
std::string terminal_heat_grid(const HeatGrid& grid, const TerminalOptions& options = {});

// Plain text as lines of at most `width` columns.
std::string terminal_wrapped(const std::string& text, int width);

// Rows of cells, the first of them headings: columns two apart, the first flush
// left, the others right. Where that is wider than `width`, a paragraph a row:
// "first: heading value, heading value".
std::string terminal_table(const std::vector<std::vector<std::string>>& rows, int width);

// What a trace holds, one line for layers of one kind and shape:
// "cross-attention: layers 0 to 3, 4 heads, 8 queries × 9 keys".
std::string terminal_contents(const Trace& trace);

struct ScreenOptions {
  int width = 80;  // below 48 the table of keys has fewer columns
  ColourDepth depth = ColourDepth::none;
  // Defaults: cross-attention where the trace has it, else decoder, else encoder.
  std::optional<AttentionKind> kind = {};
  std::optional<Index> layer = {};  // default: the last
  // Default: text and keys by the mean of the heads, the matrix of the head
  // that gives the strongest key most.
  std::optional<Index> head = {};
  // Default: the first symbol produced (cross), the last token (decoder), the
  // first (encoder).
  std::optional<Index> query = {};
  std::size_t top_keys = 5;
  HeatMapOptions map = {};
};

// What does this token look at? The text with the selected query marked and its
// keys shaded, the strongest keys, a map of all heads by how focused they are,
// and one head's matrix. Throws ArgumentError for an empty trace or a layer,
// head or query that it lacks.
std::string terminal_first_screen(const Trace& trace, const ScreenOptions& options = {});

}  // namespace regard
