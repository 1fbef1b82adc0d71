#include "regard/rollout.h"

#include <algorithm>
#include <string>

#include "regard/error.h"

namespace regard {
namespace {

const AttentionMap& weights_of(const Trace& trace, AttentionKind kind, Index layer) {
  const AttentionMap* map = trace.find(kind, layer);
  const std::string name = std::string(kind_title(kind)) + ", layer " + std::to_string(layer);
  if (!map || map->weights.empty()) throw ArgumentError("rollout: the trace holds no weights of " + name);
  const Shape labels{static_cast<Index>(trace.query_labels(kind).size()),
                     static_cast<Index>(trace.key_labels(kind).size())};
  const Shape& shape = map->weights.shape();
  if (shape.size() != 3 || shape[0] < 1 || shape[1] != labels[0] || shape[2] != labels[1])
    throw ArgumentError("rollout: " + name + " has weights " + map->weights.text() + " for " +
                        std::to_string(labels[0]) + " queries and " + std::to_string(labels[1]) + " keys");
  return *map;
}

// row [q_len] -> row W [kv_len] for the mean W of the heads, times `share`.
std::vector<double> through(const AttentionMap& map, const std::vector<double>& row, double share) {
  const Index heads = map.weights.size(0), q_len = map.weights.size(1), kv_len = map.weights.size(2);
  std::vector<double> to(static_cast<std::size_t>(kv_len), 0.0);
  for (Index head = 0; head < heads; ++head)
    for (Index query = 0; query < q_len; ++query) {
      const double part = share * row[static_cast<std::size_t>(query)] / static_cast<double>(heads);
      if (part == 0) continue;
      const float* weights = map.weights.data() + (head * q_len + query) * kv_len;
      for (Index key = 0; key < kv_len; ++key) to[static_cast<std::size_t>(key)] += part * weights[key];
    }
  return to;
}

void add(std::vector<double>& to, const std::vector<double>& more) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

void halve(std::vector<double>& row) {
  for (double& value : row) value /= 2;
}

// Half stays, half goes where the layer's weights say.
void mix(const Trace& trace, AttentionKind kind, Index layer, std::vector<double>& row) {
  const std::vector<double> moved = through(weights_of(trace, kind, layer), row, 0.5);
  halve(row);
  add(row, moved);
}

std::vector<double> unit_row(const Trace& trace, AttentionKind kind, Index row) {
  const auto count = static_cast<Index>(trace.query_labels(kind).size());
  if (row < 0 || row >= count)
    throw ArgumentError("rollout: no row " + std::to_string(row) + " in " + kind_title(kind) + "; there are " +
                        std::to_string(count));
  std::vector<double> unit(static_cast<std::size_t>(count), 0.0);
  unit[static_cast<std::size_t>(row)] = 1;
  return unit;
}

void down_the_encoder(const Trace& trace, Index from, std::vector<double>& row) {
  for (Index layer = from; layer >= 0; --layer) mix(trace, AttentionKind::encoder, layer, row);
}

AttentionMap rolled_map(const AttentionMap& like, const std::vector<std::vector<double>>& rows) {
  AttentionMap map;
  map.kind = like.kind;
  map.layer = like.layer;
  map.visible = like.visible;
  map.weights = Tensor<float>({1, like.weights.size(1), like.weights.size(2)});
  float* to = map.weights.data();
  for (const auto& row : rows) to = std::copy(row.begin(), row.end(), to);
  return map;
}

}  // namespace

RolloutRow rollout(const Trace& trace, AttentionKind kind, Index layer, Index row) {
  weights_of(trace, kind, layer);
  std::vector<double> at = unit_row(trace, kind, row);
  if (kind == AttentionKind::encoder) {
    down_the_encoder(trace, layer, at);
    return {std::move(at), {}};
  }
  RolloutRow shares{std::vector<double>(trace.source.size(), 0.0), {}};
  for (; layer >= 0; --layer) {
    add(shares.source, through(weights_of(trace, AttentionKind::cross, layer), at, 0.5));
    halve(at);
    mix(trace, AttentionKind::decoder, layer, at);
  }
  down_the_encoder(trace, trace.layers(AttentionKind::encoder) - 1, shares.source);
  shares.target = std::move(at);
  return shares;
}

Trace rollout_trace(const Trace& trace) {
  Trace rolled{.model = trace.model,
               .source = trace.source,
               .target = trace.target,
               .produced = trace.produced,
               .maps = {},
               .quantity = MapQuantity::rollout,
               .picture = trace.picture,
               .answer = trace.answer};
  for (const AttentionMap& map : trace.maps) {
    weights_of(trace, map.kind, map.layer);
    std::vector<std::vector<double>> rows;
    for (Index row = 0; row < map.weights.size(1); ++row) {
      RolloutRow shares = rollout(trace, map.kind, map.layer, row);
      rows.push_back(std::move(map.kind == AttentionKind::decoder ? shares.target : shares.source));
    }
    rolled.maps.push_back(rolled_map(map, rows));
  }
  return rolled;
}

}  // namespace regard
