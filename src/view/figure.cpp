#include "regard/figure.h"

#include <fmt/format.h>

#include <algorithm>

#include "regard/error.h"
#include "view/figure_parts.h"

namespace regard {
namespace {

using figure::Anchor;
using figure::Label;
using figure::LabelPlan;
using figure::margin;
using figure::narrowest_plot;
using figure::Panel;
using figure::Scene;
using figure::tallest_plot;
using figure::Typesetter;

constexpr double widest_cell = 24;      // few tokens don't need posters
constexpr Index vector_limit = 64;      // cells a side
constexpr Index vector_cells = 40'000;  // in all, so that files stay usable
constexpr Index image_limit = 2048;     // pixels a side, of all panels together
constexpr Index panel_limit = 128;      // but no panel gets fewer

// With fewer cells where there are more than `limit` a side, so that no picture
// holds more pixels than eyes or printers could tell apart.
HeatMap drawable(const HeatMap& map, Index limit) {
  figure::check_cells(map);
  return pooled(map, label_step(std::max(map.q_len(), map.kv_len()), limit));
}

// Panels of one size, `across` times `down` of them, and the room around them.
struct Layout {
  Index across = 1, down = 1;
  bool names = false;  // of layers and heads beside the panels
  double gap = 5;
  double left = 0, top = 0;           // of the first panel
  double narrowest = narrowest_plot;  // of all panels together
  Panel panel{};                      // its cells' size
  LabelPlan rows{}, columns{};
};

double fit_cell_height(const Layout& layout, const HeatMap& map) {
  const auto rows = static_cast<double>(map.q_len());
  const double tallest = (tallest_plot / static_cast<double>(layout.down) - layout.gap) / rows;
  return std::clamp(layout.panel.cell_width, std::min(12 / rows, tallest), tallest);
}

// The room left of the panels: axis title, layer names (grids), row labels.
double left_margin(const Layout& layout, double labels, double font) {
  return margin + font * 1.4 * (layout.names ? 2 : 1) + labels;
}

void fit_cells(Layout& layout, const HeatMap& map, double scene_width) {
  const double gaps = static_cast<double>(layout.across - 1) * layout.gap;
  const double room = std::max(scene_width - layout.left - margin - gaps, layout.narrowest);
  layout.panel.cell_width = std::min(room / static_cast<double>(layout.across * map.kv_len()), widest_cell);
  layout.panel.cell_height = fit_cell_height(layout, map);
}

// Labels decide the margin, the margin decides the cells, and cells decide the
// labels. First with the widest margin there can be; labels that fit its small
// cells also fit the larger ones that their own margin leaves.
void fit_panels(Layout& layout, Scene& scene, const HeatMap& map, const Typesetter& type, double font) {
  layout.left = left_margin(layout, figure::widest_label(type, map.queries, font), font);
  fit_cells(layout, map, scene.width);
  layout.rows = figure::plan_rows(type, map.queries, layout.panel.cell_height, font);
  layout.left = left_margin(layout, layout.rows.extent, font);
  fit_cells(layout, map, scene.width);
  layout.columns = figure::plan_columns(type, map.keys, layout.panel.cell_width, font);
  const double plot = layout.panel.cell_width * static_cast<double>(layout.across * map.kv_len()) +
                      static_cast<double>(layout.across - 1) * layout.gap;
  const double axis_title = type.width(map.keys.title, font) + 2 * margin;
  scene.width = std::max({scene.width, layout.left + plot + margin, axis_title});
  layout.left += (scene.width - layout.left - plot - margin) / 2;
  layout.top = margin + 2.8 * font + layout.columns.extent + (layout.names ? font * 1.3 : 0);
}

Panel panel_at(const Layout& layout, const HeatMap& map, Index row, Index column) {
  Panel panel = layout.panel;
  panel.x =
      layout.left + static_cast<double>(column) * (static_cast<double>(map.kv_len()) * panel.cell_width + layout.gap);
  panel.y = layout.top + static_cast<double>(row) * (static_cast<double>(map.q_len()) * panel.cell_height + layout.gap);
  return panel;
}

// Title over everything; the axes' titles beside the labels they explain.
void draw_titles(Scene& scene, const Layout& layout, const std::string& title, const HeatMap& map, double font) {
  const Typesetter type(scene.font);
  const Panel last = panel_at(layout, map, layout.down - 1, layout.across - 1);
  const double right = last.x + static_cast<double>(map.kv_len()) * last.cell_width;
  const double bottom = last.y + static_cast<double>(map.q_len()) * last.cell_height;
  const auto centred = [&](const std::string& text, bool bold) {
    const double half = type.width(text, font, bold) / 2;
    return std::max(margin + half, std::min((layout.left + right) / 2, scene.width - margin - half));
  };
  scene.add(Label{.x = centred(title, true),
                  .y = margin + font,
                  .text = title,
                  .size = font,
                  .anchor = Anchor::middle,
                  .bold = true});
  const double axis_font = figure::smaller_font(font);
  scene.add(Label{.x = centred(map.keys.title, false),
                  .y = margin + font * 2.3,
                  .text = map.keys.title,
                  .size = axis_font,
                  .anchor = Anchor::middle});
  // Beside a short plot the title reaches down over its end, not up into other text.
  const double half = type.width(map.queries.title, axis_font) / 2;
  const double middle = std::max((layout.top + bottom) / 2, layout.top - layout.columns.extent + half);
  const double beside = layout.left - layout.rows.extent - (layout.names ? font * 1.4 : 0);
  scene.add(Label{.x = beside - font * 0.5,
                  .y = middle,
                  .text = map.queries.title,
                  .size = axis_font,
                  .anchor = Anchor::middle,
                  .upwards = true});
  scene.height = std::max(bottom, middle + half);
}

// Scale and caption below the panels, and the page ends there.
void finish(Scene& scene, const Layout& layout, const HeatMap& map, const std::string& caption,
            const FigureOptions& options) {
  const Typesetter type(scene.font);
  const double font = options.font_points;
  const double x = scene.width - layout.left - margin >= 150 ? layout.left : margin;
  double y = figure::draw_scale(scene, type, map, {x, scene.height + 7, scene.width - x - margin}, font);
  if (options.caption)
    y = figure::draw_text(scene, type, caption, {margin, y + 3, scene.width - 2 * margin}, figure::smaller_font(font));
  scene.height = y + margin;
}

bool as_vectors(const HeatMap& map, Index panels) {
  return map.q_len() <= vector_limit && map.kv_len() <= vector_limit &&
         panels * map.q_len() * map.kv_len() <= vector_cells;
}

void draw_grid_panel(Scene& scene, const Layout& layout, const HeatMap& map, Index row, Index column) {
  const Panel panel = panel_at(layout, map, row, column);
  figure::draw_cells(scene, map, panel);
  if (row == 0) figure::draw_column_labels(scene, layout.columns, panel);
  if (column == 0) figure::draw_row_labels(scene, layout.rows, panel);
}

// The size of "H3" and "L1", where a panel has no room for "Head 3" and "Layer 1".
double short_name_font(double font) { return std::min(font, 6.0); }

// "Head 3" over each column and "Layer 1" beside each row, short where needed.
void draw_grid_names(Scene& scene, const Layout& layout, const HeatGrid& grid, const HeatMap& map, double font) {
  const Typesetter type(scene.font);
  const double wide = static_cast<double>(map.kv_len()) * layout.panel.cell_width;
  const double high = static_cast<double>(map.q_len()) * layout.panel.cell_height;
  const bool long_heads = type.width("Head " + std::to_string(layout.across), font, true) <= wide;
  const bool long_layers = type.width("Layer " + std::to_string(layout.down), font, true) <= high;
  for (Index column = 0; column < layout.across; ++column)
    scene.add(Label{.x = panel_at(layout, map, 0, column).x + wide / 2,
                    .y = layout.top - layout.columns.extent - font * 0.4,
                    .text = (long_heads ? "Head " : "H") + std::to_string(column),
                    .size = long_heads ? font : short_name_font(font),
                    .anchor = Anchor::middle,
                    .bold = true});
  for (Index row = 0; row < layout.down; ++row) {
    // Only recorded layers have rows: the number is in the map's name.
    const std::string name = grid.rows[static_cast<std::size_t>(row)][0].name;
    const std::string layer = name.substr(1, name.find('H') - 1);
    scene.add(Label{.x = layout.left - layout.rows.extent - font * 0.4,
                    .y = panel_at(layout, map, row, 0).y + high / 2,
                    .text = (long_layers ? "Layer " : "L") + layer,
                    .size = long_layers ? font : short_name_font(font),
                    .anchor = Anchor::middle,
                    .upwards = true,
                    .bold = true});
  }
}

}  // namespace

FigureFormat figure_format(const std::string& path) {
  if (path.ends_with(".svg")) return FigureFormat::svg;
  if (path.ends_with(".png")) return FigureFormat::png;
  if (path.ends_with(".pdf")) return FigureFormat::pdf;
  throw ArgumentError(path + ": figures end in .svg, .png or .pdf");
}

std::string figure_matrix(const HeatMap& whole, FigureFormat format, const FigureOptions& options) {
  figure::check_options(options);
  const HeatMap map = drawable(whole, image_limit);
  const Typesetter type(options.font);
  Scene scene = figure::new_scene(options, type, map.title);
  Layout layout;
  fit_panels(layout, scene, map, type, options.font_points);
  layout.panel.vectors = as_vectors(map, 1);
  const Panel panel = panel_at(layout, map, 0, 0);
  figure::draw_cells(scene, map, panel);
  if (options.numbers) figure::draw_numbers(scene, type, map, panel);
  figure::draw_row_labels(scene, layout.rows, panel);
  figure::draw_column_labels(scene, layout.columns, panel);
  draw_titles(scene, layout, map.title, map, options.font_points);
  const std::string verdict = sink_verdict(whole);
  const std::string caption = map.caption + (verdict.empty() ? "" : "; " + verdict);
  finish(scene, layout, map, caption, options);
  scene.description = figure::description(caption, {&whole});
  return figure::rendered(scene, format, options);
}

std::string figure_grid(const HeatGrid& grid, FigureFormat format, const FigureOptions& options) {
  figure::check_options(options);
  if (grid.rows.empty() || grid.rows[0].empty()) throw ArgumentError("figure: the grid holds no heads");
  const Typesetter type(options.font);
  Scene scene = figure::new_scene(options, type, grid.title);
  Layout layout;
  layout.names = true;
  layout.down = static_cast<Index>(grid.rows.size());
  std::vector<const HeatMap*> maps;
  for (const auto& row : grid.rows) {
    layout.across = std::max(layout.across, static_cast<Index>(row.size()));
    for (const HeatMap& map : row) maps.push_back(&map);
  }
  layout.narrowest = std::max(
      narrowest_plot, static_cast<double>(layout.across) * type.width(fmt::format("H{}", layout.across - 1),
                                                                      short_name_font(options.font_points), true));
  const Index limit = std::max(panel_limit, image_limit / std::max(layout.across, layout.down));
  const HeatMap first = drawable(grid.rows[0][0], limit);
  fit_panels(layout, scene, first, type, options.font_points);
  layout.panel.vectors = as_vectors(first, static_cast<Index>(maps.size()));
  for (Index row = 0; row < layout.down; ++row) {
    const auto& heads = grid.rows[static_cast<std::size_t>(row)];
    for (Index column = 0; column < static_cast<Index>(heads.size()); ++column)
      draw_grid_panel(scene, layout, drawable(heads[static_cast<std::size_t>(column)], limit), row, column);
  }
  draw_grid_names(scene, layout, grid, first, options.font_points);
  draw_titles(scene, layout, grid.title, first, options.font_points);
  // Pooling says so at the end of a map's caption.
  const std::string caption = grid.caption + first.caption.substr(grid.rows[0][0].caption.size());
  finish(scene, layout, first, caption, options);
  scene.description = figure::description(caption, maps);
  return figure::rendered(scene, format, options);
}

}  // namespace regard
