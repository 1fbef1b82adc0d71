// Line charts: measured curves as figures for papers, in the style of the heat
// maps. Curves differ in colour (safe for the colour-blind) and in the shape of
// their markers (safe in grey print).
#pragma once

#include <string>
#include <vector>

#include "regard/figure.h"

namespace regard {

// How numbers are placed along an axis: log2 has its ticks at powers of two
// (lengths), log10 at powers of ten.
enum class AxisScale { linear, log2, log10 };

struct ChartAxis {
  std::string title{};  // with its unit: "milliseconds"
  AxisScale scale = AxisScale::linear;
};

// Points from left to right, joined by straight lines.
struct Curve {
  std::string name{};
  std::vector<double> x{}, y{};
  // What theory says about them, when given: a thin line in the same colour. The
  // points are then not joined.
  std::vector<double> theory_x{}, theory_y{};
};

struct Chart {
  std::string title{}, caption{};
  ChartAxis x{}, y{};
  std::vector<Curve> curves{};  // 1 to 8
};

// Title, axes with ticks that never touch, curves, their key and the caption.
// A linear axis begins at 0 where nothing is negative. `numbers` and `line_mass`
// of the options mean nothing here. Throws ArgumentError, naming the curve, for
// a curve without points or with x and y of different lengths (theory's too), for numbers that
// are not finite and, on logarithmic axes, not above 0; and for none or more
// than 8 curves.
std::string figure_chart(const Chart& chart, FigureFormat format, const FigureOptions& options = {});

}  // namespace regard
