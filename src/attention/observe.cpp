// Exact scores and weights on request, computed again tile by tile once the
// forward pass knows every row's maximum and sum.
#include <algorithm>
#include <limits>

#include "attention/call.h"
#include "attention/panels.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// Rows [row, row + rows) x keys [key, key + keys) of one head at one stage.
void score_tile(const Call& call, const RowStatistics& rows, const Spot& spot, Stage stage, kernels::Tile scores,
                float* queries, float* keys, std::uint8_t* scratch) {
  const kernels::Kernels& table = call.kernels;
  const Index depth = call.sizes.head_dim;
  table.pack_interleaved(rows_of(call.q, spot.b, spot.h, spot.row, spot.rows), table.row_tile, 1.0f, queries);
  table.pack_interleaved(rows_of(call.k, spot.b, call.kv_head(spot.h), spot.key, spot.keys), table.column_tile,
                         call.scale, keys);
  table.product({queries, table.row_tile * depth, 1, table.row_tile, keys, table.column_tile * depth, table.column_tile,
                 scores.data, scores.stride, spot.rows, spot.keys, depth, false});
  if (stage == Stage::scaled) return;
  if (stage == Stage::capped) return cap_scores(call, scores);
  const Coverage coverage = call.options.mask.coverage(mask_block(call, spot));
  finish_scores(call, spot, one_panel(spot, coverage), scores, scratch);
  const Index first = call.row_index(spot.b, spot.h, spot.row);
  if (stage == Stage::weights) table.weights(scores, rows.max.data() + first, rows.sum.data() + first);
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
  const Index stride = call.tile_stride(), depth = call.sizes.head_dim;
  const Index row_chunks = (want.rows + tiling.chunk_rows - 1) / tiling.chunk_rows;
  parallel_items(row_chunks, [&](Index item, int) {
    Workspace& workspace = Workspace::of_this_thread();
    workspace.begin(4 * 16 + (2 * tiling.chunk_rows + 16) * depth + stride * depth + 2 * tiling.chunk_rows * stride);
    float* queries = workspace.floats(kernels::padded(tiling.chunk_rows, call.kernels.row_tile) * depth);
    float* keys = workspace.floats(stride * depth);
    float* data = workspace.floats(tiling.chunk_rows * stride);
    std::uint8_t* scratch = workspace.bytes(tiling.chunk_rows * stride);
    const Index row = item * tiling.chunk_rows, count = std::min(tiling.chunk_rows, want.rows - row);
    for (Index key = 0; key < want.keys; key += tiling.key_block) {
      const Spot spot{want.batch, want.head,      want.row + row,
                      count,      want.key + key, std::min(tiling.key_block, want.keys - key)};
      const kernels::Tile scores{data, stride, count, spot.keys};
      score_tile(call, rows, spot, want.stage, scores, queries, keys, scratch);
      hide_beyond_length(call, spot, want.stage, scores);
      for (Index i = 0; i < count; ++i) std::copy_n(data + i * stride, spot.keys, to + (row + i) * want.keys + key);
    }
  });
}

}  // namespace

void observe_scores(const Call& call, const RowStatistics& rows, AttendResult& result) {
  const Sizes& sizes = call.sizes;
  for (const Rectangle& want : call.options.observe.rectangles) {
    result.rectangles.push_back(Tensor<float>::uninitialised({want.rows, want.keys}));
    write_rectangle(call, rows, want, result.rectangles.back().data());
  }
  if (!call.options.observe.weights) return;
  result.weights = Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len});
  for (Index b = 0; b < sizes.batch; ++b)
    for (Index h = 0; h < sizes.q_heads; ++h)
      write_rectangle(call, rows, {b, h, 0, sizes.q_len, 0, sizes.kv_len, Stage::weights},
                      result.weights.data() + call.row_index(b, h, 0) * sizes.kv_len);
}

}  // namespace regard::detail
