#include "view/figure_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/error.h"

namespace regard::figure {
namespace {

constexpr double label_pitch = 1.08;     // of the font size: single lines that don't touch
constexpr double middle_of_line = 0.36;  // from the baseline up, of the font size
constexpr Index label_room = 60;         // tokens of an axis that are all labelled
constexpr double label_gap = 2.5;
constexpr Colour grid_line{226, 226, 226}, frame{90, 90, 90};

// Every n-th label such that n cells leave room for one line of text.
Index thinning(Index count, double pitch, double size) {
  const double length = pitch * static_cast<double>(count);
  const auto room = static_cast<Index>(std::floor(length / (size * label_pitch)));
  // The last labelled cell may be less than n cells wide: labels are centred on
  // their cell, so half a step at each end is enough.
  return label_step(count, std::min(label_room, std::max<Index>(1, room)));
}

std::vector<std::string> label_texts(const Axis& axis, Index step) {
  std::vector<std::string> texts;
  for (Index i = 0; i < axis.size(); ++i) texts.push_back(i % step ? "" : step > 1 ? axis.indexed(i) : axis.label(i));
  return texts;
}

double widest(const Typesetter& type, const std::vector<std::string>& texts, double size) {
  double most = 0;
  for (const std::string& text : texts)
    if (!text.empty()) most = std::max(most, type.width(text, size));
  return most;
}

// Equal neighbours in a row become one box: smaller files, fewer seams.
void draw_boxes(Scene& scene, const HeatMap& map, const Panel& panel) {
  for (Index query = 0; query < map.q_len(); ++query) {
    const double y = panel.y + static_cast<double>(query) * panel.cell_height;
    for (Index key = 0, end = 0; key < map.kv_len(); key = end) {
      const Colour colour = cell_colour(map, query, key);
      for (end = key + 1; end < map.kv_len() && cell_colour(map, query, end) == colour;) ++end;
      scene.add(Box{panel.x + static_cast<double>(key) * panel.cell_width, y,
                    static_cast<double>(end - key) * panel.cell_width, panel.cell_height, colour});
    }
  }
}

void draw_hatching(Scene& scene, const HeatMap& map, const Panel& panel) {
  for (Index query = 0; query < map.q_len(); ++query)
    for (Index key = 0; key < map.kv_len(); ++key) {
      if (!map.hidden(query, key)) continue;
      const double x = panel.x + static_cast<double>(key) * panel.cell_width;
      const double y = panel.y + static_cast<double>(query) * panel.cell_height;
      scene.add(Stroke{x, y + panel.cell_height, x + panel.cell_width, y, 0.4, hatch_colour()});
    }
}

void draw_grid_lines(Scene& scene, const HeatMap& map, const Panel& panel) {
  const double width = static_cast<double>(map.kv_len()) * panel.cell_width;
  const double height = static_cast<double>(map.q_len()) * panel.cell_height;
  for (Index key = 1; key < map.kv_len(); ++key) {
    const double x = panel.x + static_cast<double>(key) * panel.cell_width;
    scene.add(Stroke{x, panel.y, x, panel.y + height, 0.3, grid_line});
  }
  for (Index query = 1; query < map.q_len(); ++query) {
    const double y = panel.y + static_cast<double>(query) * panel.cell_height;
    scene.add(Stroke{panel.x, y, panel.x + width, y, 0.3, grid_line});
  }
}

// ".123": what a cell has room for.
std::string number_text(double weight) {
  const std::string text = cell_text(weight);
  return text.starts_with("0.") ? text.substr(1) : text.starts_with("1.") ? "1.00" : text;
}

// One size for all cells; 0: they have no room.
double number_size(const Typesetter& type, const HeatMap& map, const Panel& panel) {
  constexpr double largest = 6, lowest_cell = 8, narrowest_cell = 16;
  if (panel.cell_height < lowest_cell || panel.cell_width < narrowest_cell) return 0;
  double widest = 0;
  for (Index query = 0; query < map.q_len(); ++query)
    for (Index key = 0; key < map.kv_len(); ++key)
      if (!map.hidden(query, key)) widest = std::max(widest, type.width(number_text(map.value(query, key)), largest));
  const double size = std::min(largest, 0.85 * panel.cell_width / widest * largest);
  return size < smallest_font ? 0 : size;
}

void draw_picture(Scene& scene, const HeatMap& map, const Panel& panel) {
  Picture picture{.x = panel.x,
                  .y = panel.y,
                  .width = static_cast<double>(map.kv_len()) * panel.cell_width,
                  .height = static_cast<double>(map.q_len()) * panel.cell_height,
                  .columns = static_cast<int>(map.kv_len()),
                  .rows = static_cast<int>(map.q_len())};
  for (Index query = 0; query < map.q_len(); ++query)
    for (Index key = 0; key < map.kv_len(); ++key) {
      const bool hatched = map.hidden(query, key) && (query + key) % 4 == 0;
      picture.pixels.push_back(hatched ? hatch_colour() : cell_colour(map, query, key));
    }
  scene.add(std::move(picture));
}

// Ends are flush with the bar, the rest centred; a tick without room is left out.
void draw_ticks(Scene& scene, const Typesetter& type, const HeatMap& map, const Strip& bar, double size) {
  const auto ticks = scale_ticks(map);
  const double end = bar.x + bar.width - type.width(ticks.back().second, size);
  double used = bar.x;
  for (const auto& [position, text] : ticks) {
    const double x = bar.x + position * bar.width, half = type.width(text, size) / 2;
    const bool inner = position > 0 && position < 1;
    if (inner && (x - half < used + label_gap || x + half > end - label_gap)) continue;
    scene.add(Stroke{x, bar.y, x, bar.y + 2, 0.5, frame});
    const Anchor anchor = inner ? Anchor::middle : position == 0 ? Anchor::start : Anchor::end;
    scene.add(Label{.x = x, .y = bar.y + 2.5 + size, .text = text, .size = size, .anchor = anchor});
    used = inner ? x + half : x + 2 * half;
  }
}

double draw_hidden_note(Scene& scene, const Typesetter& type, const Strip& strip, double size) {
  const double side = size * 0.9;
  scene.add(Box{strip.x, strip.y, side, side, hidden_colour()});
  scene.add(Stroke{strip.x, strip.y + side, strip.x + side, strip.y, 0.4, hatch_colour()});
  draw_frame(scene, strip.x, strip.y, side, side);
  const Strip beside{strip.x + side + 3, strip.y - size * 0.15, strip.width - side - 3};
  return draw_text(scene, type, "hidden by the mask", beside, size) + size * 0.3;
}

}  // namespace

void draw_frame(Scene& scene, double x, double y, double width, double height) {
  scene.add(Stroke{x, y, x + width, y, 0.5, frame});
  scene.add(Stroke{x, y + height, x + width, y + height, 0.5, frame});
  scene.add(Stroke{x, y, x, y + height, 0.5, frame});
  scene.add(Stroke{x + width, y, x + width, y + height, 0.5, frame});
}

void check_options(const FigureOptions& options) {
  const auto within = [](const char* name, double value, double least, double most) {
    if (!(value >= least && value <= most))
      throw ArgumentError(fmt::format("figure: {} is {}, must be {} to {}", name, value, least, most));
  };
  within("width_inches", options.width_inches, 1, 100);
  within("font_points", options.font_points, 3, 72);
  within("dpi", options.dpi, 10, 2400);
  within("line_mass", options.line_mass, 0.01, 1);
}

void check_cells(const HeatMap& map) {
  if (map.q_len() == 0 || map.kv_len() == 0)
    throw ArgumentError(fmt::format("figure: {} has no cells ({} queries, {} keys)",
                                    map.title.empty() ? "the map" : map.title, map.q_len(), map.kv_len()));
}

Scene new_scene(const FigureOptions& options, const Typesetter& type, const std::string& title) {
  Scene scene;
  scene.title = title;
  scene.width =
      std::max(options.width_inches * points_per_inch, type.width(title, options.font_points, true) + 2 * margin);
  scene.font = options.font;
  scene.transparent = options.transparent;
  return scene;
}

std::string rendered(const Scene& scene, FigureFormat format, const FigureOptions& options) {
  if (format == FigureFormat::svg) return to_svg(scene);
  return format == FigureFormat::pdf ? to_pdf(scene) : to_png(scene, options.dpi);
}

LabelPlan plan_rows(const Typesetter& type, const Axis& axis, double pitch, double font) {
  LabelPlan plan;
  plan.size = std::clamp(pitch / label_pitch, std::min(smallest_font, font), font);
  plan.texts = label_texts(axis, thinning(axis.size(), pitch, plan.size));
  plan.extent = widest(type, plan.texts, plan.size) + label_gap;
  return plan;
}

double widest_label(const Typesetter& type, const Axis& axis, double font) {
  double most = 0;
  for (Index i = 0; i < axis.size(); ++i) most = std::max(most, type.width(axis.indexed(i), font));
  return most + label_gap;
}

LabelPlan plan_columns(const Typesetter& type, const Axis& axis, double pitch, double font) {
  LabelPlan plan;
  if (axis.size() <= label_room) {
    plan.texts = label_texts(axis, 1);
    for (double size : {font, std::max(smallest_font, font * 0.8)})
      if (widest(type, plan.texts, size) + label_gap <= pitch) {
        plan.size = size;
        plan.extent = size * line_height + label_gap;
        return plan;
      }
  }
  plan = plan_rows(type, axis, pitch, font);
  plan.upwards = true;
  return plan;
}

void draw_cells(Scene& scene, const HeatMap& map, const Panel& panel) {
  if (panel.vectors) {
    draw_boxes(scene, map, panel);
    draw_hatching(scene, map, panel);
    if (std::min(panel.cell_width, panel.cell_height) >= 4) draw_grid_lines(scene, map, panel);
  } else {
    draw_picture(scene, map, panel);
  }
  draw_frame(scene, panel.x, panel.y, static_cast<double>(map.kv_len()) * panel.cell_width,
             static_cast<double>(map.q_len()) * panel.cell_height);
}

void draw_numbers(Scene& scene, const Typesetter& type, const HeatMap& map, const Panel& panel) {
  const double size = number_size(type, map, panel);
  if (size == 0) return;
  for (Index query = 0; query < map.q_len(); ++query)
    for (Index key = 0; key < map.kv_len(); ++key)
      if (!map.hidden(query, key))
        scene.add(Label{.x = panel.x + (static_cast<double>(key) + 0.5) * panel.cell_width,
                        .y = panel.y + (static_cast<double>(query) + 0.5) * panel.cell_height + middle_of_line * size,
                        .text = number_text(map.value(query, key)),
                        .size = size,
                        .anchor = Anchor::middle,
                        .colour = text_colour_on(cell_colour(map, query, key))});
}

void draw_row_labels(Scene& scene, const LabelPlan& plan, const Panel& panel) {
  for (std::size_t i = 0; i < plan.texts.size(); ++i) {
    if (plan.texts[i].empty()) continue;
    const double middle = panel.y + (static_cast<double>(i) + 0.5) * panel.cell_height;
    scene.add(Label{.x = panel.x - label_gap,
                    .y = middle + middle_of_line * plan.size,
                    .text = plan.texts[i],
                    .size = plan.size,
                    .anchor = Anchor::end});
  }
}

void draw_column_labels(Scene& scene, const LabelPlan& plan, const Panel& panel) {
  for (std::size_t i = 0; i < plan.texts.size(); ++i) {
    if (plan.texts[i].empty()) continue;
    const double middle = panel.x + (static_cast<double>(i) + 0.5) * panel.cell_width;
    scene.add(Label{.x = plan.upwards ? middle + middle_of_line * plan.size : middle,
                    .y = panel.y - label_gap,
                    .text = plan.texts[i],
                    .size = plan.size,
                    .anchor = plan.upwards ? Anchor::start : Anchor::middle,
                    .upwards = plan.upwards});
  }
}

double draw_scale(Scene& scene, const Typesetter& type, const HeatMap& map, const Strip& strip, double font) {
  constexpr double bar_height = 6;
  const double size = smaller_font(font);
  Picture bar{.x = strip.x,
              .y = strip.y,
              .width = std::min(strip.width, 160.0),
              .height = bar_height,
              .columns = 128,
              .rows = 1};
  for (int i = 0; i < bar.columns; ++i) bar.pixels.push_back(scale_colour(map, i / (bar.columns - 1.0)));
  const double width = bar.width;
  scene.add(std::move(bar));
  draw_frame(scene, strip.x, strip.y, width, bar_height);
  draw_ticks(scene, type, map, {strip.x, strip.y + bar_height, width}, size);
  double y = strip.y + bar_height + 4 + size * line_height;
  y = draw_text(scene, type, scale_title(map), {strip.x, y, strip.width}, size);
  return map.any_hidden() ? draw_hidden_note(scene, type, {strip.x, y + 2, strip.width}, size) : y;
}

double draw_text(Scene& scene, const Typesetter& type, const std::string& text, const Strip& strip, double font) {
  double y = strip.y;
  for (const std::string& line : type.lines(text, font, strip.width)) {
    scene.add(Label{.x = strip.x, .y = y + font, .text = line, .size = font});
    y += font * line_height;
  }
  return y;
}

std::string description(const std::string& caption, const std::vector<const HeatMap*>& maps) {
  struct Named {
    const HeatMap* map;
    Pair pair;
  };
  constexpr std::size_t count = 5;
  std::vector<Named> all;
  for (const HeatMap* map : maps)
    for (const Pair& pair : strongest_pairs(*map, count)) all.push_back({map, pair});
  std::stable_sort(all.begin(), all.end(),
                   [](const Named& a, const Named& b) { return a.pair.weight > b.pair.weight; });
  all.resize(std::min(all.size(), count));
  std::string text = caption + ".";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [map, pair] = all[i];
    text += fmt::format("{} {}{} to {}: {}", i == 0 ? " Strongest pairs:" : ",", maps.size() > 1 ? map->name + " " : "",
                        map->queries.label(pair.query), map->keys.label(pair.key), weight_text(pair.weight));
  }
  return text + ".";
}

}  // namespace regard::figure
