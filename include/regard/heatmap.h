// HeatMap: what a picture of attention shows, before it becomes characters,
// vectors or pixels.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "regard/palette.h"
#include "regard/tensor.h"
#include "regard/trace.h"

namespace regard {

// How a weight becomes a colour.
enum class Scale {
  automatic,   // linear up to 64 keys, lift above
  linear,      // 0 to 1, always: heads stay comparable
  lift,        // log2(weight x visible keys): 0 is uniform attention
  logarithmic  // 0.0001 to 1 in decades
};

// Labels of one axis, ready to show.
struct Axis {
  std::string title;               // "attended to"
  std::vector<std::string> texts;  // printable, sub-word marks removed
  std::vector<bool> repeated;      // the same text occurs more than once

  Index size() const { return static_cast<Index>(texts.size()); }
  // "n" where it is the only n, "n₄" where there are others.
  std::string label(Index index) const;
  // Always with its index, for thinned axes.
  std::string indexed(Index index) const;
};

// Rows are queries (attend from), columns keys (attended to), counted from 0.
struct HeatMap {
  std::string title;    // "Layer 5, Head 9"
  std::string name;     // "L5H9"
  std::string caption;  // model, kind, what is plotted, lengths
  Axis queries;
  Axis keys;
  Tensor<float> values;          // [q_len, kv_len]
  Tensor<std::uint8_t> visible;  // [q_len, kv_len], 1 = may attend
  Scale scale = Scale::linear;   // never automatic
  std::vector<Index> seen;       // [q_len], visible keys of each row
  MapQuantity quantity = MapQuantity::weights;
  std::string sums;  // "each row sums to 1", or between what they do

  Index q_len() const { return queries.size(); }
  Index kv_len() const { return keys.size(); }
  float value(Index query, Index key) const { return values[query * kv_len() + key]; }
  bool hidden(Index query, Index key) const { return !visible[query * kv_len() + key]; }
  bool any_hidden() const;
};

struct HeatMapOptions {
  Scale scale = Scale::automatic;
  bool raw_labels = false;  // keep sub-word marks such as "##" and "▁"
};

// Instead of a head's number: the average over all heads of the layer.
constexpr Index mean_of_heads = -1;

struct MapChoice {
  AttentionKind kind = AttentionKind::encoder;
  Index layer = 0;
  Index head = mean_of_heads;
};

// One head's map. Cross-attention rows carry the symbol being produced. Throws
// ArgumentError when the trace lacks the map or its labels don't fit its shape.
HeatMap heat_map(const Trace& trace, const MapChoice& choice, const HeatMapOptions& options = {});

// Every head of every recorded layer of a kind: layers down, heads across.
struct HeatGrid {
  std::string title;
  std::string caption;
  std::vector<std::vector<HeatMap>> rows;  // [layers][heads], none empty
};
HeatGrid heat_grid(const Trace& trace, AttentionKind kind, const HeatMapOptions& options = {});

// Where a cell lies on its scale: 0 to 1 (linear, logarithmic) or -1 to 1
// (lift); not-a-number stays so. Hidden cells have no shade: ask hidden() first.
double shade(const HeatMap& map, Index query, Index key);
// The colour of a cell, hidden ones included.
Colour cell_colour(const HeatMap& map, Index query, Index key);

// A scale bar: positions 0 to 1 along it with their labels, and what they mean.
std::vector<std::pair<double, std::string>> scale_ticks(const HeatMap& map);
std::string scale_title(const HeatMap& map);
// The colour at a position 0 to 1 along the bar.
Colour scale_colour(const HeatMap& map, double position);

// Three decimals; "0" for zero, "< 0.001" for what would round to it.
std::string weight_text(double weight);
// The same in five columns: "<.001".
std::string cell_text(double weight);
// Label every n-th entry so that at most `room` are shown; n is 1, 2, 5, 10, 20, ...
Index label_step(Index count, Index room);

struct Pair {
  Index query = 0;
  Index key = 0;
  float weight = 0;
};
// The `count` largest visible weights, largest first; earlier cells win ties.
std::vector<Pair> strongest_pairs(const HeatMap& map, std::size_t count);
// The keys of one row, strongest first.
std::vector<Pair> strongest_keys(const HeatMap& map, Index query, std::size_t count);

// How concentrated a head is, 0 (each row spread evenly over what it may see)
// to 1 (one key per row): 1 - entropy / log(visible keys), averaged over rows
// that see more than one key; 0 when there is none.
double focus(const HeatMap& map);
// "62 % of the attention is on t (position 0)" when one key gets at least 40 %
// of all the mass and three times its share, else "".
std::string sink_verdict(const HeatMap& map);

// The same map with blocks of `factor` x `factor` cells replaced by their
// largest visible value; a block is hidden when all of it is. For pictures with
// fewer cells than the map; the caption says so.
HeatMap pooled(const HeatMap& map, Index factor);

}  // namespace regard
