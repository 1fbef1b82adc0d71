// One axis of a chart: from numbers to places along it, and its ticks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "regard/chart.h"

namespace regard::figure {

struct Tick {
  double value = 0;
  std::string text{};
};

class AxisRange {
 public:
  // From the smallest to the largest of `values` (at least one, checked), with
  // a little room around them.
  AxisRange(AxisScale scale, const std::vector<double>& values);

  // 0 at the axis' low end, 1 at its high end.
  double place(double value) const;

  // The densest ticks whose labels fit: `fits(a, b)` says whether two neighbours
  // leave room for each other.
  std::vector<Tick> ticks(const std::function<bool(const Tick&, const Tick&)>& fits) const;

 private:
  double scaled(double value) const;
  std::vector<double> steps(double per_axis) const;
  std::vector<double> powers(double base, int every) const;
  std::vector<double> one_two_five() const;
  std::vector<std::vector<double>> choices() const;

  AxisScale scale_;
  double low_ = 0, high_ = 1;  // as scaled() gives them
};

// "0.05", "16384"; powers of ten beyond a million and below a ten-thousandth as 10⁻⁵.
std::string tick_text(double value);

}  // namespace regard::figure
