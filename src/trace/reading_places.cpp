#include "regard/reading_places.h"

#include <algorithm>
#include <span>
#include <string>

#include "regard/error.h"

namespace regard {
namespace {

double middle_of(const PatchedPicture& picture, Index patch) {
  return (static_cast<double>(patch / picture.rows()) + 0.5) * static_cast<double>(picture.patch_width);
}

bool within(const PixelSpan& place, double x) { return x >= place.left && x < place.right; }

void count_row(const PatchedPicture& picture, std::span<const float> weights, const PixelSpan& place,
               HeadPlaces& counts) {
  const auto peak = std::max_element(weights.begin(), weights.end()) - weights.begin();
  double sum = 0, moment = 0;
  for (std::size_t patch = 0; patch < weights.size(); ++patch) {
    sum += static_cast<double>(weights[patch]);
    moment += static_cast<double>(weights[patch]) * middle_of(picture, static_cast<Index>(patch));
  }
  counts.peaks_inside += within(place, middle_of(picture, peak));
  counts.means_inside += sum > 0 && within(place, moment / sum);
}

// [heads + 1, q_len, kv_len]: the mean over heads last.
Tensor<float> with_mean(const Tensor<float>& weights) {
  const Index heads = weights.size(0), cells = weights.size(1) * weights.size(2);
  Tensor<float> all({heads + 1, weights.size(1), weights.size(2)});
  std::copy_n(weights.data(), weights.count(), all.data());
  for (Index cell = 0; cell < cells; ++cell) {
    double sum = 0;
    for (Index head = 0; head < heads; ++head) sum += static_cast<double>(weights[head * cells + cell]);
    all[heads * cells + cell] = static_cast<float>(sum / static_cast<double>(heads));
  }
  return all;
}

double chance_of(const PatchedPicture& picture, Index patches, const PixelSpan& place) {
  Index inside = 0;
  for (Index patch = 0; patch < patches; ++patch) inside += within(place, middle_of(picture, patch));
  return static_cast<double>(inside) / static_cast<double>(patches);
}

}  // namespace

void ReadingPlaces::add(const Trace& trace, const std::vector<PixelSpan>& places) {
  const Index count = static_cast<Index>(places.size()), patches = static_cast<Index>(trace.source.size());
  if (!trace.picture) throw ArgumentError("reading places: the trace is of no picture");
  if (count + 1 != static_cast<Index>(trace.target.size()))
    throw ArgumentError("reading places: " + std::to_string(places.size()) + " characters, but " +
                        std::to_string(trace.target.size()) + " rows, of which the last produced the end");
  layers.resize(static_cast<std::size_t>(trace.layers(AttentionKind::cross)));
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const AttentionMap* map = trace.find(AttentionKind::cross, static_cast<Index>(layer));
    if (!map || map->weights.empty()) throw ArgumentError("reading places: a layer's weights are missing");
    const Tensor<float> weights = with_mean(map->weights);
    layers[layer].resize(static_cast<std::size_t>(weights.size(0)));
    for (Index head = 0; head < weights.size(0); ++head)
      for (Index i = 0; i < count; ++i)
        count_row(*trace.picture,
                  {weights.data() + (head * (count + 1) + i) * patches, static_cast<std::size_t>(patches)},
                  places[static_cast<std::size_t>(i)], layers[layer][static_cast<std::size_t>(head)]);
  }
  characters += count;
  for (const PixelSpan& place : places) by_chance += chance_of(*trace.picture, patches, place);
}

}  // namespace regard
