#include "regard/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>

#include "regard/error.h"
#include "regard/text_width.h"

namespace regard {
namespace {

constexpr std::string_view sentence_piece_space = "▁", byte_pair_space = "Ġ", byte_pair_newline = "Ċ";

// Longer than any word; a label of pages would leave no room for its picture.
constexpr int label_columns = 40;

// What a reader would call the token. A mark that is the whole token stays: it
// may be a letter (Ġ is one in Maltese) or all there is to see.
std::string without_marks(std::string_view token) {
  constexpr std::string_view word_piece = "##", word_end = "</w>";
  const auto strip_front = [&](std::string_view mark) {
    if (token.size() > mark.size() && token.starts_with(mark)) token.remove_prefix(mark.size());
  };
  strip_front(sentence_piece_space);
  strip_front(byte_pair_space);
  strip_front(word_piece);
  if (token.size() > word_end.size() && token.ends_with(word_end)) token.remove_suffix(word_end.size());
  if (token == byte_pair_newline) return "\\n";
  if (token == sentence_piece_space) return "␣";
  return std::string(token);
}

std::string label_text(const std::string& token, bool raw) {
  if (token.empty()) return "∅";
  const std::string text = raw ? token : without_marks(token);
  if (text.find_first_not_of(' ') == std::string::npos) return "␣";
  return cut_text(text, label_columns);
}

Axis make_axis(std::string title, const std::vector<std::string>& tokens, bool raw) {
  Axis axis;
  axis.title = std::move(title);
  std::map<std::string, int> uses;
  for (const std::string& token : tokens) {
    axis.texts.push_back(label_text(token, raw));
    ++uses[axis.texts.back()];
  }
  for (const std::string& text : axis.texts) axis.repeated.push_back(uses[text] > 1);
  return axis;
}

std::string subscript(Index number) {
  std::string text;
  for (char digit : std::to_string(number)) {
    text += "\xe2\x82";  // U+2080 to U+2089
    text += static_cast<char>(0x80 + digit - '0');
  }
  return text;
}

struct AxisTitles {
  const char* queries;
  const char* keys;
};

AxisTitles axis_titles(const Trace& trace, AttentionKind kind) {
  if (kind == AttentionKind::cross)
    return {"symbol being produced",
            trace.picture ? "attends to the patch at pixel column" : "attends to source symbol"};
  return {"attends from", "attended to"};
}

// A decoder's row i was read in while producing the next symbol; that symbol is
// what a reader of a cross-attention map looks for.
const std::vector<std::string>& row_labels(const Trace& trace, AttentionKind kind) {
  const bool produced = kind == AttentionKind::cross && trace.produced.size() == trace.target.size();
  return produced ? trace.produced : trace.query_labels(kind);
}

const AttentionMap& find_map(const Trace& trace, const MapChoice& choice) {
  if (const AttentionMap* map = trace.find(choice.kind, choice.layer)) return *map;
  const Index layers = trace.layers(choice.kind);
  const std::string has = layers == 0 ? "none" : "layers 0 to " + std::to_string(layers - 1);
  throw ArgumentError(
      fmt::format("heat map: no layer {} of {} in the trace; it has {}", choice.layer, kind_title(choice.kind), has));
}

void check_map(const Trace& trace, const AttentionMap& map, const MapChoice& choice) {
  const auto queries = static_cast<Index>(trace.query_labels(choice.kind).size());
  const auto keys = static_cast<Index>(trace.key_labels(choice.kind).size());
  const Shape& shape = map.weights.shape();
  if (shape.size() != 3 || shape[0] < 1 || shape[1] != queries || shape[2] != keys)
    throw ArgumentError(fmt::format("heat map: {} layer {} has weights {}, need [heads,{},{}] for its labels",
                                    kind_name(choice.kind), choice.layer, map.weights.text(), queries, keys));
  if (!map.joint.empty() && map.joint.shape() != Shape{queries, keys})
    throw ArgumentError(fmt::format("heat map: {} layer {} has joint {}, need [{},{}]", kind_name(choice.kind),
                                    choice.layer, map.joint.text(), queries, keys));
  if (!map.visible.empty() && map.visible.shape() != Shape{queries, keys})
    throw ArgumentError(fmt::format("heat map: {} layer {} has visible {}, need [{},{}]", kind_name(choice.kind),
                                    choice.layer, map.visible.text(), queries, keys));
  if (choice.head < mean_of_heads || choice.head >= shape[0])
    throw ArgumentError(fmt::format("heat map: no head {} in {} layer {}; it has heads 0 to {}", choice.head,
                                    kind_name(choice.kind), choice.layer, shape[0] - 1));
}

Tensor<float> head_values(const Tensor<float>& weights, Index head) {
  const Index heads = weights.size(0), cells = weights.size(1) * weights.size(2);
  Tensor<float> values({weights.size(1), weights.size(2)});
  for (Index cell = 0; cell < cells; ++cell) {
    if (head != mean_of_heads) {
      values[cell] = weights[head * cells + cell];
      continue;
    }
    double sum = 0;
    for (Index h = 0; h < heads; ++h) sum += weights[h * cells + cell];
    values[cell] = static_cast<float>(sum / static_cast<double>(heads));
  }
  return values;
}

// What a map of the trace is of: one head, all of them, or no head at all.
std::string heads_text(const Trace& trace, const MapChoice& choice, Index heads) {
  if (trace.quantity == MapQuantity::rollout) return "through all layers down to the tokens";
  if (choice.head != mean_of_heads) return fmt::format("head {}", choice.head);
  return trace.quantity == MapQuantity::norms ? fmt::format("{} heads together", heads)
                                              : fmt::format("mean over {} heads", heads);
}

// What the numbers are, in the words of a caption.
std::string quantity_text(const Trace& trace, const MapChoice& choice) {
  std::string text = quantity_title(trace.quantity);
  if (trace.quantity == MapQuantity::norms) {
    text += " as shares of their row's sum";
    const bool cross = choice.kind == AttentionKind::cross;
    if (choice.head == mean_of_heads)
      text += cross ? ", in which the residual takes part" : ", the residual counted with the query's own key";
  }
  if (trace.quantity == MapQuantity::rollout && choice.kind != AttentionKind::encoder)
    text += choice.kind == AttentionKind::cross ? ", the part that comes from the source"
                                                : ", the part that comes from the target";
  return text;
}

std::string caption_of(const Trace& trace, const MapChoice& choice, const HeatMap& map, Index heads) {
  return fmt::format("{}{}, layer {}, {}; {}, {} queries × {} keys",
                     trace.model.empty() ? "" : printable(trace.model) + ", ", kind_title(choice.kind), choice.layer,
                     heads_text(trace, choice, heads), quantity_text(trace, choice), map.q_len(), map.kv_len());
}

std::string title_of(const Trace& trace, const MapChoice& choice, Index heads) {
  if (trace.quantity == MapQuantity::rollout) return fmt::format("Layer {}, attention rollout", choice.layer);
  const std::string of =
      choice.head == mean_of_heads ? heads_text(trace, choice, heads) : fmt::format("Head {}", choice.head);
  const std::string title = fmt::format("Layer {}, {}", choice.layer, of);
  return trace.quantity == MapQuantity::weights ? title : title + ", " + quantity_title(trace.quantity);
}

std::string name_of(const Trace& trace, const MapChoice& choice) {
  if (trace.quantity == MapQuantity::rollout) return fmt::format("L{}", choice.layer);
  return fmt::format("L{}", choice.layer) + (choice.head == mean_of_heads ? "mean" : fmt::format("H{}", choice.head));
}

std::vector<Index> visible_keys(const HeatMap& map) {
  std::vector<Index> seen(static_cast<std::size_t>(map.q_len()), 0);
  for (Index query = 0; query < map.q_len(); ++query)
    for (Index key = 0; key < map.kv_len(); ++key) seen[static_cast<std::size_t>(query)] += !map.hidden(query, key);
  return seen;
}

// "rows sum to 0.2 to 1" when they don't all sum to 1, as after filtering.
std::string row_sums(const HeatMap& map) {
  double least = 1, most = 1;
  for (Index query = 0; query < map.q_len(); ++query) {
    double sum = 0;
    for (Index key = 0; key < map.kv_len(); ++key)
      if (!map.hidden(query, key)) sum += map.value(query, key);
    if (query == 0) least = most = sum;
    least = std::min(least, sum);
    most = std::max(most, sum);
  }
  if (std::abs(least - 1) < 0.01 && std::abs(most - 1) < 0.01) return "each row sums to 1";
  return fmt::format("rows sum to {:.3g} to {:.3g}", least, most);
}

}  // namespace

std::string Axis::label(Index index) const {
  const auto at = static_cast<std::size_t>(index);
  return repeated[at] ? indexed(index) : texts[at];
}

std::string Axis::indexed(Index index) const { return texts[static_cast<std::size_t>(index)] + subscript(index); }

HeatMap heat_map(const Trace& trace, const MapChoice& choice, const HeatMapOptions& options) {
  const AttentionMap& recorded = find_map(trace, choice);
  check_map(trace, recorded, choice);
  const AxisTitles titles = axis_titles(trace, choice.kind);
  const Index heads = recorded.weights.size(0);
  HeatMap map;
  map.queries = make_axis(titles.queries, row_labels(trace, choice.kind), options.raw_labels);
  map.keys = make_axis(titles.keys, trace.key_labels(choice.kind), options.raw_labels);
  const bool together = choice.head == mean_of_heads && !recorded.joint.empty();
  map.values = together ? recorded.joint : head_values(recorded.weights, choice.head);
  map.visible = recorded.visible.empty() ? Tensor<std::uint8_t>({map.q_len(), map.kv_len()}, 1) : recorded.visible;
  map.title = title_of(trace, choice, heads);
  map.name = name_of(trace, choice);
  map.quantity = trace.quantity;
  map.caption = caption_of(trace, choice, map, heads);
  map.seen = visible_keys(map);
  map.sums = row_sums(map);
  map.scale = options.scale;
  if (map.scale == Scale::automatic) map.scale = map.kv_len() > 64 ? Scale::lift : Scale::linear;
  return map;
}

HeatGrid heat_grid(const Trace& trace, AttentionKind kind, const HeatMapOptions& options) {
  HeatGrid grid;
  for (Index layer = 0; layer < trace.layers(kind); ++layer) {
    const AttentionMap* recorded = trace.find(kind, layer);
    if (!recorded) continue;
    std::vector<HeatMap> row;
    // One head is always asked for, so that an empty map gives the error of heat_map.
    const Index heads = recorded->weights.rank() == 3 ? std::max<Index>(1, recorded->weights.size(0)) : 1;
    for (Index head = 0; head < heads; ++head) row.push_back(heat_map(trace, {kind, layer, head}, options));
    grid.rows.push_back(std::move(row));
  }
  if (grid.rows.empty()) throw ArgumentError(fmt::format("heat map: the trace holds no {}", kind_title(kind)));
  const HeatMap& first = grid.rows[0][0];
  grid.title = kind_title(kind);
  grid.title[0] = static_cast<char>(std::toupper(grid.title[0]));
  if (trace.quantity != MapQuantity::weights) grid.title += std::string(", ") + quantity_title(trace.quantity);
  grid.caption = (trace.model.empty() ? "" : printable(trace.model) + ", ") + kind_title(kind) +
                 fmt::format("; {}, {} layers (down) × {} heads (across), {} queries × {} keys",
                             quantity_text(trace, {kind, 0, 0}), grid.rows.size(), grid.rows[0].size(), first.q_len(),
                             first.kv_len());
  return grid;
}

}  // namespace regard
