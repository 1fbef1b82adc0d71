// The streaming forward pass: a block of queries meets the keys tile by tile
// under a running softmax; nothing of size q_len x kv_len exists.
#include <algorithm>

#include "attention/decode.h"
#include "attention/panels.h"
#include "attention/regroup.h"
#include "attention/rows.h"
#include "attention/short.h"
#include "regard/attend.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

struct ForwardBuffers {
  float *queries, *keys, *values, *scores, *out;
  std::uint8_t* scratch;
};

ForwardBuffers carve(const Call& call, Layout& layout) {
  const auto& [key_block, chunk_rows, query_block] = call.tiling;
  const Index depth = call.sizes.head_dim, stride = call.tile_stride();
  const Index wide = kernels::padded(call.sizes.value_dim, call.kernels.column_tile);
  ForwardBuffers buffers;
  buffers.queries = layout.floats(query_block * depth);
  buffers.keys = layout.floats(stride * depth);
  buffers.values = layout.floats(key_block * wide);
  buffers.scores = layout.floats(chunk_rows * stride);
  buffers.out = layout.floats(query_block * wide);
  buffers.scratch = layout.bytes(chunk_rows * stride);
  return buffers;
}

// Everything one (batch, head, query block) works on.
class ForwardBlock {
 public:
  ForwardBlock(const Call& call, RowStatistics& rows, Index b, Index h, Index row)
      : call_(call),
        kernels_(call.kernels),
        rows_(rows),
        b_(b),
        h_(h),
        row_(row),
        count_(std::min(call.tiling.query_block, call.sizes.q_len - row)),
        out_stride_(kernels::padded(call.sizes.value_dim, call.kernels.column_tile)),
        memory_(Workspace::carved([&](Layout& layout) { return carve(call, layout); })) {}

  void run(const OutputView& out) {
    pack_queries();
    const Index length = call_.length(b_);
    for (Index key = 0; key < length; key += call_.tiling.key_block)
      meet_keys(key, std::min(call_.tiling.key_block, length - key));
    finish(out);
  }

 private:
  Spot spot(Index chunk_row, Index rows, Index key, Index keys) const {
    return {b_, h_, row_ + chunk_row, rows, key, keys};
  }
  Index at(Index chunk_row) const { return call_.row_index(b_, h_, row_ + chunk_row); }

  void pack_queries();
  void meet_keys(Index key, Index keys);
  void ask_for_next(const Spot& tile, Index next_key) const;
  void meet_chunk(const Spot& tile, const PanelCoverage& panels);
  void add_values(const kernels::Tile& weights, const Spot& tile, Index first, const std::uint8_t* visible);
  void finish(const OutputView& out);

  const Call& call_;
  const kernels::Kernels& kernels_;
  RowStatistics& rows_;
  Index b_, h_, row_, count_, out_stride_;
  ForwardBuffers memory_;
  bool values_finite_ = true;
};

void ForwardBlock::pack_queries() {
  kernels_.widen_rows(rows_of(call_.q, b_, h_, row_, count_), memory_.queries, call_.sizes.head_dim);
  std::fill_n(memory_.out, count_ * out_stride_, 0.0f);
  start_rows(rows_, at(0), count_);
}

// Only what some row of the block sees is packed.
void ForwardBlock::meet_keys(Index key, Index keys) {
  const Spot block = seen_panels(call_, spot(0, count_, key, keys)).within(spot(0, count_, key, keys));
  if (block.keys == 0) return;
  const Index group = call_.kv_head(h_);
  kernels_.pack_interleaved(rows_of(call_.k, b_, group, block.key, block.keys), kernels_.column_tile, call_.scale,
                            memory_.keys);
  values_finite_ = kernels_.pack_panels(rows_of(call_.v, b_, group, block.key, block.keys), 1.0f, memory_.values);
  for (Index chunk = 0; chunk < count_; chunk += call_.tiling.chunk_rows) {
    const Spot tile = spot(chunk, std::min(call_.tiling.chunk_rows, count_ - chunk), block.key, block.keys);
    ask_for_next(tile, key + call_.tiling.key_block);
    const PanelCoverage panels = seen_panels(call_, tile);
    if (panels.keys > 0) meet_chunk(tile, panels);
  }
}

// Brings nearer what will be read after this tile: the bias of the next chunk,
// and the chunk's share of the keys and values that are packed next.
void ForwardBlock::ask_for_next(const Spot& tile, Index next_key) const {
  const Index chunk = tile.row - row_, left = count_ - chunk - tile.rows;
  ask_for_bias(call_, {b_, h_, tile.row + tile.rows, std::min(tile.rows, left), tile.key, tile.keys});
  const Index keys = std::min(call_.tiling.key_block, call_.length(b_) - next_key);
  const Index begin = std::max<Index>(0, keys) * chunk / count_,
              end = std::max<Index>(0, keys) * (chunk + tile.rows) / count_;
  ask_for_rows(rows_of(call_.k, b_, call_.kv_head(h_), next_key + begin, end - begin));
  ask_for_rows(rows_of(call_.v, b_, call_.kv_head(h_), next_key + begin, end - begin));
}

void ForwardBlock::meet_chunk(const Spot& tile, const PanelCoverage& panels) {
  const Index chunk_row = tile.row - row_, depth = call_.sizes.head_dim;
  kernels::Tile scores{memory_.scores, call_.tile_stride(), tile.rows, 0};
  scores.keys = for_seen_runs(panels, [&](const SeenRun& run) {
    const kernels::Tile columns = columns_of(scores, run.column, run.keys);
    kernels_.product({memory_.queries + chunk_row * depth, depth, 1, memory_.keys + (panels.first + run.first) * depth,
                      kernels_.column_tile * depth, kernels_.column_tile, columns.data, columns.stride, columns.rows,
                      columns.keys, depth, false});
    finish_scores(call_, run.within(panels, tile), panels_of(panels, run), columns, memory_.scratch + run.column);
  });
  const bool select = !values_finite_ && !kernels_.mark_visible(scores, memory_.scratch, scores.stride);
  kernels_.softmax_step({scores, rows_.max.data() + at(chunk_row), rows_.sum.data() + at(chunk_row),
                         rows_.spread.empty() ? nullptr : rows_.spread.data() + at(chunk_row),
                         memory_.out + chunk_row * out_stride_, out_stride_, call_.sizes.value_dim});
  for_seen_runs(panels, [&](const SeenRun& run) {
    const kernels::Tile weights = columns_of(scores, run.column, run.keys);
    drop_weights(call_, run.within(panels, tile), weights);
    add_values(weights, tile, panels.first + run.first, select ? memory_.scratch + run.column : nullptr);
  });
}

// out += weights . values, for the tile's keys from `first` on.
void ForwardBlock::add_values(const kernels::Tile& weights, const Spot& tile, Index first,
                              const std::uint8_t* visible) {
  if (call_.sizes.value_dim == 0) return;
  const kernels::Product product{weights.data,
                                 weights.stride,
                                 1,
                                 memory_.values + first * kernels_.column_tile,
                                 tile.keys * kernels_.column_tile,
                                 kernels_.column_tile,
                                 memory_.out + (tile.row - row_) * out_stride_,
                                 out_stride_,
                                 weights.rows,
                                 call_.sizes.value_dim,
                                 weights.keys,
                                 true};
  kernels::multiply(kernels_, product, {visible, weights.stride, 1});
}

void ForwardBlock::finish(const OutputView& out) {
  write_rows(call_, rows_, spot(0, count_, 0, 0), {memory_.out, out_stride_, count_, call_.sizes.value_dim}, out);
}

void check_output(const char* name, const OutputView& out, const Call& call) {
  const Sizes& sizes = call.sizes;
  check_equal(name, "out", shape_of(out), {sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  check_writable(name, "out", out, call.q.dtype());
  check_apart(name, {"out", out}, {{"q", call.q}, {"k", call.k}, {"v", call.v}});
}

void report(const Call& call, const RowStatistics& rows, AttendResult& result) {
  const Observe& observe = call.options.observe;
  if (observe.lse) {
    result.lse = Tensor<float>::uninitialised({call.sizes.batch, call.sizes.q_heads, call.sizes.q_len});
    for (Index i = 0; i < result.lse.count(); ++i) result.lse[i] = log_sum_exp(rows, i);
  }
  observe_scores(call, rows, result);
}

}  // namespace

Index forward_workspace(const Call& call) {
  Layout counting;
  carve(call, counting);
  return counting.used();
}

namespace {

void stream_forward(const Call& call, RowStatistics& rows, Index head, const OutputView& out, Index row) {
  ForwardBlock(call, rows, head / call.sizes.q_heads, head % call.sizes.q_heads, row).run(out);
}

// Heads of one item: enough of them that handing out items costs nothing.
void run_short(const Call& call, RowStatistics& rows, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  const Index pairs = std::max<Index>(1, sizes.q_len * sizes.kv_len);
  parallel_ranges(sizes.batch * sizes.q_heads, std::max<Index>(1, 2048 / pairs), [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head)
      if (!attend_short(call, rows, head / sizes.q_heads, head % sizes.q_heads, out))
        stream_forward(call, rows, head, out, 0);
  });
}

void run_streaming(const Call& call, RowStatistics& rows, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  const Index blocks = (sizes.q_len + call.tiling.query_block - 1) / call.tiling.query_block;
  parallel_items(sizes.batch * sizes.q_heads * blocks, [&](Index item, int) {
    // Last blocks first: under a causal mask they are the long ones.
    stream_forward(call, rows, item / blocks, out, (blocks - 1 - item % blocks) * call.tiling.query_block);
  });
}

}  // namespace

RowStatistics make_rows(const Call& call) {
  const Shape shape{call.sizes.batch, call.sizes.q_heads, call.sizes.q_len};
  RowStatistics rows{Tensor<float>::uninitialised(shape), Tensor<float>::uninitialised(shape), {}};
  if (call.options.observe.entropy) rows.spread = Tensor<float>::uninitialised(shape);
  if (call.options.observe.row_max) rows.largest_score = Tensor<float>::uninitialised(shape);
  return rows;
}

void run_tiles(Call& call, RowStatistics& rows, const OutputView& out) {
  call.tiling = forward_tiling(call.sizes, call.kernels);
  is_short(call) ? run_short(call, rows, out) : run_streaming(call, rows, out);
}

AttendResult run_forward(Call& call, const OutputView& out) {
  call.tiling = forward_tiling(call.sizes, call.kernels);
  RowStatistics rows = make_rows(call);
  if (is_decoding(call))
    run_decode(call, rows, out);
  else if (const auto how = choose_regrouping(call).how)
    run_regrouped(call, *how, rows, out);
  else
    run_tiles(call, rows, out);
  AttendResult result;
  report(call, rows, result);
  result.entropy = std::move(rows.spread);
  result.row_max = std::move(rows.largest_score);
  return result;
}

}  // namespace detail

AttendResult attend_into(const OutputView& out, const InputView& q, const InputView& k, const InputView& v,
                         const AttendOptions& options) {
  detail::Call call = detail::make_call("attend", q, k, v, options);
  detail::check_output("attend", out, call);
  return detail::run_forward(call, out);
}

namespace {

template <class T>
BasicAttendResult<T> attend_as(const View<const T, 4>& q, const InputView& k, const InputView& v,
                               const AttendOptions& options) {
  detail::Call call = detail::make_call("attend", q, k, v, options);
  const auto& sizes = call.sizes;
  auto out = Tensor<T>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  AttendResult seen = detail::run_forward(call, out);
  return {std::move(static_cast<BasicObservations<float>&>(seen)), std::move(out)};
}

}  // namespace

AttendResult attend(View<const float, 4> q, const InputView& k, const InputView& v, const AttendOptions& options) {
  return attend_as(q, k, v, options);
}
BasicAttendResult<BFloat16> attend(View<const BFloat16, 4> q, const InputView& k, const InputView& v,
                                   const AttendOptions& options) {
  return attend_as(q, k, v, options);
}
BasicAttendResult<Float16> attend(View<const Float16, 4> q, const InputView& k, const InputView& v,
                                  const AttendOptions& options) {
  return attend_as(q, k, v, options);
}

}  // namespace regard
