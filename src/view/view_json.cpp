#include "regard/view_json.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "regard/error.h"
#include "regard/text_width.h"

namespace regard {
namespace {

// Numbers are floats here, so that 0.1 is written as 0.1 and read back exactly.
using Json = nlohmann::basic_json<std::map, std::vector, std::string, bool, std::int64_t, std::uint64_t, float>;

const char* scale_name(Scale scale) {
  switch (scale) {
    case Scale::lift: return "lift";
    case Scale::logarithmic: return "log";
    default: return "linear";
  }
}

Json weights_of(const HeatMap& map) {
  Json rows = Json::array();
  for (Index query = 0; query < map.q_len(); ++query) {
    Json row = Json::array();
    for (Index key = 0; key < map.kv_len(); ++key) {
      const float weight = map.value(query, key);
      row.push_back(map.hidden(query, key) || !std::isfinite(weight) ? Json() : Json(weight));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json json_of(const HeatMap& map) {
  Json strongest = Json::array();
  for (const Pair& pair : strongest_pairs(map, 5))
    strongest.push_back({{"query", pair.query}, {"key", pair.key}, {"weight", pair.weight}});
  return {{"title", map.title},
          {"name", map.name},
          {"caption", map.caption},
          {"quantity", quantity_name(map.quantity)},
          {"scale", scale_name(map.scale)},
          {"queries", map.queries.texts},
          {"keys", map.keys.texts},
          {"weights", weights_of(map)},
          {"strongest", strongest},
          {"focus", static_cast<float>(focus(map))}};
}

std::vector<std::string> printable_all(const std::vector<std::string>& texts) {
  std::vector<std::string> safe;
  for (const std::string& text : texts) safe.push_back(printable(text));
  return safe;
}

std::string document(Json maps) { return Json{{"maps", std::move(maps)}}.dump() + "\n"; }

}  // namespace

std::string heat_maps_json(const std::vector<HeatMap>& maps) {
  Json all = Json::array();
  for (const HeatMap& map : maps) all.push_back(json_of(map));
  return document(std::move(all));
}

std::string heat_grid_json(const HeatGrid& grid) {
  Json all = Json::array();
  for (const auto& row : grid.rows)
    for (const HeatMap& map : row) all.push_back(json_of(map));
  return document(std::move(all));
}

std::string trace_contents_json(const Trace& trace) {
  Json maps = Json::array();
  for (const AttentionMap& map : trace.maps) {
    if (map.weights.rank() != 3)
      throw ArgumentError("trace contents: weights are " + map.weights.text() + ", need [heads,q_len,kv_len]");
    maps.push_back({{"kind", kind_name(map.kind)},
                    {"layer", map.layer},
                    {"heads", map.weights.size(0)},
                    {"queries", map.weights.size(1)},
                    {"keys", map.weights.size(2)}});
  }
  const Json contents{{"model", printable(trace.model)},
                      {"source", printable_all(trace.source)},
                      {"target", printable_all(trace.target)},
                      {"produced", printable_all(trace.produced)},
                      {"maps", std::move(maps)}};
  return contents.dump() + "\n";
}

}  // namespace regard
