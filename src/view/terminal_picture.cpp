// The picture of one map: two-column cells, half-blocks, numbers or characters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "regard/text_width.h"
#include "view/terminal_block.h"

namespace regard::terminal {
namespace {

constexpr Index cell_limit = 24;   // tokens a side with a cell of their own
constexpr int label_limit = 14;    // columns of a row label
constexpr int stack_limit = 10;    // lines of a column label written downwards
constexpr int number_columns = 6;  // " 0.123"

int row_label_columns(const HeatMap& map) {
  int most = 0;
  for (Index query = 0; query < map.q_len(); ++query) most = std::max(most, text_columns(map.queries.label(query)));
  return std::min(most, label_limit);
}

// A label written downwards: one character a line, its index as one unit.
std::vector<std::string> stacked(const Axis& keys, Index key) {
  std::vector<std::string> units;
  for (const Grapheme& cluster : graphemes(keys.texts[static_cast<std::size_t>(key)])) units.push_back(cluster.text);
  const std::string whole = keys.label(key);
  const std::string index = whole.substr(keys.texts[static_cast<std::size_t>(key)].size());
  const std::size_t room = static_cast<std::size_t>(stack_limit) - (index.empty() ? 0 : 1);
  if (units.size() > room) {
    units.resize(room - 1);
    units.emplace_back("⋮");
  }
  if (!index.empty()) units.push_back(index);
  return units;
}

// Labels over columns of `wide` each: in one line where they fit, else downwards.
Block column_labels(const HeatMap& map, int left, int wide, ColourDepth depth) {
  int most = 0;
  for (Index key = 0; key < map.kv_len(); ++key) most = std::max(most, text_columns(map.keys.label(key)));
  Block block;
  if (most <= wide - (wide > 2)) {
    block.emplace_back(depth);
    block[0].pad(left);
    for (Index key = 0; key < map.kv_len(); ++key)
      block[0].plain(fit_text(map.keys.label(key), wide, wide > 2 ? Align::right : Align::left));
    return block;
  }
  std::vector<std::vector<std::string>> labels;
  std::size_t height = 0;
  for (Index key = 0; key < map.kv_len(); ++key) {
    labels.push_back(stacked(map.keys, key));
    height = std::max(height, labels.back().size());
  }
  for (std::size_t line = 0; line < height; ++line) {
    block.emplace_back(depth);
    block.back().pad(left);
    for (const auto& units : labels) {
      const std::size_t above = height - units.size();
      const std::string unit = line < above ? "" : units[line - above];
      block.back().plain(fit_text(unit, wide, wide > 2 ? Align::right : Align::left));
    }
  }
  return block;
}

using CellWriter = std::function<void(Line&, Index query, Index key)>;

// Labels on both axes and one cell of `wide` columns per pair.
Block table(const HeatMap& map, int wide, ColourDepth depth, const CellWriter& write) {
  const int left = row_label_columns(map) + 1;
  Block block = column_labels(map, left, wide, depth);
  for (Index query = 0; query < map.q_len(); ++query) {
    block.emplace_back(depth);
    block.back().plain(fit_text(map.queries.label(query), left - 1, Align::right)).plain(" ");
    for (Index key = 0; key < map.kv_len(); ++key) write(block.back(), query, key);
  }
  return block;
}

Block colour_cells(const HeatMap& map, ColourDepth depth) {
  return table(map, 2, depth, [&](Line& line, Index query, Index key) {
    if (map.hidden(query, key))
      line.hidden("··");
    else
      line.shaded(map, shade(map, query, key), "  ");
  });
}

Block number_cells(const HeatMap& map) {
  return table(map, number_columns, ColourDepth::none, [&](Line& line, Index query, Index key) {
    const std::string text = map.hidden(query, key) ? "-" : cell_text(map.value(query, key));
    line.plain(fit_text(text, number_columns, Align::right));
  });
}

char ramp_character(const HeatMap& map, Index query, Index key) {
  if (query >= map.q_len()) return ' ';
  if (map.hidden(query, key)) return '/';
  const double value = shade(map, query, key);
  return ascii_ramp(map.scale == Scale::lift ? (value + 1) / 2 : value);
}

Block character_cells(const HeatMap& map) {
  return table(map, 2, ColourDepth::none, [&](Line& line, Index query, Index key) {
    line.plain(std::string(2, ramp_character(map, query, key)));
  });
}

// "0         10        20": where every tenth column stands.
Line ruler(const HeatMap& map, int left, Index factor, ColourDepth depth) {
  Line line(depth);
  line.pad(left);
  for (Index key = 0; key < map.kv_len(); key += 10) {
    const std::string mark = std::to_string(key * factor);
    if (key + static_cast<Index>(mark.size()) > map.kv_len()) break;
    line.pad(left + static_cast<int>(key)).plain(mark);
  }
  return line;
}

std::string half_ground(const HeatMap& map, Index query, Index key, ColourDepth depth) {
  if (query >= map.q_len()) return "";
  if (map.hidden(query, key)) return hidden_ground_codes(depth);
  return ground_codes(map, shade(map, query, key), depth);
}

void half_row(Line& line, const HeatMap& map, Index query, ColourDepth depth) {
  for (Index key = 0; key < map.kv_len(); ++key) {
    if (depth == ColourDepth::none)
      line.plain(std::string(1, ramp_character(map, query, key)));
    else
      line.halves(half_ground(map, query, key, depth), half_ground(map, query + 1, key, depth));
  }
}

// One column a key, two rows a line in colour. Rows are labelled by position,
// and by token where nothing was pooled.
Block dense_cells(const HeatMap& whole, int width, ColourDepth depth) {
  int left = 1 + std::max(row_label_columns(whole) + 5, 6);
  Index factor = label_step(whole.kv_len(), std::max(1, width - left));
  if (factor > 1) left = 1 + static_cast<int>(std::to_string(whole.q_len()).size());
  factor = std::max(label_step(whole.kv_len(), std::max(1, width - left)), label_step(whole.q_len(), 200));
  const HeatMap map = pooled(whole, factor);
  const Index rows_a_line = depth == ColourDepth::none ? 1 : 2;
  Block block{ruler(map, left, factor, depth)};
  for (Index query = 0; query < map.q_len(); query += rows_a_line) {
    std::string label = std::to_string(query * factor);
    if (factor == 1) label = fit_text(whole.queries.texts[static_cast<std::size_t>(query)], left - 6) + " " + label;
    const bool first = query % (5 * rows_a_line) == 0;
    block.emplace_back(depth);
    block.back().plain(first || factor == 1 ? fit_text(label, left - 1, Align::right) : "").pad(left);
    half_row(block.back(), map, query, depth);
  }
  if (factor > 1)
    for (const Line& line : wrapped(fmt::format("each cell: the largest of {0} × {0} weights", factor), width, depth))
      block.push_back(line);
  return block;
}

std::string tick_line(const HeatMap& map, int bar) {
  std::string line;
  const auto ticks = scale_ticks(map);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    // Ends are flush with the bar, the rest centred; a tick without room is left out.
    const int size = text_columns(ticks[i].second);
    int at = static_cast<int>(std::lround(ticks[i].first * bar)) - size / 2;
    at = std::clamp(at, 0, std::max(0, bar - size));
    const int used = text_columns(line);
    if (used > 0 && at <= used) continue;
    line += std::string(static_cast<std::size_t>(at - used), ' ') + ticks[i].second;
  }
  return line;
}

Line bar_line(const HeatMap& map, int bar, ColourDepth depth) {
  Line line(depth);
  for (int i = 0; i < bar; ++i) {
    const double position = bar > 1 ? static_cast<double>(i) / (bar - 1) : 0;
    if (depth == ColourDepth::none)
      line.plain(std::string(1, ascii_ramp(position)));
    else
      line.shaded(map, map.scale == Scale::lift ? 2 * position - 1 : position, " ");
  }
  return line;
}

bool numbers_fit(const HeatMap& map, int width) {
  return map.q_len() <= cell_limit && row_label_columns(map) + 1 + number_columns * map.kv_len() <= width;
}

}  // namespace

Block picture(const HeatMap& map, int width, ColourDepth depth) {
  if (map.q_len() == 0 || map.kv_len() == 0) return wrapped("(nothing to show)", width, depth);
  const bool cells =
      map.q_len() <= cell_limit && map.kv_len() <= cell_limit && row_label_columns(map) + 1 + 2 * map.kv_len() <= width;
  if (depth == ColourDepth::none && numbers_fit(map, width)) return number_cells(map);
  if (cells) return depth == ColourDepth::none ? character_cells(map) : colour_cells(map, depth);
  return dense_cells(map, width, depth);
}

Block ramp(const HeatMap& map, int width, ColourDepth depth) {
  const int bar = std::clamp(width, 1, 30);
  Block block{bar_line(map, bar, depth), Line(depth)};
  block.back().plain(tick_line(map, bar));
  return block;
}

Block scale_bar(const HeatMap& map, int width, ColourDepth depth) {
  std::string note = scale_title(map);
  if (map.any_hidden()) note += depth == ColourDepth::none ? "; - or /: hidden by the mask" : "; grey or ··: hidden";
  Block block;
  if (depth != ColourDepth::none || !numbers_fit(map, width)) block = ramp(map, width, depth);
  for (const Line& line : wrapped(note, width, depth)) block.push_back(line);
  return block;
}

Block titled_picture(const HeatMap& map, int width, ColourDepth depth) {
  Block block = wrapped(map.title, width, depth, true);
  for (const Line& line : picture(map, width, depth)) block.push_back(line);
  return block;
}

}  // namespace regard::terminal
