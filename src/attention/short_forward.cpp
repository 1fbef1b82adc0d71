#include <algorithm>

#include "attention/panels.h"
#include "attention/rows.h"
#include "attention/short.h"
#include "regard/cpu.h"

namespace regard::detail {
namespace {

struct Buffers {
  float *queries, *keys, *values, *scores, *out;
  std::uint8_t* scratch;
};

Buffers carve(const Call& call, Layout& layout) {
  const Sizes& sizes = call.sizes;
  const Index stride = kernels::padded(sizes.kv_len, call.kernels.lanes), tile = sizes.q_len * stride;
  const Index wide = kernels::padded(sizes.value_dim, call.kernels.column_tile);
  Buffers buffers;
  buffers.queries = layout.floats(widened_floats(call.q));
  buffers.keys = layout.floats(stride * sizes.head_dim);
  buffers.values = layout.floats(sizes.kv_len * wide);
  buffers.scores = layout.floats(tile);
  buffers.out = layout.floats(sizes.q_len * wide);
  buffers.scratch = layout.bytes(tile);
  return buffers;
}

// The last step: weighted sums of values, in place where whole vectors fit.
void sum_values(const Call& call, RowStatistics& rows, const Spot& spot, const kernels::Tile& weights,
                const Buffers& buffers, const OutputView& out, kernels::Ahead* ahead) {
  const kernels::Kernels& kernels = call.kernels;
  const Index width = call.sizes.value_dim;
  kernels::StridedRows to{buffers.out, kernels::padded(width, kernels.column_tile), spot.rows, width};
  if (writes_in_place(call, out))
    to = {static_cast<float*>(element_of(out, spot.b, spot.h, 0)), out.stride(2), spot.rows, width};
  const RowsAsColumns values =
      as_columns(call, rows_of(call.v, spot.b, call.kv_head(spot.h), 0, spot.keys), buffers.values);
  kernels.product({weights.data, weights.stride, 1, values.data, values.panel, values.depth, to.data, to.stride,
                   spot.rows, width, spot.keys, false, ahead});
  write_rows(call, rows, spot, to, out);
}

}  // namespace

Index short_workspace(const Call& call) {
  Layout counting;
  carve(call, counting);
  return counting.used();
}

namespace {

// Rows so far apart meet in the same few places of the caches, and reading them
// again and again where they lie costs more than packing them once.
bool has_distant_rows(const InputView& x) {
  constexpr Index distant = 16384;
  return std::abs(x.stride(2)) * kernels::stored_bytes(x.dtype()) >= distant && x.size(2) > 8;
}

}  // namespace

bool is_short(const Call& call) {
  const Sizes& sizes = call.sizes;
  if (has_distant_rows(call.q) || has_distant_rows(call.k) || has_distant_rows(call.v)) return false;
  const bool unit = call.q.stride(3) == 1 && call.k.stride(3) == 1 && call.v.stride(3) == 1;
  return unit && sizes.q_len > 0 && sizes.q_len <= short_length && sizes.kv_len <= short_length &&
         std::max(sizes.head_dim, sizes.value_dim) <= 256;
}

RowsAsColumns as_columns(const Call& call, const kernels::Matrix& rows, float* memory) {
  const Index tile = call.kernels.column_tile;
  if (rows.dtype == DType::f32 && rows.depth % call.kernels.lanes == 0) return {rows.floats(), tile, rows.row_stride};
  call.kernels.pack_panels(rows, 1.0f, memory);
  return {memory, rows.rows * tile, tile};
}

Index widened_floats(const InputView& x) { return x.dtype() == DType::f32 ? 0 : x.size(2) * x.size(3); }

kernels::Matrix as_floats(const Call& call, const kernels::Matrix& rows, float* memory) {
  if (rows.dtype == DType::f32) return rows;
  call.kernels.widen_rows(rows, memory, rows.depth);
  return {memory, rows.rows, rows.depth, rows.depth, 1};
}

bool writes_in_place(const Call& call, const OutputView& out) {
  return out.size(3) > 0 && out.size(3) % call.kernels.lanes == 0 && has_float_rows(out);
}

bool multiply_short(const Call& call, const kernels::Matrix& rows, const kernels::Matrix& keys,
                    const KeyColumns& columns, const kernels::Tile& tile, kernels::Ahead* ahead) {
  const kernels::Kernels& kernels = call.kernels;
  const Index width = kernels::padded(keys.rows, kernels.lanes);
  const bool finite = kernels.pack_interleaved(keys, width, columns.scale, columns.memory);
  kernels.product({rows.floats(), rows.row_stride, 1, columns.memory, kernels.column_tile, width, tile.data,
                   tile.stride, tile.rows, tile.keys, rows.depth, false, ahead});
  return finite;
}

namespace {

Index bytes_of(const InputView& x) {
  return x.size(0) * x.size(1) * x.size(2) * x.size(3) * kernels::stored_bytes(x.dtype());
}

}  // namespace

bool asks_ahead(const Call& call, Pass pass) {
  const Sizes& sizes = call.sizes;
  if (sizes.q_len * sizes.kv_len < 256) return false;
  static const CacheSizes caches = cache_sizes();
  const Index out = sizes.batch * sizes.q_heads * sizes.q_len * sizes.value_dim * kernels::stored_bytes(call.q.dtype());
  const Index bytes = bytes_of(call.q) + bytes_of(call.k) + bytes_of(call.v) + out;
  // The way back has a gradient beside each. Other things want their place in the
  // last-level cache too.
  return (pass == Pass::backward ? 2 : 1) * bytes > caches.l3 / 3;
}

namespace {

// What the head after this one reads and writes.
kernels::Ahead head_after(const Call& call, const Spot& spot, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  kernels::Ahead ahead;
  const Index next = spot.b * sizes.q_heads + spot.h + 1;
  if (next == sizes.batch * sizes.q_heads || !asks_ahead(call, Pass::forward)) return ahead;
  const Index b = next / sizes.q_heads, h = next % sizes.q_heads;
  if (h % sizes.group() == 0) ahead.read(rows_of(call.k, b, call.kv_head(h), 0, call.length(b)));
  ahead.read(rows_of(call.q, b, h, 0, sizes.q_len));
  if (h % sizes.group() == 0) ahead.read(rows_of(call.v, b, call.kv_head(h), 0, call.length(b)));
  ahead.write({element_of(out, b, h, 0), out.stride(2), out.dtype()}, sizes.q_len, sizes.value_dim);
  ahead.spread_over(call.kernels.product_steps(spot.rows, spot.keys) +
                    call.kernels.product_steps(spot.rows, sizes.value_dim));
  return ahead;
}

}  // namespace

bool attend_short(const Call& call, RowStatistics& rows, Index b, Index h, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  const kernels::Kernels& kernels = call.kernels;
  const Spot spot{b, h, 0, sizes.q_len, 0, call.length(b)};
  if (spot.keys == 0) return false;
  const Coverage coverage = call.options.mask.coverage(mask_block(call, spot));
  const auto v = rows_of(call.v, b, call.kv_head(h), 0, spot.keys);
  const bool hides = coverage != Coverage::all || changes_scores(call);
  if (coverage == Coverage::none) return false;

  const Index stride = kernels::padded(sizes.kv_len, kernels.lanes), first = call.row_index(b, h, 0);
  const Buffers buffers = Workspace::carved([&](Layout& layout) { return carve(call, layout); });
  const kernels::Tile scores{buffers.scores, stride, spot.rows, spot.keys};
  const auto q = as_floats(call, rows_of(call.q, b, h, 0, spot.rows), buffers.queries);
  kernels::Ahead ahead = head_after(call, spot, out);
  const bool finite = multiply_short(call, q, rows_of(call.k, b, call.kv_head(h), 0, spot.keys),
                                     {buffers.keys, call.scale}, scores, &ahead);
  if ((hides || !finite) && !kernels.all_finite(v)) return false;
  finish_scores(call, spot, one_panel(spot, coverage), scores, buffers.scratch);
  start_rows(rows, first, spot.rows);
  kernels.softmax_step({scores, rows.max.data() + first, rows.sum.data() + first,
                        rows.spread.empty() ? nullptr : rows.spread.data() + first, nullptr, 0, 0});
  drop_weights(call, spot, scores);
  sum_values(call, rows, spot, scores, buffers, out, &ahead);
  return true;
}

}  // namespace regard::detail
