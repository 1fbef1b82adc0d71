#include "regard/pattern_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "regard/text_width.h"
#include "view/terminal_block.h"

namespace regard {
namespace {

using terminal::Block;
using terminal::Line;

constexpr int cell_columns = 11;  // " first 1.00"

Pattern pattern_at(std::size_t i) { return static_cast<Pattern>(i); }

std::size_t most_heads(const PatternGrid& grid) {
  std::size_t most = 0;
  for (const LayerPatterns& layer : grid.layers) most = std::max(most, layer.heads.size());
  return most;
}

std::string heading(const PatternGrid& grid) {
  const std::size_t layers = grid.layers.size(), heads = most_heads(grid);
  return fmt::format("Patterns of {}, {} layer{} × {} head{}", kind_title(grid.kind), layers, layers == 1 ? "" : "s",
                     heads, heads == 1 ? "" : "s");
}

// Cells are shaded by the score: the ramp of weights.
HeatMap ramp() {
  HeatMap map;
  map.scale = Scale::linear;
  return map;
}

void write_cell(Line& line, const HeadPattern& head) {
  const double score = head.label_score();
  const std::string text = fmt::format("{:<5} {:>4}", pattern_short_name(head.label), score_text(score));
  line.plain(" ");
  if (std::isnan(score))
    line.hidden(text);
  else
    line.shaded(ramp(), score, text);
}

// Heads `begin` to `end` of every layer.
Block band(const PatternGrid& grid, std::size_t begin, std::size_t end, ColourDepth depth) {
  int left = 2;
  for (const LayerPatterns& layer : grid.layers) left = std::max(left, text_columns(fmt::format("L{}", layer.layer)));
  Block block;
  block.emplace_back(depth);
  block.back().pad(left);
  for (std::size_t head = begin; head < end; ++head)
    block.back().dim(fmt::format(" {:<{}}", fmt::format("H{}", head), cell_columns - 1));
  for (const LayerPatterns& layer : grid.layers) {
    block.emplace_back(depth);
    block.back().plain(fmt::format("{:<{}}", fmt::format("L{}", layer.layer), left));
    for (std::size_t head = begin; head < std::min(end, layer.heads.size()); ++head)
      write_cell(block.back(), layer.heads[head]);
  }
  return block;
}

std::set<Pattern> labels_of(const PatternGrid& grid) {
  std::set<Pattern> labels;
  for (const LayerPatterns& layer : grid.layers)
    for (const HeadPattern& head : layer.heads) labels.insert(head.label);
  return labels;
}

std::string vertical_text(const PatternGrid& grid, Index key) {
  if (key < 0) return "";
  return fmt::format("{} at {}", cut_text(grid.keys[static_cast<std::size_t>(key)], 12), key);
}

std::string number_text(double value) { return std::isnan(value) ? "-" : fmt::format("{:.1f}", value); }

constexpr int table_columns = 72;

Line score_row(const LayerPatterns& layer, std::size_t at, ColourDepth depth) {
  const HeadPattern& head = layer.heads[at];
  Line line(depth);
  line.plain(fmt::format("{:<7} ", fmt::format("L{}H{}", layer.layer, at)));
  line.bold(fmt::format("{:<5}", pattern_short_name(head.label)));
  for (std::size_t i = 0; i < scored_patterns; ++i) line.plain(fmt::format(" {:>5}", score_text(head.scores[i].score)));
  line.plain(fmt::format(" {:>4}", number_text(head.distance)));
  return line;
}

Block score_table(const PatternGrid& grid, ColourDepth depth) {
  Block block;
  Line head(depth);
  head.dim(fmt::format("{:<7} {:<5}", "head", "label"));
  for (std::size_t i = 0; i < scored_patterns; ++i) head.dim(fmt::format(" {:>5}", pattern_short_name(pattern_at(i))));
  head.dim(fmt::format(" {:>4}", "dist"));
  block.push_back(head);
  for (const LayerPatterns& layer : grid.layers)
    for (std::size_t at = 0; at < layer.heads.size(); ++at) block.push_back(score_row(layer, at, depth));
  return block;
}

// For narrow screens: one head a paragraph.
Block score_list(const PatternGrid& grid, int width, ColourDepth depth) {
  Block block;
  for (const LayerPatterns& layer : grid.layers)
    for (std::size_t at = 0; at < layer.heads.size(); ++at) {
      const HeadPattern& head = layer.heads[at];
      std::string text = fmt::format("L{}H{} {}:", layer.layer, at, pattern_name(head.label));
      for (std::size_t i = 0; i < scored_patterns; ++i)
        text += fmt::format(" {} {},", pattern_short_name(pattern_at(i)), score_text(head.scores[i].score));
      terminal::append(block, terminal::wrapped(text + " distance " + number_text(head.distance), width, depth));
    }
  return block;
}

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const PatternGrid& grid, Index layer, std::size_t at, const HeadPattern& head) {
  Json scores = Json::object();
  for (std::size_t i = 0; i < scored_patterns; ++i)
    scores[pattern_name(pattern_at(i))] = {{"score", number(head.scores[i].score)},
                                           {"uniform", number(head.scores[i].uniform)}};
  return {{"kind", kind_name(grid.kind)},
          {"layer", layer},
          {"head", at},
          {"label", pattern_name(head.label)},
          {"score", number(head.label_score())},
          {"scores", std::move(scores)},
          {"distance", number(head.distance)},
          {"uniform_distance", number(head.uniform_distance)},
          {"vertical_key", head.vertical_key < 0 ? Json() : Json(head.vertical_key)}};
}

}  // namespace

std::string score_text(double score) {
  if (std::isnan(score)) return "-";
  const std::string text = fmt::format("{:.2f}", score);
  return text.starts_with("0.") ? text.substr(1) : text == "-0.00" ? ".00" : text;
}

std::string pattern_legend(Pattern pattern, const PatternOptions& options) {
  std::string text = fmt::format("{}: {}", pattern_short_name(pattern), pattern_meaning(pattern));
  if (pattern == Pattern::local) text += fmt::format(" (at most {} away)", options.window);
  return text;
}

std::string pattern_caption(const PatternGrid& grid) {
  const std::string positions =
      grid.kind == AttentionKind::cross ? "; symbol i being produced is compared with source symbol i" : "";
  return fmt::format(
      "{}{}; {} queries × {} keys; numbers are shares of the attention, means over queries with a choice; a label "
      "needs "
      "{:.2g} of the way from uniform attention to all of it, broad an entropy of {:.2g}{}",
      grid.model.empty() ? "" : printable(grid.model) + ", ", kind_title(grid.kind), grid.q_len, grid.kv_len,
      grid.options.threshold, grid.options.broad_threshold, positions);
}

std::string terminal_patterns(const PatternGrid& grid, const TerminalOptions& options) {
  const int width = std::max(options.width, narrowest_terminal);
  const std::size_t heads = most_heads(grid), room = static_cast<std::size_t>(std::max(1, (width - 4) / cell_columns));
  Block block = terminal::wrapped(heading(grid), width, options.depth, true);
  for (std::size_t begin = 0; begin < heads; begin += room) {
    if (begin > 0) block.emplace_back(options.depth);
    terminal::append(block, band(grid, begin, std::min(heads, begin + room), options.depth));
  }
  for (Pattern label : labels_of(grid))
    terminal::append(block, terminal::wrapped(pattern_legend(label, grid.options), width, options.depth));
  terminal::append(block, terminal::wrapped(pattern_caption(grid), width, options.depth));
  return terminal::text(block);
}

std::string terminal_pattern_scores(const PatternGrid& grid, const TerminalOptions& options) {
  const int width = std::max(options.width, narrowest_terminal);
  Block block = width >= table_columns ? score_table(grid, options.depth) : score_list(grid, width, options.depth);
  std::string verticals;
  for (const LayerPatterns& layer : grid.layers)
    for (std::size_t at = 0; at < layer.heads.size(); ++at)
      verticals += fmt::format("{} L{}H{} {}", verticals.empty() ? "" : ",", layer.layer, at,
                               vertical_text(grid, layer.heads[at].vertical_key));
  terminal::append(block, terminal::wrapped("vert is about:" + verticals, width, options.depth));
  terminal::append(block,
                   terminal::wrapped("dist: mean distance between query and key, in positions", width, options.depth));
  return terminal::text(block);
}

std::string patterns_json(const std::vector<PatternGrid>& grids) {
  Json all = Json::array();
  for (const PatternGrid& grid : grids)
    for (const LayerPatterns& layer : grid.layers)
      for (std::size_t at = 0; at < layer.heads.size(); ++at)
        all.push_back(json_of(grid, layer.layer, at, layer.heads[at]));
  return Json{{"patterns", std::move(all)}}.dump() + "\n";
}

}  // namespace regard
