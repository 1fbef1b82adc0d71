#include "regard/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "regard/error.h"
#include "regard/text_width.h"
#include "view/terminal_block.h"

namespace regard {
namespace {

using terminal::Block;

bool mentions(const std::optional<std::string>& text, const char* part) {
  return text && text->find(part) != std::string::npos;
}

int usable(int width) { return std::max(width, narrowest_terminal); }

// Heads on a pipe would each take the whole width with their numbers, so that
// several share it as characters only when they don't fit one under the other.
Block pictures(const std::vector<HeatMap>& maps, int width, ColourDepth depth) {
  std::vector<Block> blocks;
  for (const HeatMap& map : maps) blocks.push_back(terminal::titled_picture(map, width, depth));
  return terminal::side_by_side(blocks, width, depth);
}

// Neighbouring layers of one shape.
struct Run {
  Index first = 0, last = 0;
  Shape shape{};
};

std::vector<Run> runs_of(const Trace& trace, AttentionKind kind) {
  std::map<Index, Shape> shapes;
  for (const AttentionMap& map : trace.maps) {
    if (map.kind != kind) continue;
    if (map.weights.rank() != 3)
      throw ArgumentError("trace contents: weights are " + map.weights.text() + ", need [heads,q_len,kv_len]");
    shapes[map.layer] = map.weights.shape();
  }
  std::vector<Run> runs;
  for (const auto& [layer, shape] : shapes)
    if (!runs.empty() && runs.back().last + 1 == layer && runs.back().shape == shape)
      runs.back().last = layer;
    else
      runs.push_back({layer, layer, shape});
  return runs;
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
  terminal::append(block, terminal::scale_bar(map, width, options.depth));
  terminal::append(block, terminal::wrapped(map.caption, width, options.depth));
  if (const std::string verdict = sink_verdict(map); !verdict.empty())
    terminal::append(block, terminal::wrapped(verdict, width, options.depth));
  return terminal::text(block);
}

std::string terminal_heat_maps(const std::vector<HeatMap>& maps, const TerminalOptions& options) {
  if (maps.empty()) return "";
  const int width = usable(options.width);
  Block block = pictures(maps, width, options.depth);
  terminal::append(block, terminal::scale_bar(maps[0], width, options.depth));
  return terminal::text(block);
}

std::string terminal_heat_grid(const HeatGrid& grid, const TerminalOptions& options) {
  const int width = usable(options.width);
  Block block = terminal::wrapped(grid.title, width, options.depth, true);
  for (const std::vector<HeatMap>& row : grid.rows) {
    terminal::append(block, pictures(row, width, options.depth));
    block.emplace_back(options.depth);
  }
  terminal::append(block, terminal::scale_bar(grid.rows.at(0).at(0), width, options.depth));
  terminal::append(block, terminal::wrapped(grid.caption, width, options.depth));
  return terminal::text(block);
}

std::string terminal_wrapped(const std::string& text, int width) {
  return terminal::text(terminal::wrapped(printable(text), usable(width), ColourDepth::none));
}

std::string terminal_table(const std::vector<std::vector<std::string>>& rows, int width) {
  if (rows.empty()) return "";
  constexpr int gap = 2;
  std::vector<int> columns(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) columns.at(c) = std::max(columns.at(c), text_columns(row[c]));
  int wide = -gap;
  for (int column : columns) wide += column + gap;
  std::string text;
  if (wide > usable(width)) {
    for (std::size_t r = 1; r < rows.size(); ++r) {
      std::string line = rows[r][0] + ":";
      for (std::size_t c = 1; c < rows[r].size(); ++c)
        line += fmt::format("{} {} {}", c > 1 ? "," : "", rows[0][c], rows[r][c]);
      text += terminal_wrapped(line, width);
    }
    return text;
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line +=
          fmt::format("{:{}}{}", "", c > 0 ? gap : 0, fit_text(row[c], columns[c], c > 0 ? Align::right : Align::left));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string terminal_contents(const Trace& trace) {
  std::string text;
  if (!trace.model.empty()) text += printable(trace.model) + "\n";
  if (trace.maps.empty()) text += "no attention was recorded\n";
  for (AttentionKind kind : {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross})
    for (const Run& run : runs_of(trace, kind)) {
      const Shape& shape = run.shape;
      const std::string layers = run.first == run.last ? fmt::format("layer {}", run.first)
                                                       : fmt::format("layers {} to {}", run.first, run.last);
      text += fmt::format("{}: {}, {} head{}, {} queries × {} keys\n", kind_title(kind), layers, shape[0],
                          shape[0] == 1 ? "" : "s", shape[1], shape[2]);
    }
  return text;
}

}  // namespace regard
