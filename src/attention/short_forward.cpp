#include <algorithm>
#include <array>

#include "attention/rows.h"
#include "attention/short.h"

namespace regard::detail {
namespace {

struct Buffers {
  float *keys, *values, *scores, *keep, *out;
  std::uint8_t* scratch;
};

// Sizes of the buffers, in the order of carve.
std::array<Index, 6> buffer_sizes(const Call& call) {
  const Index stride = kernels::padded(call.sizes.kv_len, call.kernels.lanes), tile = call.sizes.q_len * stride;
  const Index wide = kernels::padded(call.sizes.value_dim, call.kernels.column_tile);
  return {stride * call.sizes.head_dim, call.sizes.kv_len * wide, tile, tile, call.sizes.q_len * wide, tile};
}

Buffers carve(const Call& call) {
  const auto sizes = buffer_sizes(call);
  Workspace& workspace = Workspace::of_this_thread();
  workspace.begin(short_workspace(call));
  Buffers buffers;
  buffers.keys = workspace.floats(sizes[0]);
  buffers.values = workspace.floats(sizes[1]);
  buffers.scores = workspace.floats(sizes[2]);
  buffers.keep = workspace.floats(sizes[3]);
  buffers.out = workspace.floats(sizes[4]);
  buffers.scratch = workspace.bytes(sizes[5]);
  return buffers;
}

void drop(const Call& call, const Spot& spot, const kernels::Tile& weights, float* factors) {
  if (call.options.dropout.p == 0) return;
  call.kernels.dropout_factors({factors, weights.stride, weights.rows, weights.keys},
                               dropout_spot(call.options.dropout, spot));
  call.kernels.multiply(weights, factors);
}

// The last step: weighted sums of values, in place where whole vectors fit.
void sum_values(const Call& call, RowStatistics& rows, const Spot& spot, const kernels::Tile& weights,
                const Buffers& buffers, const View<float, 4>& out) {
  const kernels::Kernels& kernels = call.kernels;
  const Index width = call.sizes.value_dim;
  kernels::StridedRows to{buffers.out, kernels::padded(width, kernels.column_tile), spot.rows, width};
  if (writes_in_place(call, out)) to = {&out(spot.b, spot.h, 0, 0), out.stride(2), spot.rows, width};
  const RowsAsColumns values =
      as_columns(call, rows_of(call.v, spot.b, call.kv_head(spot.h), 0, spot.keys), buffers.values);
  kernels.product({weights.data, kernels.row_tile * weights.stride, weights.stride, 1, values.data, values.panel,
                   values.depth, to.data, to.stride, spot.rows, width, spot.keys, false});
  write_rows(call, rows, spot, to, out);
}

}  // namespace

Index short_workspace(const Call& call) {
  Index total = 0;
  for (const Index part : buffer_sizes(call)) total += Workspace::aligned(part);
  return total;
}

bool is_short(const Call& call) {
  const Sizes& sizes = call.sizes;
  const bool unit = call.q.stride(3) == 1 && call.k.stride(3) == 1 && call.v.stride(3) == 1;
  return unit && sizes.q_len > 0 && sizes.q_len <= short_length && sizes.kv_len <= short_length &&
         std::max(sizes.head_dim, sizes.value_dim) <= 256;
}

RowsAsColumns as_columns(const Call& call, const kernels::Matrix& rows, float* memory) {
  const Index tile = call.kernels.column_tile;
  if (rows.depth % call.kernels.lanes == 0) return {rows.data, tile, rows.row_stride};
  call.kernels.pack_panels(rows, 1.0f, memory);
  return {memory, rows.rows * tile, tile};
}

bool writes_in_place(const Call& call, const View<float, 4>& out) {
  return out.size(3) > 0 && out.size(3) % call.kernels.lanes == 0 && out.stride(3) == 1;
}

void multiply_short(const Call& call, const kernels::Matrix& rows, const kernels::Matrix& keys,
                    const KeyColumns& columns, const kernels::Tile& tile) {
  const kernels::Kernels& kernels = call.kernels;
  const Index width = kernels::padded(keys.rows, kernels.lanes);
  kernels.pack_interleaved(keys, width, columns.scale, columns.memory);
  kernels.product({rows.data, kernels.row_tile * rows.row_stride, rows.row_stride, 1, columns.memory,
                   kernels.column_tile, width, tile.data, tile.stride, tile.rows, tile.keys, rows.depth, false});
}

bool attend_short(const Call& call, RowStatistics& rows, Index b, Index h, const View<float, 4>& out) {
  const Sizes& sizes = call.sizes;
  const kernels::Kernels& kernels = call.kernels;
  const Spot spot{b, h, 0, sizes.q_len, 0, call.length(b)};
  if (spot.keys == 0) return false;
  const Coverage coverage = call.options.mask.coverage(mask_block(call, spot));
  const auto v = rows_of(call.v, b, call.kv_head(h), 0, spot.keys);
  const bool hides = coverage != Coverage::all || changes_scores(call);
  if (coverage == Coverage::none || (hides && !kernels.all_finite(v))) return false;

  const Index stride = kernels::padded(sizes.kv_len, kernels.lanes), first = call.row_index(b, h, 0);
  const Buffers buffers = carve(call);
  const kernels::Tile scores{buffers.scores, stride, spot.rows, spot.keys};
  multiply_short(call, rows_of(call.q, b, h, 0, spot.rows), rows_of(call.k, b, call.kv_head(h), 0, spot.keys),
                 {buffers.keys, call.scale}, scores);
  finish_scores(call, spot, coverage, scores, buffers.scratch);
  start_rows(rows, first, spot.rows);
  kernels.softmax_step({scores, rows.max.data() + first, rows.sum.data() + first,
                        rows.spread.empty() ? nullptr : rows.spread.data() + first, nullptr, 0, 0});
  drop(call, spot, scores, buffers.keep);
  sum_values(call, rows, spot, scores, buffers, out);
  return true;
}

}  // namespace regard::detail
