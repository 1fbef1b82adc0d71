#include "regard/terminal.h"

#include <algorithm>

#include "view/terminal_block.h"

namespace regard {
namespace {

using terminal::Block;

bool mentions(const std::optional<std::string>& text, const char* part) {
  return text && text->find(part) != std::string::npos;
}

int usable(int width) { return std::max(width, 20); }

void append(Block& block, const Block& more) { block.insert(block.end(), more.begin(), more.end()); }

// Heads on a pipe would each take the whole width with their numbers, so that
// several share it as characters only when they don't fit one under the other.
Block pictures(const std::vector<HeatMap>& maps, int width, ColourDepth depth) {
  std::vector<Block> blocks;
  for (const HeatMap& map : maps) blocks.push_back(terminal::titled_picture(map, width, depth));
  return terminal::side_by_side(blocks, width, depth);
}

}  // namespace

ColourDepth colour_depth(const TerminalFacts& facts) {
  if (!facts.is_terminal || (facts.no_colour && !facts.no_colour->empty())) return ColourDepth::none;
  if (!facts.term || facts.term->empty() || *facts.term == "dumb") return ColourDepth::none;
  if (mentions(facts.colour_term, "truecolor") || mentions(facts.colour_term, "24bit")) return ColourDepth::truecolour;
  if (mentions(facts.term, "direct") || mentions(facts.term, "truecolor")) return ColourDepth::truecolour;
  if (mentions(facts.term, "256color")) return ColourDepth::indexed;
  return ColourDepth::sixteen;
}

std::string terminal_heat_map(const HeatMap& map, const TerminalOptions& options) {
  const int width = usable(options.width);
  Block block = terminal::titled_picture(map, width, options.depth);
  append(block, terminal::scale_bar(map, width, options.depth));
  append(block, terminal::wrapped(map.caption, width, options.depth));
  if (const std::string verdict = sink_verdict(map); !verdict.empty())
    append(block, terminal::wrapped(verdict, width, options.depth));
  return terminal::text(block);
}

std::string terminal_heat_maps(const std::vector<HeatMap>& maps, const TerminalOptions& options) {
  if (maps.empty()) return "";
  const int width = usable(options.width);
  Block block = pictures(maps, width, options.depth);
  append(block, terminal::scale_bar(maps[0], width, options.depth));
  return terminal::text(block);
}

std::string terminal_heat_grid(const HeatGrid& grid, const TerminalOptions& options) {
  const int width = usable(options.width);
  Block block;
  block.emplace_back(options.depth);
  block[0].bold(grid.title);
  for (const std::vector<HeatMap>& row : grid.rows) {
    append(block, pictures(row, width, options.depth));
    block.emplace_back(options.depth);
  }
  append(block, terminal::scale_bar(grid.rows.at(0).at(0), width, options.depth));
  append(block, terminal::wrapped(grid.caption, width, options.depth));
  return terminal::text(block);
}

}  // namespace regard
