#include "view/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace regard::figure {
namespace {

constexpr double edge = 1e-9;  // a tick on the axis' very end is on the axis

std::string superscript(int number) {
  constexpr const char* digits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text;
  for (char c : std::to_string(number)) text += c == '-' ? "⁻" : digits[c - '0'];
  return text;
}

// The smallest of 1, 2 and 5 times a power of ten that is not below `step`.
double nice(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= step * (1 - edge)) return factor * power;
  return 10 * power;
}

}  // namespace

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size >= 0.9999e-4 && size < 1e6)) return fmt::format("{:.6g}", value);
  const int power = static_cast<int>(std::floor(std::log10(size) + edge));
  const double factor = value / std::pow(10, power);
  const std::string times = std::abs(factor - 1) < 1e-6 ? "" : fmt::format("{:.3g}·", factor);
  return times + "10" + superscript(power);
}

AxisRange::AxisRange(AxisScale scale, const std::vector<double>& values) : scale_(scale) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  low_ = scaled(*least), high_ = scaled(*most);
  const bool from_zero = scale_ == AxisScale::linear && low_ >= 0;
  if (from_zero) low_ = 0;
  if (high_ - low_ <= 0) {
    if (!from_zero) low_ -= 0.5;
    high_ += 0.5;
  }
  const double room = 0.05 * (high_ - low_);
  high_ += room;
  if (!from_zero) low_ -= room;
}

double AxisRange::scaled(double value) const {
  return scale_ == AxisScale::linear ? value : scale_ == AxisScale::log2 ? std::log2(value) : std::log10(value);
}

double AxisRange::place(double value) const { return (scaled(value) - low_) / (high_ - low_); }

// About `per_axis` of them, evenly spaced numbers.
std::vector<double> AxisRange::steps(double per_axis) const {
  const auto unscaled = [&](double v) {
    return scale_ == AxisScale::linear ? v : scale_ == AxisScale::log2 ? std::exp2(v) : std::pow(10, v);
  };
  const double low = unscaled(low_), high = unscaled(high_), step = nice((high - low) / per_axis);
  std::vector<double> found;
  for (double i = std::ceil(low / step - edge); i * step <= high * (1 + edge) + edge * step; ++i)
    found.push_back(i * step + 0.0);  // never -0
  return found;
}

std::vector<double> AxisRange::powers(double base, int every) const {
  const double unit = scaled(base) * every;
  std::vector<double> found;
  for (double i = std::ceil(low_ / unit - edge); i * unit <= high_ + edge; ++i)
    found.push_back(std::pow(base, i * every));
  return found;
}

std::vector<double> AxisRange::one_two_five() const {
  std::vector<double> found;
  for (double power = std::floor(low_); power <= high_; ++power)
    for (double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10, power);
      if (scaled(value) >= low_ - edge && scaled(value) <= high_ + edge) found.push_back(value);
    }
  return found;
}

// From the densest to the sparsest.
std::vector<std::vector<double>> AxisRange::choices() const {
  std::vector<std::vector<double>> found;
  if (scale_ == AxisScale::log10) found.push_back(one_two_five());
  if (scale_ != AxisScale::linear)
    for (int every : {1, 2, 3, 5, 10}) found.push_back(powers(scale_ == AxisScale::log2 ? 2 : 10, every));
  for (double per_axis : {10.0, 6.0, 4.0, 2.0}) found.push_back(steps(per_axis));
  return found;
}

std::vector<Tick> AxisRange::ticks(const std::function<bool(const Tick&, const Tick&)>& fits) const {
  std::vector<Tick> ticks;
  for (const std::vector<double>& values : choices()) {
    if (values.size() < 2) continue;
    ticks.clear();
    for (double value : values) ticks.push_back({value, tick_text(value)});
    const auto crowded = [&](const Tick& a, const Tick& b) { return !fits(a, b); };
    if (std::adjacent_find(ticks.begin(), ticks.end(), crowded) == ticks.end()) return ticks;
  }
  // The last choice has room for one label if for none else.
  ticks.resize(std::min<std::size_t>(ticks.size(), 1));
  return ticks;
}

}  // namespace regard::figure
