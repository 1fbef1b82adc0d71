// Attention as lines from queries to keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/error.h"
#include "view/figure_parts.h"

namespace regard {
namespace {

using figure::Anchor;
using figure::Label;
using figure::LabelPlan;
using figure::margin;
using figure::Panel;
using figure::Scene;
using figure::Stroke;
using figure::Typesetter;

constexpr std::size_t most_lines = 2000;
constexpr double label_gap = 3;
constexpr double middle_of_line = 0.36;  // from the baseline up, of the font size

// Each row's strongest keys until they carry `mass` of what it gives.
std::vector<Pair> edges_of(const HeatMap& map, double mass) {
  std::vector<Pair> edges;
  for (Index query = 0; query < map.q_len(); ++query) {
    const auto row = strongest_keys(map, query, static_cast<std::size_t>(map.kv_len()));
    double total = 0, carried = 0;
    for (const Pair& pair : row) total += std::max(0.0f, pair.weight);
    // A hair less, so that the rounding of a sum asks for no line of its own.
    for (const Pair& pair : row) {
      if (pair.weight <= 0 || carried >= (mass - 1e-6) * total) break;
      carried += pair.weight;
      edges.push_back(pair);
    }
  }
  if (edges.size() > most_lines)
    throw ArgumentError(
        fmt::format("figure: {} lines to carry {:.0f} % of each row, at most {}; lower the share, show "
                    "fewer tokens, or draw the matrix",
                    edges.size(), 100 * mass, most_lines));
  // The strongest are drawn last, on top.
  std::stable_sort(edges.begin(), edges.end(), [](const Pair& a, const Pair& b) { return a.weight < b.weight; });
  return edges;
}

// The ramp's first fifth would not show on white.
Stroke line_of(double weight) { return {.width = 0.3 + 2.2 * weight, .colour = sequential_colour(0.2 + 0.8 * weight)}; }

struct Columns {
  double left = 0, right = 0;  // where lines begin and end
  double top = 0, height = 0;
  LabelPlan queries{}, keys{};
};

double pitch(const Columns& columns, const Axis& axis) { return columns.height / static_cast<double>(axis.size()); }

double place(const Columns& columns, const Axis& axis, Index index) {
  return columns.top + (static_cast<double>(index) + 0.5) * pitch(columns, axis);
}

Columns plan(Scene& scene, const Typesetter& type, const HeatMap& map, double font) {
  Columns columns;
  const auto longest = static_cast<double>(std::max(map.q_len(), map.kv_len()));
  columns.height = std::min(longest * font * 1.6, figure::tallest_plot);
  columns.queries = figure::plan_rows(type, map.queries, pitch(columns, map.queries), font);
  columns.keys = figure::plan_rows(type, map.keys, pitch(columns, map.keys), font);
  // The axes' titles stand above the lines, each at its edge.
  const double title_font = figure::smaller_font(font);
  const double titles = type.width(map.queries.title, title_font) + type.width(map.keys.title, title_font) + font;
  const double labels = columns.queries.extent + columns.keys.extent + 2 * label_gap + figure::narrowest_plot;
  scene.width = std::max(scene.width, std::max(titles, labels) + 2 * margin);
  columns.left = margin + columns.queries.extent + label_gap;
  columns.right = scene.width - margin - columns.keys.extent - label_gap;
  columns.top = margin + font * 3;
  return columns;
}

void draw_labels(Scene& scene, const Columns& columns, const HeatMap& map, double font) {
  const Panel rows{.x = columns.left, .y = columns.top, .cell_height = pitch(columns, map.queries)};
  figure::draw_row_labels(scene, columns.queries, rows);
  const LabelPlan& keys = columns.keys;
  for (std::size_t i = 0; i < keys.texts.size(); ++i)
    if (!keys.texts[i].empty())
      scene.add(Label{.x = columns.right + label_gap,
                      .y = place(columns, map.keys, static_cast<Index>(i)) + middle_of_line * keys.size,
                      .text = keys.texts[i],
                      .size = keys.size});
  const double title_font = figure::smaller_font(font);
  const double y = columns.top - font * 0.5;
  scene.add(Label{.x = margin, .y = y, .text = map.queries.title, .size = title_font});
  scene.add(
      Label{.x = scene.width - margin, .y = y, .text = map.keys.title, .size = title_font, .anchor = Anchor::end});
}

// Samples of lines with the weights they stand for; returns the y below them.
double draw_key(Scene& scene, const Typesetter& type, double y, double font) {
  const double size = figure::smaller_font(font);
  double x = margin;
  for (double weight : {0.1, 0.25, 0.5, 1.0}) {
    const std::string text = fmt::format("{}", weight);
    const double wide = 17 + type.width(text, size);
    if (x > margin && x + wide > scene.width - margin) {
      x = margin;
      y += size * figure::line_height;
    }
    Stroke sample = line_of(weight);
    sample.x1 = x, sample.x2 = x + 14;
    sample.y1 = sample.y2 = y + size * 0.6;
    scene.add(sample);
    scene.add(Label{.x = x + 17, .y = y + size * 0.95, .text = text, .size = size});
    x += wide + 9;
  }
  return y + size * figure::line_height;
}

}  // namespace

std::string figure_lines(const HeatMap& map, FigureFormat format, const FigureOptions& options) {
  figure::check_options(options);
  figure::check_cells(map);
  const double font = options.font_points;
  const Typesetter type(options.font);
  Scene scene = figure::new_scene(options, type, map.title);
  const auto edges = edges_of(map, options.line_mass);
  const Columns columns = plan(scene, type, map, font);
  for (const Pair& edge : edges) {
    Stroke line = line_of(std::clamp(edge.weight, 0.0f, 1.0f));
    line.x1 = columns.left, line.y1 = place(columns, map.queries, edge.query);
    line.x2 = columns.right, line.y2 = place(columns, map.keys, edge.key);
    scene.add(line);
  }
  draw_labels(scene, columns, map, font);
  scene.add(Label{.x = scene.width / 2,
                  .y = margin + font,
                  .text = map.title,
                  .size = font,
                  .anchor = Anchor::middle,
                  .bold = true});
  const double share = 100 * options.line_mass;
  const std::string meaning = fmt::format("{}; {}; {}", quantity_unit(map.quantity), map.sums,
                                          share < 100 ? fmt::format("lines carry {:.0f} % of each row", share)
                                                      : std::string("lines carry the whole of each row"));
  const double room = scene.width - 2 * margin;
  double y = draw_key(scene, type, columns.top + columns.height + 6, font);
  y = figure::draw_text(scene, type, meaning, {margin, y, room}, figure::smaller_font(font));
  if (options.caption)
    y = figure::draw_text(scene, type, map.caption, {margin, y + 3, room}, figure::smaller_font(font));
  scene.height = y + margin;
  scene.description = figure::description(map.caption + "; " + meaning, {&map});
  return figure::rendered(scene, format, options);
}

}  // namespace regard
