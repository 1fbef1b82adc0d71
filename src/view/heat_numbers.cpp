// Numbers read off a heat map.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/error.h"
#include "regard/heatmap.h"

namespace regard {
namespace {

// Rows that a mask hides whole, and weights that are no numbers, count nothing.
double row_focus(const HeatMap& map, Index query, bool& counts) {
  double entropy = 0;
  Index seen = 0;
  for (Index key = 0; key < map.kv_len(); ++key) {
    if (map.hidden(query, key)) continue;
    ++seen;
    const double weight = map.value(query, key);
    if (weight > 0) entropy -= weight * std::log(weight);
  }
  counts = seen > 1 && !std::isnan(entropy);
  return counts ? std::clamp(1 - entropy / std::log(static_cast<double>(seen)), 0.0, 1.0) : 0;
}

Axis pooled(const Axis& axis, Index factor) {
  Axis result;
  result.title = axis.title;
  for (Index i = 0; i < axis.size(); i += factor) {
    const Index last = std::min(i + factor, axis.size()) - 1;
    const auto first_text = axis.texts[static_cast<std::size_t>(i)];
    result.texts.push_back(last == i ? first_text : fmt::format("{}-{}", i, last));
    result.repeated.push_back(false);
  }
  return result;
}

std::vector<Pair> strongest(std::vector<Pair> pairs, std::size_t count) {
  count = std::min(count, pairs.size());
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.weight > b.weight; });
  pairs.resize(count);
  return pairs;
}

void add_row(const HeatMap& map, Index query, std::vector<Pair>& pairs) {
  for (Index key = 0; key < map.kv_len(); ++key)
    if (!map.hidden(query, key) && !std::isnan(map.value(query, key)))
      pairs.push_back({query, key, map.value(query, key)});
}

}  // namespace

std::string weight_text(double weight) {
  if (weight == 0) return "0";
  if (weight > 0 && weight < 0.0005) return "< 0.001";
  return fmt::format("{:.3f}", weight);
}

std::string cell_text(double weight) { return weight > 0 && weight < 0.0005 ? "<.001" : weight_text(weight); }

bool HeatMap::any_hidden() const {
  return std::any_of(seen.begin(), seen.end(), [&](Index count) { return count < kv_len(); });
}

Index label_step(Index count, Index room) {
  room = std::max<Index>(room, 1);
  for (Index decade = 1;; decade *= 10)
    for (Index step : {decade, 2 * decade, 5 * decade})
      if ((count + step - 1) / step <= room) return step;
}

std::vector<Pair> strongest_pairs(const HeatMap& map, std::size_t count) {
  std::vector<Pair> best;
  // Row by row, so that a map of millions of cells is never held as pairs.
  for (Index query = 0; query < map.q_len(); ++query) {
    add_row(map, query, best);
    best = strongest(std::move(best), count);
  }
  return best;
}

std::vector<Pair> strongest_keys(const HeatMap& map, Index query, std::size_t count) {
  if (query < 0 || query >= map.q_len())
    throw ArgumentError(fmt::format("heat map: no query {}; there are {}", query, map.q_len()));
  std::vector<Pair> pairs;
  add_row(map, query, pairs);
  return strongest(std::move(pairs), count);
}

double focus(const HeatMap& map) {
  double sum = 0;
  Index rows = 0;
  for (Index query = 0; query < map.q_len(); ++query) {
    bool counts = false;
    sum += row_focus(map, query, counts);
    rows += counts;
  }
  return rows ? sum / static_cast<double>(rows) : 0;
}

std::string sink_verdict(const HeatMap& map) {
  std::vector<double> mass(static_cast<std::size_t>(map.kv_len()), 0.0);
  double total = 0;
  for (Index query = 0; query < map.q_len(); ++query)
    for (Index key = 0; key < map.kv_len(); ++key) {
      if (map.hidden(query, key) || std::isnan(map.value(query, key))) continue;
      mass[static_cast<std::size_t>(key)] += map.value(query, key);
      total += map.value(query, key);
    }
  const auto most = std::max_element(mass.begin(), mass.end());
  if (map.q_len() < 2 || total <= 0) return "";
  const double share = *most / total;
  if (share < 0.4 || share * static_cast<double>(map.kv_len()) < 3) return "";
  const Index key = most - mass.begin();
  const char* of = map.quantity == MapQuantity::weights ? "attention" : quantity_title(map.quantity);
  return fmt::format("{:.0f} % of the {} is on {} (position {})", 100 * share, of,
                     map.keys.texts[static_cast<std::size_t>(key)], key);
}

HeatMap pooled(const HeatMap& map, Index factor) {
  if (factor < 1) throw ArgumentError(fmt::format("pooled: factor {}, need at least 1", factor));
  if (factor == 1) return map;
  HeatMap small = map;
  small.queries = pooled(map.queries, factor);
  small.keys = pooled(map.keys, factor);
  small.seen.assign(static_cast<std::size_t>(small.q_len()), 0);
  small.values = Tensor<float>({small.q_len(), small.kv_len()});
  small.visible = Tensor<std::uint8_t>({small.q_len(), small.kv_len()});
  for (Index query = 0; query < map.q_len(); ++query) {
    Index& seen = small.seen[static_cast<std::size_t>(query / factor)];
    seen = std::max(seen, map.seen[static_cast<std::size_t>(query)]);
    for (Index key = 0; key < map.kv_len(); ++key) {
      if (map.hidden(query, key)) continue;
      const Index cell = query / factor * small.kv_len() + key / factor;
      const float value = map.value(query, key);
      // A not-a-number must not disappear behind a larger neighbour.
      if (!small.visible[cell] || std::isnan(value) || value > small.values[cell]) small.values[cell] = value;
      small.visible[cell] = 1;
    }
  }
  small.caption += fmt::format("; each cell shows the largest of {} × {} weights", factor, factor);
  return small;
}

}  // namespace regard
