#include "regard/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/json_file.h"
#include "regard/error.h"
#include "regard/file.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

using Json = nlohmann::json;

constexpr int format_version = 1;
// More than any model has: views count up to the last layer.
constexpr Index layer_limit = 100'000;

struct KindNames {
  AttentionKind kind;
  const char* name;
  const char* title;
};
constexpr KindNames kinds[] = {{AttentionKind::encoder, "encoder", "encoder self-attention"},
                               {AttentionKind::decoder, "decoder", "decoder self-attention"},
                               {AttentionKind::cross, "cross", "cross-attention"}};

const KindNames& names_of(AttentionKind kind) {
  for (const KindNames& names : kinds)
    if (names.kind == kind) return names;
  throw ArgumentError("AttentionKind: no such kind: " + std::to_string(static_cast<int>(kind)));
}

struct QuantityNames {
  MapQuantity quantity;
  const char* name;
  const char* title;
  const char* unit;
};
constexpr QuantityNames quantities[] = {
    {MapQuantity::weights, "weights", "attention weights", "attention weight"},
    {MapQuantity::norms, "norms", "contribution norms", "share of the contributions"},
    {MapQuantity::rollout, "rollout", "attention rollout", "share of the rollout"}};

const QuantityNames& names_of(MapQuantity quantity) {
  for (const QuantityNames& names : quantities)
    if (names.quantity == quantity) return names;
  throw ArgumentError("MapQuantity: no such quantity: " + std::to_string(static_cast<int>(quantity)));
}

bool all_finite(const Tensor<float>& numbers) {
  return std::all_of(numbers.values().begin(), numbers.values().end(), [](float x) { return std::isfinite(x); });
}

std::string map_name(const AttentionMap& map) {
  return std::string(kind_name(map.kind)) + "." + std::to_string(map.layer);
}

// Shares, beyond what rounding and storage of 16 bits make of them.
void check_weights(const Tensor<float>& weights, const std::string& where) {
  constexpr float rounding = 1e-3f;
  for (Index i = 0; i < weights.count(); ++i) {
    if (weights[i] >= -rounding && weights[i] <= 1 + rounding) continue;
    const Index kv_len = weights.size(2), row = i / kv_len;
    throw FileError(where + ": the weight of head " + std::to_string(row / weights.size(1)) + ", query " +
                    std::to_string(row % weights.size(1)) + ", key " + std::to_string(i % kv_len) + " is " +
                    std::to_string(weights[i]) + ", must be 0 to 1");
  }
}

// What a view relies on; the same rule for what is saved and what is loaded.
void check_map(const Trace& trace, const AttentionMap& map, const std::string& path) {
  const std::string where = path + ": map " + map_name(map);
  if (map.layer < 0 || map.layer >= layer_limit) throw FileError(where + ": layers are 0 to 99999");
  if (map.weights.rank() != 3)
    throw FileError(where + ": weights are " + map.weights.text() + ", need [heads,q_len,kv_len]");
  const Shape weights = map.weights.shape();
  const Shape labels{static_cast<Index>(trace.query_labels(map.kind).size()),
                     static_cast<Index>(trace.key_labels(map.kind).size())};
  if (labels != Shape{weights[1], weights[2]})
    throw FileError(where + ": weights " + map.weights.text() + " for " + std::to_string(labels[0]) +
                    " query labels and " + std::to_string(labels[1]) + " key labels");
  if (!map.entropy.empty() && map.entropy.shape() != Shape{weights[0], weights[1]})
    throw FileError(where + ": entropy is " + map.entropy.text() + ", weights are " + map.weights.text());
  if (!map.visible.empty() && map.visible.shape() != Shape{weights[1], weights[2]})
    throw FileError(where + ": visible is " + map.visible.text() + ", weights are " + map.weights.text());
  check_weights(map.weights, where);
  if (!all_finite(map.entropy)) throw FileError(where + ": an entropy is not a finite number");
}

void check_picture(const Trace& trace, const std::string& path) {
  if (!trace.picture) return;
  const PatchedPicture& picture = *trace.picture;
  constexpr Index longest_side = 32767;  // of any picture
  const bool whole = picture.pixels.rank() == 2 && picture.patch_height > 0 && picture.patch_width > 0 &&
                     std::max(picture.patch_height, picture.patch_width) <= longest_side &&
                     picture.pixels.size(0) % picture.patch_height == 0;
  if (!whole)
    throw FileError(path + ": its picture " + picture.pixels.text() + " does not come in patches of " +
                    std::to_string(picture.patch_height) + " x " + std::to_string(picture.patch_width));
  if (!all_finite(picture.pixels)) throw FileError(path + ": a pixel of its picture is not a finite number");
  const Index patches = picture.rows() * picture.columns();
  if (patches != static_cast<Index>(trace.source.size()))
    throw FileError(path + ": its picture has " + std::to_string(patches) + " patches for " +
                    std::to_string(trace.source.size()) + " source labels");
}

void check_trace(const Trace& trace, const std::string& path) {
  if (trace.quantity != MapQuantity::weights)
    throw FileError(path + ": only traces of attention weights are saved, this one holds " +
                    quantity_title(trace.quantity));
  if (!trace.produced.empty() && trace.produced.size() != trace.target.size())
    throw FileError(path + ": " + std::to_string(trace.produced.size()) + " produced symbols for " +
                    std::to_string(trace.target.size()) + " target symbols");
  check_picture(trace, path);
  std::set<std::string> seen;
  for (const AttentionMap& map : trace.maps) {
    check_map(trace, map, path);
    if (!seen.insert(map_name(map)).second) throw FileError(path + ": map " + map_name(map) + " occurs twice");
  }
}

// Traces of earlier versions say no answer.
std::string symbols_apart(const std::vector<std::string>& produced) {
  std::string text;
  for (std::size_t i = 0; i + 1 < produced.size(); ++i) text += (i > 0 ? " " : "") + produced[i];
  return text;
}

Trace trace_from_json(const Json& json, const std::string& path) {
  if (!json.is_object() || json.value("format", "") != "regard-trace")
    throw FileError(path + ": is not a trace (\"format\" must be \"regard-trace\")");
  if (json.at("version").get<int>() != format_version)
    throw FileError(path + ": version " + json.at("version").dump() + ", this program reads version 1");
  Trace trace;
  json.at("model").get_to(trace.model);
  json.at("source").get_to(trace.source);
  json.at("target").get_to(trace.target);
  json.at("produced").get_to(trace.produced);
  trace.answer = json.value("answer", symbols_apart(trace.produced));
  for (const Json& entry : json.at("maps")) {
    AttentionMap map;
    map.kind = kind_from_name(entry.at("kind").get<std::string>());
    map.layer = entry.at("layer").get<Index>();
    trace.maps.push_back(std::move(map));
  }
  if (json.contains("picture")) {
    const Json& patch = json.at("picture");
    trace.picture = PatchedPicture{{}, patch.at("patch_height").get<Index>(), patch.at("patch_width").get<Index>()};
  }
  return trace;
}

Json json_of(const Trace& trace) {
  Json maps = Json::array();
  for (const AttentionMap& map : trace.maps) maps.push_back({{"kind", kind_name(map.kind)}, {"layer", map.layer}});
  Json json = {{"format", "regard-trace"}, {"version", format_version}, {"model", trace.model},
               {"source", trace.source},   {"target", trace.target},    {"produced", trace.produced},
               {"answer", trace.answer},   {"maps", std::move(maps)}};
  if (trace.picture)
    json["picture"] = {{"patch_height", trace.picture->patch_height}, {"patch_width", trace.picture->patch_width}};
  return json;
}

}  // namespace

const char* kind_title(AttentionKind kind) { return names_of(kind).title; }

const char* kind_name(AttentionKind kind) { return names_of(kind).name; }

AttentionKind kind_from_name(const std::string& name) {
  for (const KindNames& names : kinds)
    if (name == names.name) return names.kind;
  throw ArgumentError("unknown attention kind \"" + name + "\": use encoder, decoder or cross");
}

const char* quantity_title(MapQuantity quantity) { return names_of(quantity).title; }

const char* quantity_unit(MapQuantity quantity) { return names_of(quantity).unit; }

const char* quantity_name(MapQuantity quantity) { return names_of(quantity).name; }

MapQuantity quantity_from_name(const std::string& name) {
  for (const QuantityNames& names : quantities)
    if (name == names.name) return names.quantity;
  throw ArgumentError("unknown quantity \"" + name + "\": use weights, norms or rollout");
}

const std::vector<std::string>& Trace::query_labels(AttentionKind kind) const {
  return kind == AttentionKind::encoder ? source : target;
}

const std::vector<std::string>& Trace::key_labels(AttentionKind kind) const {
  return kind == AttentionKind::decoder ? target : source;
}

const AttentionMap* Trace::find(AttentionKind kind, Index layer) const {
  for (const AttentionMap& map : maps)
    if (map.kind == kind && map.layer == layer) return &map;
  return nullptr;
}

Index Trace::layers(AttentionKind kind) const {
  Index count = 0;
  for (const AttentionMap& map : maps)
    if (map.kind == kind) count = std::max(count, map.layer + 1);
  return count;
}

PatternSetting pattern_setting(const Trace& trace, AttentionKind kind) {
  const auto &queries = trace.query_labels(kind), &keys = trace.key_labels(kind);
  PatternSetting setting{.q_len = static_cast<Index>(queries.size()), .kv_len = static_cast<Index>(keys.size())};
  setting.separators = separators(keys);
  setting.q_bounds = segment_bounds(separators(queries), setting.q_len);
  setting.kv_bounds = segment_bounds(setting.separators, setting.kv_len);
  return setting;
}

namespace {

std::vector<HeadPattern> patterns_of(const Trace& trace, const AttentionMap& map, const PatternOptions& options) {
  // Recorded ones were made with the defaults.
  if (!map.patterns.empty() && options == PatternOptions{}) return map.patterns;
  if (map.weights.empty())
    throw ArgumentError("patterns: map " + map_name(map) +
                        (map.patterns.empty() ? " holds neither weights nor patterns"
                                              : " holds no weights, and its patterns were made with other options"));
  PatternSetting setting = pattern_setting(trace, map.kind);
  if (!map.visible.empty() && map.visible.shape() != Shape{setting.q_len, setting.kv_len})
    throw ArgumentError("patterns: map " + map_name(map) + " has visible " + map.visible.text() + ", need " +
                        shape_text({setting.q_len, setting.kv_len}));
  if (!map.visible.empty())
    setting.visible = [&map](Index query, std::uint8_t* visible) {
      const Index kv_len = map.visible.size(1);
      std::copy_n(map.visible.data() + query * kv_len, kv_len, visible);
    };
  return name_patterns(observe_matrix(map.weights, setting, options.window), setting, options);
}

}  // namespace

PatternGrid pattern_grid(const Trace& trace, AttentionKind kind, const PatternOptions& options) {
  PatternGrid grid{.kind = kind,
                   .model = trace.model,
                   .q_len = static_cast<Index>(trace.query_labels(kind).size()),
                   .kv_len = static_cast<Index>(trace.key_labels(kind).size()),
                   .keys = trace.key_labels(kind),
                   .layers = {},
                   .options = options};
  for (Index layer = 0; layer < trace.layers(kind); ++layer)
    if (const AttentionMap* map = trace.find(kind, layer))
      grid.layers.push_back({layer, patterns_of(trace, *map, options)});
  if (grid.layers.empty()) throw ArgumentError(std::string("patterns: the trace holds no ") + kind_title(kind));
  return grid;
}

void save_trace(const Trace& trace, const std::string& path) {
  check_trace(trace, path);
  TensorFile file;
  for (const AttentionMap& map : trace.maps) {
    const std::string name = map_name(map);
    file.tensors[name + ".weights"] = any_tensor(map.weights);
    if (!map.entropy.empty()) file.tensors[name + ".entropy"] = any_tensor(map.entropy);
    if (!map.visible.empty()) file.tensors[name + ".visible"] = any_boolean(map.visible);
  }
  if (trace.picture) file.tensors["picture"] = any_tensor(trace.picture->pixels);
  write_safetensors(path + ".safetensors", file);
  write_file(path + ".json", detail::json_text(json_of(trace)));
}

Trace load_trace(const std::string& path) {
  const std::string json_path = path + ".json";
  Trace trace;
  try {
    trace = trace_from_json(detail::read_json(json_path), json_path);
  } catch (const Json::exception& error) {
    throw FileError(json_path + ": an entry of the trace is missing or has the wrong type (" +
                    detail::json_reason(error) + ")");
  } catch (const ArgumentError& error) {
    throw FileError(json_path + ": " + error.what());
  }
  const TensorFile file = read_safetensors(path + ".safetensors");
  try {
    for (AttentionMap& map : trace.maps) {
      const std::string name = map_name(map);
      map.weights = to_float(file.at(name + ".weights"), name + ".weights");
      if (file.has(name + ".entropy")) map.entropy = to_float(file.at(name + ".entropy"), name + ".entropy");
      if (file.has(name + ".visible")) map.visible = to_boolean(file.at(name + ".visible"), name + ".visible");
    }
    if (trace.picture) trace.picture->pixels = to_float(file.at("picture"), "picture");
  } catch (const ArgumentError& error) {
    throw FileError(error.what());
  }
  check_trace(trace, path);
  return trace;
}

}  // namespace regard
