// What one run of a model attended to.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "regard/contributions.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/rollout.h"

namespace regard {
namespace {

// [1, ...] without the batch axis.
template <class T>
Tensor<T> first_of_batch(Tensor<T>&& x) {
  if (x.rank() > 1) x.reshape(Shape(x.shape().begin() + 1, x.shape().end()));
  return std::move(x);
}

// What patterns are named from, and the weights if wanted.
Observe asked_of(const PatternSetting& setting, bool weights) {
  constexpr Index window = PatternOptions{}.window;
  return {.entropy = true,
          .distance = true,
          .top_k = 1,
          .key_mass = QueryRange{},
          .segment_sum = SegmentBounds{setting.q_bounds, setting.kv_bounds},
          .diagonals = OffsetRange{-window, window},
          .weights = weights};
}

// Rows of `keys` as shares of their sum and what else takes part.
void share_rows(Tensor<float>& rows, Index keys, const Tensor<float>* others = nullptr) {
  for (Index row = 0; row < rows.count() / std::max<Index>(1, keys); ++row) {
    float* values = rows.data() + row * keys;
    const double sum = std::accumulate(values, values + keys, others ? static_cast<double>((*others)[row]) : 0.0);
    for (Index key = 0; key < keys && sum > 0; ++key) values[key] = static_cast<float>(values[key] / sum);
  }
}

// A layer's contribution norms in the place of its weights.
AttentionMap norm_map(const AttentionPlace& place, const HeadWeights<float>& seen) {
  const bool self = place.kind != AttentionKind::cross;
  Contributions<float> norms = contribution_norms(seen, self);
  const Index keys = norms.joint.size(2);
  share_rows(norms.heads, keys);
  share_rows(norms.joint, keys, self ? nullptr : &norms.residual);
  AttentionMap map{.kind = place.kind, .layer = place.layer};
  map.weights = first_of_batch(std::move(norms.heads));
  map.joint = first_of_batch(std::move(norms.joint));
  return map;
}

AttentionMap map_of(const AttentionPlace& place, HeadWeights<float>&& seen, const PatternSetting& setting) {
  AttentionMap map{.kind = place.kind, .layer = place.layer};
  seen.top_weights.reshape(seen.entropy.shape());
  const HeadObservations observed{
      first_of_batch(std::move(seen.diagonal_mass)), first_of_batch(std::move(seen.key_mass)),
      first_of_batch(std::move(seen.distance)),      first_of_batch(Tensor<float>(seen.entropy)),
      first_of_batch(std::move(seen.top_weights)),   first_of_batch(std::move(seen.segment_sum))};
  map.patterns = name_patterns(observed, setting);
  map.entropy = first_of_batch(std::move(seen.entropy));
  map.weights = first_of_batch(std::move(seen.weights));
  return map;
}

void add_maps(Trace& trace, AttentionKind kind, std::vector<HeadWeights<float>>& seen, const PatternSetting& setting) {
  for (std::size_t layer = 0; layer < seen.size(); ++layer)
    trace.maps.push_back(trace.quantity == MapQuantity::norms
                             ? norm_map({kind, static_cast<Index>(layer)}, seen[layer])
                             : map_of({kind, static_cast<Index>(layer)}, std::move(seen[layer]), setting));
}

Tensor<std::uint8_t> lower_triangle(Index length) {
  Tensor<std::uint8_t> visible({length, length});
  causal().fill({0, 0, 0, length, 0, length, 0}, visible.data(), length);
  return visible;
}

// `trace` holds the source's labels; the rest is filled in.
Trace record(const Model& model, const SourceBatch<float>& source, Trace trace, const std::vector<std::int64_t>& output,
             const TraceOptions& options) {
  trace.model = model.name;
  trace.quantity = options.quantity;
  std::vector<std::int64_t> input{Vocabulary::begin}, produced = output;
  input.insert(input.end(), output.begin(), output.end());
  produced.push_back(Vocabulary::end);
  trace.answer = model.answer_text(model.target_symbols(output));
  trace.target = model.target_symbols(input);
  trace.produced = model.target_symbols(produced);

  const PatternSetting encoder = pattern_setting(trace, AttentionKind::encoder),
                       cross = pattern_setting(trace, AttentionKind::cross);
  PatternSetting decoder = pattern_setting(trace, AttentionKind::decoder);
  decoder.visible = [&decoder](Index query, std::uint8_t* visible) {
    for (Index key = 0; key < decoder.kv_len; ++key) visible[key] = key <= query;
  };
  SeenAttention<float> seen{.asked = {asked_of(encoder, options.weights), asked_of(decoder, options.weights),
                                      asked_of(cross, options.weights)}};
  Tape<float> tape;
  const auto memory = model.network->encode(tape, source, {&seen});
  model.network->decode(tape, memory, source.ids, padded_ids({input}), {&seen});
  add_maps(trace, AttentionKind::encoder, seen.encoder, encoder);
  add_maps(trace, AttentionKind::decoder, seen.decoder, decoder);
  for (AttentionMap& map : trace.maps)
    if (map.kind == AttentionKind::decoder && options.weights) map.visible = lower_triangle(decoder.q_len);
  add_maps(trace, AttentionKind::cross, seen.cross, cross);
  return trace;
}

// Rollout is read off the weights.
Trace recorded(const Model& model, const SourceBatch<float>& source, Trace trace,
               const std::vector<std::int64_t>& output, const TraceOptions& options) {
  if (options.quantity != MapQuantity::weights && !options.weights)
    throw ArgumentError(std::string("record_trace: ") + quantity_title(options.quantity) + " need the weights");
  if (options.quantity == MapQuantity::rollout)
    return rollout_trace(record(model, source, std::move(trace), output, {}));
  return record(model, source, std::move(trace), output, options);
}

}  // namespace

Trace record_trace(const Model& model, const std::string& text, const std::vector<std::int64_t>& output,
                   const TraceOptions& options) {
  Trace trace;
  trace.source = source_symbols(text, model.words);
  if (trace.source.empty()) throw ArgumentError("record_trace: the text is empty");
  return recorded(model, padded_ids({model.source_ids(text)}), std::move(trace), output, options);
}

Trace record_picture_trace(const Model& model, const Tensor<float>& picture, const std::vector<std::int64_t>& output,
                           const TraceOptions& options) {
  const Tensor<float> patches = model.patches(picture);
  PaddedPatches padded = padded_patches({&patches});
  Trace trace;
  trace.picture = PatchedPicture{picture, model.config.patches.patch_height, model.config.patches.patch_width};
  trace.source = patch_labels(model.config.patches, patches.size(0));
  return recorded(model, {std::move(padded.present), std::move(padded.patches)}, std::move(trace), output, options);
}

void add_reading_places(const Model& model, const Tensor<float>& picture, const std::vector<std::string>& symbols,
                        const std::vector<PixelSpan>& where, ReadingPlaces& places) {
  std::vector<std::int64_t> ids;
  for (const std::string& symbol : symbols) {
    if (!model.target.has(symbol)) throw ArgumentError("the model can't write '" + symbol + "'");
    ids.push_back(model.target.id(symbol));
  }
  places.add(record_picture_trace(model, picture, ids), where);
}

}  // namespace regard
