// From weights to shades, and the scale bars that say what a shade means.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/heatmap.h"

namespace regard {
namespace {

constexpr double log_decades = 4;

// The lift that gets the full colour. It depends on the length alone, so that
// heads stay comparable; 64 times uniform is enough to stand out.
double lift_range(const HeatMap& map) {
  Index longest = 2;
  for (Index count : map.seen) longest = std::max(longest, count);
  return std::clamp(std::ceil(std::log2(static_cast<double>(longest))), 1.0, 6.0);
}

}  // namespace

double shade(const HeatMap& map, Index query, Index key) {
  const double weight = map.value(query, key);
  if (std::isnan(weight)) return weight;
  if (map.scale == Scale::lift) {
    if (weight <= 0) return -1;
    const double lift = std::log2(weight * static_cast<double>(map.seen[static_cast<std::size_t>(query)]));
    return std::clamp(lift / lift_range(map), -1.0, 1.0);
  }
  if (map.scale == Scale::logarithmic)
    return weight <= 0 ? 0 : std::clamp(1 + std::log10(weight) / log_decades, 0.0, 1.0);
  return std::clamp(weight, 0.0, 1.0);
}

Colour cell_colour(const HeatMap& map, Index query, Index key) {
  if (map.hidden(query, key)) return hidden_colour();
  const double value = shade(map, query, key);
  return map.scale == Scale::lift ? diverging_colour(value) : sequential_colour(value);
}

Colour scale_colour(const HeatMap& map, double position) {
  return map.scale == Scale::lift ? diverging_colour(2 * position - 1) : sequential_colour(position);
}

std::vector<std::pair<double, std::string>> scale_ticks(const HeatMap& map) {
  if (map.scale == Scale::lift) {
    const auto times = static_cast<long>(std::exp2(lift_range(map)));
    return {{0.0, fmt::format("≤ 1/{}", times)}, {0.5, "uniform"}, {1.0, fmt::format("≥ {}×", times)}};
  }
  if (map.scale == Scale::logarithmic)
    return {{0.0, "0.0001"}, {0.25, "0.001"}, {0.5, "0.01"}, {0.75, "0.1"}, {1.0, "1"}};
  return {{0.0, "0"}, {0.25, "0.25"}, {0.5, "0.5"}, {0.75, "0.75"}, {1.0, "1"}};
}

std::string scale_title(const HeatMap& map) {
  if (map.scale == Scale::lift)
    return std::string(map.quantity == MapQuantity::weights ? "attention" : quantity_unit(map.quantity)) +
           " relative to uniform, log2(" + (map.quantity == MapQuantity::weights ? "weight" : "share") +
           " × visible keys); " + map.sums;
  const std::string unit = quantity_unit(map.quantity);
  return unit + (map.scale == Scale::logarithmic ? ", logarithmic; " : "; ") + map.sums;
}

}  // namespace regard
