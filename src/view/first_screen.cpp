// The first screen: what does this token look at?
#include <fmt/format.h>

#include <algorithm>

#include "regard/error.h"
#include "regard/terminal.h"
#include "regard/text_width.h"
#include "view/terminal_block.h"

namespace regard {
namespace {

using terminal::Block;
using terminal::Line;

AttentionKind default_kind(const Trace& trace) {
  for (AttentionKind kind : {AttentionKind::cross, AttentionKind::decoder, AttentionKind::encoder})
    if (trace.layers(kind) > 0) return kind;
  throw ArgumentError("first screen: the trace holds no attention");
}

struct Screen {
  const Trace& trace;
  const ScreenOptions& options;
  int width;
  AttentionKind kind{};
  Index layer = 0;
  Index query = 0;
  HeatMap shown{};               // shades the text and gives the keys
  std::vector<HeatMap> heads{};  // of this layer
  Index matrix = 0;              // the head drawn whole
};

// The head that gives a pair most.
Index strongest_head(const std::vector<HeatMap>& heads, Index query, Index key) {
  const auto less = [&](const HeatMap& a, const HeatMap& b) { return a.value(query, key) < b.value(query, key); };
  return std::max_element(heads.begin(), heads.end(), less) - heads.begin();
}

Index default_query(AttentionKind kind, Index q_len) { return kind == AttentionKind::decoder ? q_len - 1 : 0; }

Screen make_screen(const Trace& trace, const ScreenOptions& options) {
  Screen screen{.trace = trace, .options = options, .width = std::max(options.width, narrowest_terminal)};
  screen.kind = options.kind.value_or(default_kind(trace));
  screen.layer = options.layer.value_or(trace.layers(screen.kind) - 1);
  screen.shown = heat_map(trace, {screen.kind, screen.layer, options.head.value_or(mean_of_heads)}, options.map);
  const Index count = trace.find(screen.kind, screen.layer)->weights.size(0);
  for (Index head = 0; head < count; ++head)
    screen.heads.push_back(heat_map(trace, {screen.kind, screen.layer, head}, options.map));
  if (screen.shown.q_len() == 0 || screen.shown.kv_len() == 0)
    throw ArgumentError("first screen: the trace holds no tokens");
  screen.query = options.query.value_or(default_query(screen.kind, screen.shown.q_len()));
  const auto top = strongest_keys(screen.shown, screen.query, 1);
  screen.matrix = options.head.value_or(top.empty() ? 0 : strongest_head(screen.heads, screen.query, top[0].key));
  return screen;
}

// Tokens in a row, wrapped; `write` styles one and says nothing about spaces.
template <class Write>
void tokens(Block& block, const Screen& screen, const Axis& axis, const Write& write) {
  constexpr int indent = 2, longest_mark = 9;  // " [TOKEN](100) "
  const ColourDepth depth = screen.options.depth;
  block.emplace_back(depth);
  block.back().pad(indent);
  for (Index i = 0; i < axis.size(); ++i) {
    Line token(depth);
    write(token, i, cut_text(axis.texts[static_cast<std::size_t>(i)], screen.width - indent - longest_mark));
    if (block.back().columns() > indent && block.back().columns() + token.columns() > screen.width) {
      block.emplace_back(depth);
      block.back().pad(indent);
    }
    block.back().append(token);
  }
}

void mark_query(Line& token, bool selected, const std::string& text, ColourDepth depth) {
  if (!selected)
    token.plain(" " + text + " ");
  else if (depth == ColourDepth::none)
    token.plain("[" + text + "]");
  else
    token.reverse("[" + text + "]");
}

void shade_key(Line& token, const Screen& screen, Index key, const std::string& text) {
  const HeatMap& map = screen.shown;
  if (map.hidden(screen.query, key)) {
    token.hidden(" " + text + " ");
    return;
  }
  const double value = shade(map, screen.query, key);
  if (screen.options.depth != ColourDepth::none)
    token.shaded(map, value, " " + text + " ");
  else
    token.plain(fmt::format(" {}({:.0f}) ", text, 100 * map.value(screen.query, key)));
}

std::string question(const Screen& screen) {
  const std::string& token = screen.shown.queries.texts[static_cast<std::size_t>(screen.query)];
  const char* asks = screen.kind == AttentionKind::cross ? "What does the model look at while producing"
                                                         : "What does the model look at from";
  return fmt::format("{} {} (position {})?", asks, token, screen.query);
}

// With self-attention queries and keys are one text; it is written once, with
// the query in brackets.
void text_part(Block& block, const Screen& screen) {
  const ColourDepth depth = screen.options.depth;
  terminal::append(block, terminal::wrapped(question(screen), screen.width, depth, true));
  const bool cross = screen.kind == AttentionKind::cross;
  if (cross)
    tokens(block, screen, screen.shown.queries,
           [&](Line& token, Index i, const std::string& text) { mark_query(token, i == screen.query, text, depth); });
  tokens(block, screen, screen.shown.keys, [&](Line& token, Index i, const std::string& text) {
    shade_key(token, screen, i, !cross && i == screen.query ? "[" + text + "]" : text);
  });
  const MapQuantity quantity = screen.shown.quantity;
  const char* of = quantity == MapQuantity::weights ? "attention" : quantity_title(quantity);
  if (depth == ColourDepth::none)
    for (const Line& line :
         terminal::wrapped(fmt::format("(in parentheses: per cent of the {})", of), screen.width - 2, depth)) {
      block.emplace_back(depth);
      block.back().pad(2).append(line);
    }
}

// What a row of the table of strongest keys has room for.
struct KeyTable {
  int token = 5, position = 8;
  bool rank = true, head = true;
};

KeyTable key_table(int width, int longest, bool several_heads) {
  constexpr int with_heads = 48, with_ranks = 28;
  KeyTable table;
  table.head = several_heads && width >= with_heads;
  table.rank = width >= with_ranks;
  if (width < with_heads) table.position = 4;
  const int others = (table.rank ? 5 : 0) + 1 + table.position + 8;
  table.token = std::min(longest, width >= 80 ? 20 : width >= with_heads ? 8 : width - others);
  return table;
}

Line key_heading(const KeyTable& table, MapQuantity quantity, ColourDepth depth) {
  Line line(depth);
  line.dim(fmt::format("{}{} {:>{}} {:>7}{}", table.rank ? "rank " : "", fit_text("token", table.token),
                       table.position >= 8 ? "position" : "at", table.position,
                       quantity == MapQuantity::weights ? "weight" : "share", table.head ? "  most from" : ""));
  return line;
}

Line key_row(const Screen& screen, const KeyTable& table, const Pair& pair, std::size_t rank) {
  Line line(screen.options.depth);
  if (table.rank) line.plain(fmt::format("{:>4} ", rank));
  line.plain(fmt::format("{} {:>{}} {:>7}",
                         fit_text(screen.shown.keys.texts[static_cast<std::size_t>(pair.key)], table.token), pair.key,
                         table.position, weight_text(pair.weight)));
  if (!table.head) return line;
  const HeatMap& most = screen.heads[static_cast<std::size_t>(strongest_head(screen.heads, pair.query, pair.key))];
  line.plain(fmt::format("  {} ({})", most.name, weight_text(most.value(pair.query, pair.key))));
  return line;
}

Block keys_part(const Screen& screen) {
  const auto top = strongest_keys(screen.shown, screen.query, screen.options.top_keys);
  int longest = 5;
  for (const Pair& pair : top)
    longest = std::max(longest, text_columns(screen.shown.keys.texts[static_cast<std::size_t>(pair.key)]));
  const KeyTable table = key_table(screen.width, longest, screen.heads.size() > 1);
  const ColourDepth depth = screen.options.depth;
  Block block = terminal::wrapped("Strongest keys (" + screen.shown.title + ")", screen.width, depth, true);
  block.push_back(key_heading(table, screen.shown.quantity, depth));
  for (std::size_t i = 0; i < top.size(); ++i) block.push_back(key_row(screen, table, top[i], i + 1));
  return block;
}

// A map of maps: layers down, heads across, each cell how focused that head is.
HeatMap head_map(const Screen& screen) {
  const HeatGrid grid = heat_grid(screen.trace, screen.kind, screen.options.map);
  HeatMap map;
  map.title = "Focus of every head (layers × heads)";
  std::size_t heads = 0;
  for (const auto& row : grid.rows) heads = std::max(heads, row.size());
  for (std::size_t head = 0; head < heads; ++head) map.keys.texts.push_back(std::to_string(head));
  map.keys.repeated.assign(heads, false);
  map.values = Tensor<float>({static_cast<Index>(grid.rows.size()), static_cast<Index>(heads)});
  map.visible = Tensor<std::uint8_t>(map.values.shape());
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    const HeatMap& first = grid.rows[row][0];
    map.queries.texts.push_back(first.name.substr(0, first.name.find('H')));
    map.queries.repeated.push_back(false);
    map.seen.push_back(static_cast<Index>(grid.rows[row].size()));
    for (std::size_t head = 0; head < grid.rows[row].size(); ++head) {
      const auto cell = static_cast<Index>(row * heads + head);
      map.values[cell] = static_cast<float>(focus(grid.rows[row][head]));
      map.visible[cell] = 1;
    }
  }
  return map;
}

Block head_part(const Screen& screen) {
  const ColourDepth depth = screen.options.depth;
  Block block = terminal::titled_picture(head_map(screen), screen.width, depth);
  terminal::append(block, terminal::wrapped("0: spread evenly, 1: one key a row", screen.width, depth));
  return block;
}

}  // namespace

std::string terminal_first_screen(const Trace& trace, const ScreenOptions& options) {
  const Screen screen = make_screen(trace, options);
  const HeatMap& matrix = screen.heads[static_cast<std::size_t>(screen.matrix)];
  Block block;
  text_part(block, screen);
  block.emplace_back(options.depth);
  std::vector<Block> parts{keys_part(screen)};
  // Rollout has no heads, and a single key takes all there is.
  if (trace.quantity != MapQuantity::rollout && matrix.kv_len() > 1) parts.push_back(head_part(screen));
  terminal::append(block, terminal::side_by_side(parts, screen.width, options.depth));
  block.emplace_back(options.depth);
  terminal::append(block, terminal::titled_picture(matrix, screen.width, options.depth));
  terminal::append(block, terminal::scale_bar(matrix, screen.width, options.depth));
  if (const std::string verdict = sink_verdict(matrix); !verdict.empty())
    terminal::append(block, terminal::wrapped(matrix.name + ": " + verdict, screen.width, options.depth));
  terminal::append(block, terminal::wrapped(screen.shown.caption, screen.width, options.depth));
  return terminal::text(block);
}

}  // namespace regard
