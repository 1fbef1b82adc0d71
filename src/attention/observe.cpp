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

void write_rectangle(const Call& call, const RowStatistics& rows, const Rectangle& want, float* to) {
  const Tiling& tiling = call.tiling;
  const Index stride = call.tile_stride();
  const Index row_chunks = (want.rows + tiling.chunk_rows - 1) / tiling.chunk_rows;
  parallel_items(row_chunks, [&](Index item, int) {
    Workspace& workspace = Workspace::of_this_thread();
    workspace.begin(ScoreTiles::floats_for(call, tiling.chunk_rows) +
                    2 * Workspace::aligned(tiling.chunk_rows * stride));
    ScoreTiles tiles(call, workspace, tiling.chunk_rows);
    float* data = workspace.floats(tiling.chunk_rows * stride);
    std::uint8_t* scratch = workspace.bytes(tiling.chunk_rows * stride);
    const Index row = item * tiling.chunk_rows, count = std::min(tiling.chunk_rows, want.rows - row);
    for (Index key = 0; key < want.keys; key += tiling.key_block) {
      const Spot spot{want.batch, want.head,      want.row + row,
                      count,      want.key + key, std::min(tiling.key_block, want.keys - key)};
      const kernels::Tile scores{data, stride, count, spot.keys};
      if (key == 0) tiles.take_queries(spot);
      tiles.take_keys(spot);
      tiles.multiply(0, scores);
      bring_to_stage(call, rows, spot, want.stage, scores, scratch);
      hide_beyond_length(call, spot, want.stage, scores);
      for (Index i = 0; i < count; ++i) std::copy_n(data + i * stride, spot.keys, to + (row + i) * want.keys + key);
    }
  });
}

}  // namespace

void observe_scores(const Call& call, const RowStatistics& rows, AttendResult& result) {
  for (const Rectangle& want : call.options.observe.rectangles) {
    result.rectangles.push_back(Tensor<float>::uninitialised({want.rows, want.keys}));
    write_rectangle(call, rows, want, result.rectangles.back().data());
  }
  const Observers observers = make_observers(call, rows, result);
  if (!observers.empty()) show_weights(call, rows, observers);
}

}  // namespace regard::detail
