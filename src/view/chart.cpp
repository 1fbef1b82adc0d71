#include "regard/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "regard/error.h"
#include "view/chart_axis.h"
#include "view/figure_parts.h"

namespace regard {
namespace {

using figure::Anchor;
using figure::AxisRange;
using figure::Label;
using figure::margin;
using figure::Outline;
using figure::Scene;
using figure::Stroke;
using figure::Tick;
using figure::Typesetter;

constexpr double height_of_width = 0.68;
constexpr double middle_of_line = 0.36;  // from the baseline up, of the font size
constexpr double tick_gap = 2.5;         // between axis and label, and at least between labels
constexpr double marker_radius = 2.1, curve_width = 1.1, theory_width = 0.5;
constexpr std::size_t marked_points = 40;  // of a curve; more would be a caterpillar
constexpr Colour grid_colour{226, 226, 226}, axis_colour{90, 90, 90};

void check_numbers(const std::string& curve, const char* name, AxisScale scale, const std::vector<double>& values) {
  for (double value : values) {
    if (!std::isfinite(value))
      throw ArgumentError(fmt::format("figure_chart: curve '{}' has {} = {}", curve, name, value));
    if (scale != AxisScale::linear && value <= 0)
      throw ArgumentError(fmt::format("figure_chart: curve '{}' has {} = {}, a logarithmic axis needs more than 0",
                                      curve, name, value));
  }
}

void check(const Chart& chart) {
  if (chart.curves.empty() || chart.curves.size() > curve_colours)
    throw ArgumentError(fmt::format("figure_chart: {} curves, there must be 1 to {}", chart.curves.size(),
                                    static_cast<int>(curve_colours)));
  for (const Curve& curve : chart.curves) {
    if (curve.x.empty() || curve.x.size() != curve.y.size())
      throw ArgumentError(
          fmt::format("figure_chart: curve '{}' has {} x and {} y", curve.name, curve.x.size(), curve.y.size()));
    if (curve.theory_x.size() != curve.theory_y.size())
      throw ArgumentError(fmt::format("figure_chart: curve '{}' has {} theory_x and {} theory_y", curve.name,
                                      curve.theory_x.size(), curve.theory_y.size()));
    check_numbers(curve.name, "x", chart.x.scale, curve.x);
    check_numbers(curve.name, "y", chart.y.scale, curve.y);
    check_numbers(curve.name, "theory_x", chart.x.scale, curve.theory_x);
    check_numbers(curve.name, "theory_y", chart.y.scale, curve.theory_y);
  }
}

using Numbers = std::vector<double> Curve::*;

AxisRange range_of(const Chart& chart, AxisScale scale, std::initializer_list<Numbers> members) {
  std::vector<double> all;
  for (const Curve& curve : chart.curves)
    for (Numbers numbers : members) all.insert(all.end(), (curve.*numbers).begin(), (curve.*numbers).end());
  return {scale, all};
}

// Where the curves are drawn, and what the axes say.
struct Plot {
  AxisRange x_range, y_range;
  double left = 0, top = 0, width = 0, height = 0;
  std::vector<Tick> x_ticks{}, y_ticks{};

  double x(double value) const { return left + width * x_range.place(value); }
  double y(double value) const { return top + height * (1 - y_range.place(value)); }
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

// Labels of the y axis decide the margin, and the rest follows.
Plot plan(const Scene& scene, const Typesetter& type, const Chart& chart, double font) {
  Plot plot{range_of(chart, chart.x.scale, {&Curve::x, &Curve::theory_x}),
            range_of(chart, chart.y.scale, {&Curve::y, &Curve::theory_y})};
  const double size = figure::smaller_font(font);
  plot.top = margin + font * 2.2;
  plot.height = height_of_width * scene.width * 0.8;
  plot.y_ticks = plot.y_range.ticks(
      [&](const Tick& a, const Tick& b) { return plot.y(a.value) - plot.y(b.value) >= size * figure::line_height; });
  double labels = 0;
  for (const Tick& tick : plot.y_ticks) labels = std::max(labels, type.width(tick.text, size));
  plot.left = margin + font * 1.5 + labels + tick_gap;
  const auto half = [&](const Tick& tick) { return type.width(tick.text, size) / 2; };
  // The last label of the x axis may stick out by half its width.
  plot.width = scene.width - plot.left - margin - 1.5 * size;
  plot.x_ticks = plot.x_range.ticks([&](const Tick& a, const Tick& b) {
    return plot.x(b.value) - plot.x(a.value) >= half(a) + half(b) + 2 * tick_gap;
  });
  return plot;
}

void draw_axes(Scene& scene, const Plot& plot, const Chart& chart, double font) {
  const double size = figure::smaller_font(font);
  for (const Tick& tick : plot.y_ticks) {
    const double y = plot.y(tick.value);
    scene.add(Stroke{plot.left, y, plot.right(), y, 0.4, grid_colour});
    scene.add(Label{.x = plot.left - tick_gap,
                    .y = y + middle_of_line * size,
                    .text = tick.text,
                    .size = size,
                    .anchor = Anchor::end});
  }
  for (const Tick& tick : plot.x_ticks) {
    const double x = plot.x(tick.value);
    scene.add(Stroke{x, plot.top, x, plot.bottom(), 0.4, grid_colour});
    scene.add(Label{
        .x = x, .y = plot.bottom() + tick_gap + 1 + size, .text = tick.text, .size = size, .anchor = Anchor::middle});
  }
  scene.add(Stroke{plot.left, plot.top, plot.left, plot.bottom(), 0.6, axis_colour});
  scene.add(Stroke{plot.left, plot.bottom(), plot.right(), plot.bottom(), 0.6, axis_colour});
  scene.add(Label{.x = margin + font,
                  .y = (plot.top + plot.bottom()) / 2,
                  .text = chart.y.title,
                  .size = size,
                  .anchor = Anchor::middle,
                  .upwards = true});
  scene.add(Label{.x = (plot.left + plot.right()) / 2,
                  .y = plot.bottom() + 2 * tick_gap + 2 * size,
                  .text = chart.x.title,
                  .size = size,
                  .anchor = Anchor::middle});
}

// Corners of each curve's marker, and where the first one stands (in turns,
// clockwise from three o'clock).
struct MarkerShape {
  int corners;
  double turn, size;
};

Outline marker(std::size_t index, double x, double y) {
  constexpr std::array<MarkerShape, curve_colours> shapes = {{{20, 0, 1},
                                                              {4, 0.125, 1.2},
                                                              {3, 0.75, 1.35},
                                                              {4, 0, 1.3},
                                                              {3, 0.25, 1.35},
                                                              {5, 0.75, 1.2},
                                                              {3, 0, 1.35},
                                                              {3, 0.5, 1.35}}};
  const MarkerShape& shape = shapes[index];
  Outline outline{.colour = curve_colour(static_cast<int>(index))};
  for (int i = 0; i < shape.corners; ++i) {
    const double angle = 2 * std::numbers::pi * (shape.turn + static_cast<double>(i) / shape.corners);
    outline.points.emplace_back(x + marker_radius * shape.size * std::cos(angle),
                                y + marker_radius * shape.size * std::sin(angle));
  }
  return outline;
}

bool has_theory(const Curve& curve) { return !curve.theory_x.empty(); }
// Points that nothing joins are always marked.
bool is_marked(const Curve& curve) { return has_theory(curve) || curve.x.size() <= marked_points; }
double line_width(const Curve& curve) { return has_theory(curve) ? theory_width : curve_width; }

void draw_curve(Scene& scene, const Plot& plot, const Curve& curve, std::size_t index) {
  const auto &xs = has_theory(curve) ? curve.theory_x : curve.x, &ys = has_theory(curve) ? curve.theory_y : curve.y;
  Outline line{.width = line_width(curve), .colour = curve_colour(static_cast<int>(index))};
  for (std::size_t i = 0; i < xs.size(); ++i) line.points.emplace_back(plot.x(xs[i]), plot.y(ys[i]));
  scene.add(std::move(line));
  if (!is_marked(curve)) return;
  for (std::size_t i = 0; i < curve.x.size(); ++i) scene.add(marker(index, plot.x(curve.x[i]), plot.y(curve.y[i])));
}

// A sample and the name of every curve, in as many lines as they need; returns
// the y below them.
double draw_key(Scene& scene, const Typesetter& type, const Chart& chart, double y, double font) {
  constexpr double sample = 16, gap = 3, between = 10;
  const double size = figure::smaller_font(font), room = scene.width - 2 * margin;
  double widest = 0;
  for (const Curve& curve : chart.curves) widest = std::max(widest, sample + gap + type.width(curve.name, size));
  const auto columns = static_cast<std::size_t>(
      std::clamp(std::floor((room + between) / (widest + between)), 1.0, static_cast<double>(chart.curves.size())));
  const double pitch = room / static_cast<double>(columns);
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const double x = margin + static_cast<double>(i % columns) * pitch;
    const double middle = y + static_cast<double>(i / columns) * size * 1.35 + size * 0.6;
    scene.add(Stroke{x, middle, x + sample, middle, line_width(chart.curves[i]), curve_colour(static_cast<int>(i))});
    if (is_marked(chart.curves[i])) scene.add(marker(i, x + sample / 2, middle));
    scene.add(
        Label{.x = x + sample + gap, .y = middle + middle_of_line * size, .text = chart.curves[i].name, .size = size});
  }
  const std::size_t lines = (chart.curves.size() + columns - 1) / columns;
  return y + static_cast<double>(lines) * size * 1.35;
}

// The caption and where each curve begins and ends, for readers who can't see it.
std::string description(const Chart& chart) {
  std::string text = chart.caption + ".";
  for (const Curve& curve : chart.curves)
    text += fmt::format(" {}: {:.3g} at {:.6g} to {:.3g} at {:.6g}.", curve.name, curve.y.front(), curve.x.front(),
                        curve.y.back(), curve.x.back());
  return text;
}

// Names in the key are never cut: the figure grows instead.
double width_for_key(const Typesetter& type, const Chart& chart, double font) {
  double widest = 0;
  for (const Curve& curve : chart.curves) widest = std::max(widest, type.width(curve.name, figure::smaller_font(font)));
  return widest + 19 + 2 * margin;
}

}  // namespace

std::string figure_chart(const Chart& chart, FigureFormat format, const FigureOptions& options) {
  figure::check_options(options);
  check(chart);
  const double font = options.font_points, size = figure::smaller_font(font);
  const Typesetter type(options.font);
  Scene scene = figure::new_scene(options, type, chart.title);
  scene.width = std::max({scene.width, width_for_key(type, chart, font), type.width(chart.x.title, size) * 1.4});
  const Plot plot = plan(scene, type, chart, font);
  draw_axes(scene, plot, chart, font);
  for (std::size_t i = 0; i < chart.curves.size(); ++i) draw_curve(scene, plot, chart.curves[i], i);
  scene.add(Label{.x = scene.width / 2,
                  .y = margin + font,
                  .text = chart.title,
                  .size = font,
                  .anchor = Anchor::middle,
                  .bold = true});
  double y = draw_key(scene, type, chart, plot.bottom() + 2 * size + 4 * tick_gap + 2, font);
  if (options.caption)
    y = figure::draw_text(scene, type, chart.caption, {margin, y + 3, scene.width - 2 * margin}, size);
  scene.height = y + margin;
  scene.description = description(chart);
  return figure::rendered(scene, format, options);
}

}  // namespace regard
