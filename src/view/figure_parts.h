// What matrix and grid figures are put together from.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "view/scene.h"

namespace regard::figure {

constexpr double points_per_inch = 72;
constexpr double margin = 3;           // around everything
constexpr double tallest_plot = 576;   // 8 inches: a page of text
constexpr double narrowest_plot = 72;  // wide labels widen the figure below this
constexpr double line_height = 1.2;    // of the font size
constexpr double smallest_font = 5;

// Of axis titles, scales and captions, where labels have size `font`.
inline double smaller_font(double font) { return std::max(smallest_font, font - 1); }

// Throws ArgumentError for options out of range, or for a map without cells.
void check_options(const FigureOptions& options);
void check_cells(const HeatMap& map);
// As wide as asked for, or as its title.
Scene new_scene(const FigureOptions& options, const Typesetter& type, const std::string& title);
std::string rendered(const Scene& scene, FigureFormat format, const FigureOptions& options);

// A thin line around a rectangle.
void draw_frame(Scene& scene, double x, double y, double width, double height);

// How one axis is labelled: what is written, how large, which way.
struct LabelPlan {
  std::vector<std::string> texts;  // empty: not labelled
  double size = 8;
  bool upwards = false;  // key labels turned by 90 degrees
  double extent = 0;     // room taken away from the cells
};

// Rows are one under the other `pitch` apart, columns side by side. Labels
// shrink, turn (columns) and thin out until they can't touch.
LabelPlan plan_rows(const Typesetter& type, const Axis& axis, double pitch, double font);
LabelPlan plan_columns(const Typesetter& type, const Axis& axis, double pitch, double font);

// The most room that row labels can take, at full size and with their indices.
double widest_label(const Typesetter& type, const Axis& axis, double font);

// The rectangle of a map's cells.
struct Panel {
  double x = 0, y = 0, cell_width = 0, cell_height = 0;
  bool vectors = true;
};

void draw_cells(Scene& scene, const HeatMap& map, const Panel& panel);
// Three digits in every cell, unless some cell has no room for its own.
void draw_numbers(Scene& scene, const Typesetter& type, const HeatMap& map, const Panel& panel);
void draw_row_labels(Scene& scene, const LabelPlan& plan, const Panel& panel);
void draw_column_labels(Scene& scene, const LabelPlan& plan, const Panel& panel);

// Where text under the pictures may stand.
struct Strip {
  double x = 0, y = 0, width = 0;
};

// Scale bar, ticks, meaning, and what hidden cells look like; returns the y
// below it.
double draw_scale(Scene& scene, const Typesetter& type, const HeatMap& map, const Strip& strip, double font);
// Wrapped lines; returns the y below them.
double draw_text(Scene& scene, const Typesetter& type, const std::string& text, const Strip& strip, double font);

// The caption and the strongest pairs, for readers who can't see the picture.
std::string description(const std::string& caption, const std::vector<const HeatMap*>& maps);

}  // namespace regard::figure
