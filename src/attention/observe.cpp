// What a call wants to see beyond its output, once the forward pass knows every
// row's maximum and sum: rectangles here, everything else in observers/.
#include <algorithm>
#include <limits>

#include "attention/call.h"
#include "attention/observers/observer.h"
#include "attention/panels.h"
#include "attention/score_tiles.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// Raw scores become those of a stage.
void bring_to_stage(const Call& call, const RowStatistics& rows, const Spot& spot, Stage stage,
                    const kernels::Tile& scores, std::uint8_t* scratch) {
  if (stage == Stage::scaled) return;
  if (stage == Stage::capped) return cap_scores(call, scores);
  const Coverage coverage = call.options.mask.coverage(mask_block(call, spot));
  finish_scores(call, spot, one_panel(spot, coverage), scores, scratch);
  const Index first = call.row_index(spot.b, spot.h, spot.row);
  if (stage == Stage::weights) call.kernels.weights(scores, rows.max.data() + first, rows.sum.data() + first);
}

// Keys at and after the batch entry's length do not exist: hidden, but their
// raw scores can still be asked for.
void hide_beyond_length(const Call& call, const Spot& spot, Stage stage, const kernels::Tile& scores) {
  if (stage == Stage::scaled || stage == Stage::capped) return;
  const float hidden = stage == Stage::weights ? 0.0f : -std::numeric_limits<float>::infinity();
  for (Index j = std::max<Index>(0, call.length(spot.b) - spot.key); j < spot.keys; ++j)
    for (Index i = 0; i < spot.rows; ++i) scores.data[i * scores.stride + j] = hidden;
}

struct RectangleBuffers {
  ScoreTiles tiles;
  float* scores;
  std::uint8_t* scratch;
};

RectangleBuffers carve(const Call& call, Layout& layout) {
  const Index tile = call.tiling.chunk_rows * call.tile_stride();
  return {ScoreTiles(call, layout, call.tiling.chunk_rows), layout.floats(tile), layout.bytes(tile)};
}

// A chunk of rows of a rectangle from `row` on.
void write_rows_of(const Call& call, const RowStatistics& rows, const Rectangle& want, Index row, float* to) {
  RectangleBuffers memory = Workspace::carved([&](Layout& layout) { return carve(call, layout); });
  const Index count = std::min(call.tiling.chunk_rows, want.rows - row), step = call.tiling.key_block;
  for (Index key = 0; key < want.keys; key += step) {
    const Spot spot{want.batch, want.head, want.row + row, count, want.key + key, std::min(step, want.keys - key)};
    const kernels::Tile scores{memory.scores, call.tile_stride(), count, spot.keys};
    if (key == 0) memory.tiles.take_queries(spot);
    memory.tiles.take_keys(spot);
    memory.tiles.multiply(0, scores);
    bring_to_stage(call, rows, spot, want.stage, scores, memory.scratch);
    hide_beyond_length(call, spot, want.stage, scores);
    for (Index i = 0; i < count; ++i)
      std::copy_n(scores.data + i * scores.stride, spot.keys, to + (row + i) * want.keys + key);
  }
}

// All rectangles at once, so that many small ones keep every thread busy too.
void write_rectangles(const Call& call, const RowStatistics& rows, std::vector<Tensor<float>>& written) {
  const auto& wanted = call.options.observe.rectangles;
  std::vector<Index> first_item;  // of each rectangle
  Index items = 0;
  for (const Rectangle& want : wanted) {
    written.push_back(Tensor<float>::uninitialised({want.rows, want.keys}));
    first_item.push_back(items);
    items += (want.rows + call.tiling.chunk_rows - 1) / call.tiling.chunk_rows;
  }
  parallel_items(items, [&](Index item, int) {
    const auto after = std::upper_bound(first_item.begin(), first_item.end(), item);
    const auto which = static_cast<std::size_t>(after - first_item.begin()) - 1;
    write_rows_of(call, rows, wanted[which], (item - first_item[which]) * call.tiling.chunk_rows,
                  written[which].data());
  });
}

}  // namespace

void observe_scores(const Call& call, const RowStatistics& rows, AttendResult& result) {
  write_rectangles(call, rows, result.rectangles);
  const Observers observers = make_observers(call, rows, result);
  if (!observers.empty()) show_weights(call, rows, observers);
}

}  // namespace regard::detail
