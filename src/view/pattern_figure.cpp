// Heads by their patterns, as a figure.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "regard/error.h"
#include "regard/pattern_view.h"
#include "view/figure_parts.h"

namespace regard {
namespace {

using figure::Anchor;
using figure::Box;
using figure::Label;
using figure::margin;
using figure::Scene;
using figure::Typesetter;

constexpr double cell_font = 6;
constexpr double widest_cell = 54, cell_height = 24, bar_height = 2.5;
constexpr Colour bar{70, 70, 70};

// Light tints of one lightness, so that black text reads on all; hues that the
// colour-blind tell apart, and every cell says its pattern in words as well.
Colour tint(Pattern pattern) {
  static constexpr std::array<Colour, scored_patterns + 1> tints{{{191, 217, 240},
                                                                  {202, 205, 240},
                                                                  {188, 226, 226},
                                                                  {246, 206, 168},
                                                                  {243, 200, 203},
                                                                  {238, 202, 232},
                                                                  {198, 226, 198},
                                                                  {226, 218, 162},
                                                                  {232, 232, 232},
                                                                  {255, 255, 255}}};
  return tints[static_cast<std::size_t>(pattern)];
}

struct Layout {
  std::size_t heads = 0;
  double left = 0, top = 0, cell_width = 0, font = 8;
};

double widest_text(const Typesetter& type) {
  double most = type.width("1.00", cell_font);
  for (std::size_t i = 0; i <= scored_patterns; ++i)
    most = std::max(most, type.width(pattern_short_name(static_cast<Pattern>(i)), cell_font));
  return most;
}

Layout plan(Scene& scene, const Typesetter& type, const PatternGrid& grid, double font) {
  Layout layout{.font = font};
  double names = 0;
  for (const LayerPatterns& layer : grid.layers) {
    layout.heads = std::max(layout.heads, layer.heads.size());
    names = std::max(names, type.width(fmt::format("Layer {}", layer.layer), font));
  }
  if (layout.heads == 0) throw ArgumentError("figure: no layer of the patterns holds a head");
  layout.left = margin + names + 4;
  layout.top = margin + 3 * font;
  const auto heads = static_cast<double>(layout.heads);
  const double fitted = (scene.width - layout.left - margin) / heads;
  const double head_name = type.width(fmt::format("H{}", layout.heads - 1), font);
  layout.cell_width = std::clamp(fitted, std::max(widest_text(type), head_name) + 3, widest_cell);
  scene.width = std::max(scene.width, layout.left + heads * layout.cell_width + margin);
  layout.left += (scene.width - layout.left - heads * layout.cell_width - margin) / 2;
  return layout;
}

void draw_head(Scene& scene, const HeadPattern& head, double x, double y, double width) {
  scene.add(Box{x, y, width, cell_height, tint(head.label)});
  const double score = head.label_score();
  if (!std::isnan(score))
    scene.add(Box{x, y + cell_height - bar_height, width * std::clamp(score, 0.0, 1.0), bar_height, bar});
  const auto write = [&](const std::string& text, double baseline) {
    scene.add(Label{.x = x + width / 2, .y = y + baseline, .text = text, .size = cell_font, .anchor = Anchor::middle});
  };
  write(pattern_short_name(head.label), 1.5 + cell_font);
  write(score_text(score), 2.5 + 2.15 * cell_font);
  figure::draw_frame(scene, x, y, width, cell_height);
}

void draw_names(Scene& scene, const Typesetter& type, const PatternGrid& grid, const Layout& layout) {
  const std::string last = fmt::format("Head {}", layout.heads - 1);
  const bool whole = type.width(last, layout.font) + 3 <= layout.cell_width;
  for (std::size_t head = 0; head < layout.heads; ++head)
    scene.add(Label{.x = layout.left + (static_cast<double>(head) + 0.5) * layout.cell_width,
                    .y = layout.top - 3,
                    .text = fmt::format("{}{}", whole ? "Head " : "H", head),
                    .size = layout.font,
                    .anchor = Anchor::middle});
  for (std::size_t row = 0; row < grid.layers.size(); ++row)
    scene.add(Label{.x = layout.left - 4,
                    .y = layout.top + (static_cast<double>(row) + 0.5) * cell_height + 0.36 * layout.font,
                    .text = fmt::format("Layer {}", grid.layers[row].layer),
                    .size = layout.font,
                    .anchor = Anchor::end});
}

// A tinted sample and a meaning for each label that occurs; returns the y below.
double draw_legend(Scene& scene, const Typesetter& type, const PatternGrid& grid, double y, double font) {
  std::set<Pattern> labels;
  for (const LayerPatterns& layer : grid.layers)
    for (const HeadPattern& head : layer.heads) labels.insert(head.label);
  const double side = font * 0.9;
  for (Pattern label : labels) {
    scene.add(Box{margin, y + 1, side, side, tint(label)});
    figure::draw_frame(scene, margin, y + 1, side, side);
    y = figure::draw_text(scene, type, pattern_legend(label, grid.options),
                          {margin + side + 3, y, scene.width - 2 * margin - side - 3}, font);
  }
  return y;
}

// For readers who can't see the picture: every head in words, up to a page of them.
std::string description(const PatternGrid& grid, const std::string& caption) {
  constexpr std::size_t most = 64;
  std::string text = caption + ".";
  std::size_t named = 0;
  for (const LayerPatterns& layer : grid.layers)
    for (std::size_t at = 0; at < layer.heads.size() && named < most; ++at, ++named)
      text += fmt::format("{} L{}H{} {} {}", named == 0 ? " Heads:" : ",", layer.layer, at,
                          pattern_name(layer.heads[at].label), score_text(layer.heads[at].label_score()));
  return text + ".";
}

}  // namespace

std::string figure_patterns(const PatternGrid& grid, const std::string& caption, FigureFormat format,
                            const FigureOptions& options) {
  figure::check_options(options);
  const Typesetter type(options.font);
  const std::string title = fmt::format("Patterns of {}", kind_title(grid.kind));
  Scene scene = figure::new_scene(options, type, title);
  const Layout layout = plan(scene, type, grid, options.font_points);
  scene.add(Label{.x = scene.width / 2,
                  .y = margin + layout.font,
                  .text = title,
                  .size = layout.font,
                  .anchor = Anchor::middle,
                  .bold = true});
  draw_names(scene, type, grid, layout);
  for (std::size_t row = 0; row < grid.layers.size(); ++row)
    for (std::size_t at = 0; at < grid.layers[row].heads.size(); ++at)
      draw_head(scene, grid.layers[row].heads[at], layout.left + static_cast<double>(at) * layout.cell_width,
                layout.top + static_cast<double>(row) * cell_height, layout.cell_width);
  const double small = std::max(5.0, layout.font - 1);
  double y = layout.top + static_cast<double>(grid.layers.size()) * cell_height + 5;
  y = draw_legend(scene, type, grid, y, small);
  if (options.caption) y = figure::draw_text(scene, type, caption, {margin, y + 3, scene.width - 2 * margin}, small);
  scene.height = y + margin;
  scene.description = description(grid, caption);
  return figure::rendered(scene, format, options);
}

}  // namespace regard
