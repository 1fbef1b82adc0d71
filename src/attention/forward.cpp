// The streaming forward pass: a block of queries meets the keys tile by tile
// under a running softmax; nothing of size q_len x kv_len exists.
#include <algorithm>

#include "attention/decode.h"
#include "attention/rows.h"
#include "attention/short.h"
#include "regard/attend.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

// Everything one (batch, head, query block) works on. Buffers are carved from
// the thread's workspace.
class ForwardBlock {
 public:
  ForwardBlock(const Call& call, RowStatistics& rows, Index b, Index h, Index row)
      : call_(call), kernels_(call.kernels), rows_(rows), b_(b), h_(h), row_(row) {
    count_ = std::min(call.tiling.query_block, call.sizes.q_len - row);
    carve();
  }

  void run(View<float, 4> out) {
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

  void carve();
  void pack_queries();
  void meet_keys(Index key, Index keys);
  void meet_chunk(Index chunk_row, Index key, Index keys, Coverage coverage);
  void add_values(const kernels::Tile& weights, Index chunk_row, const std::uint8_t* visible);
  void drop(const kernels::Tile& weights, Index chunk_row, Index key);
  void finish(View<float, 4> out);

  const Call& call_;
  const kernels::Kernels& kernels_;
  RowStatistics& rows_;
  Index b_, h_, row_, count_ = 0;
  Index out_stride_ = 0;
  float *queries_ = nullptr, *keys_ = nullptr, *values_ = nullptr, *scores_ = nullptr, *out_ = nullptr;
  float* keep_ = nullptr;
  std::uint8_t* scratch_ = nullptr;
  bool values_finite_ = true;
};

void ForwardBlock::carve() {
  Workspace& workspace = Workspace::of_this_thread();
  workspace.begin(forward_workspace(call_));
  const auto& [key_block, chunk_rows, query_block] = call_.tiling;
  const Index stride = call_.tile_stride();
  out_stride_ = kernels::padded(call_.sizes.value_dim, kernels_.column_tile);
  queries_ = workspace.floats(kernels::padded(query_block, kernels_.row_tile) * call_.sizes.head_dim);
  keys_ = workspace.floats(stride * call_.sizes.head_dim);
  values_ = workspace.floats(key_block * out_stride_);
  scores_ = workspace.floats(chunk_rows * stride);
  keep_ = workspace.floats(chunk_rows * stride);
  out_ = workspace.floats(query_block * out_stride_);
  scratch_ = workspace.bytes(chunk_rows * stride);
}

void ForwardBlock::pack_queries() {
  kernels_.pack_interleaved(rows_of(call_.q, b_, h_, row_, count_), kernels_.row_tile, 1.0f, queries_);
  std::fill_n(out_, count_ * out_stride_, 0.0f);
  start_rows(rows_, at(0), count_);
}

void ForwardBlock::meet_keys(Index key, Index keys) {
  if (call_.options.mask.coverage(mask_block(call_, spot(0, count_, key, keys))) == Coverage::none) return;
  const Index group = call_.kv_head(h_);
  kernels_.pack_interleaved(rows_of(call_.k, b_, group, key, keys), kernels_.column_tile, call_.scale, keys_);
  values_finite_ = kernels_.pack_panels(rows_of(call_.v, b_, group, key, keys), 1.0f, values_);
  for (Index chunk = 0; chunk < count_; chunk += call_.tiling.chunk_rows) {
    const Index rows = std::min(call_.tiling.chunk_rows, count_ - chunk);
    const Coverage coverage = call_.options.mask.coverage(mask_block(call_, spot(chunk, rows, key, keys)));
    if (coverage != Coverage::none) meet_chunk(chunk, key, keys, coverage);
  }
}

void ForwardBlock::meet_chunk(Index chunk_row, Index key, Index keys, Coverage coverage) {
  const Index rows = std::min(call_.tiling.chunk_rows, count_ - chunk_row), depth = call_.sizes.head_dim;
  const kernels::Tile scores{scores_, call_.tile_stride(), rows, keys};
  kernels_.product({queries_ + chunk_row * depth, kernels_.row_tile * depth, 1, kernels_.row_tile, keys_,
                    kernels_.column_tile * depth, kernels_.column_tile, scores_, scores.stride, rows, keys, depth,
                    false});
  finish_scores(call_, spot(chunk_row, rows, key, keys), coverage, scores, scratch_);
  const bool select = !values_finite_ && !kernels_.mark_visible(scores, scratch_, scores.stride);
  kernels_.softmax_step({scores, rows_.max.data() + at(chunk_row), rows_.sum.data() + at(chunk_row),
                         rows_.spread.empty() ? nullptr : rows_.spread.data() + at(chunk_row),
                         out_ + chunk_row * out_stride_, out_stride_, call_.sizes.value_dim});
  if (call_.options.dropout.p > 0) drop(scores, chunk_row, key);
  add_values(scores, chunk_row, select ? scratch_ : nullptr);
}

void ForwardBlock::drop(const kernels::Tile& weights, Index chunk_row, Index key) {
  const kernels::Tile keep{keep_, weights.stride, weights.rows, weights.keys};
  kernels_.dropout_factors(keep, dropout_spot(call_.options.dropout, spot(chunk_row, weights.rows, key, weights.keys)));
  kernels_.multiply(weights, keep_);
}

void ForwardBlock::add_values(const kernels::Tile& weights, Index chunk_row, const std::uint8_t* visible) {
  if (call_.sizes.value_dim == 0) return;
  const kernels::Product product{weights.data,
                                 kernels_.row_tile * weights.stride,
                                 weights.stride,
                                 1,
                                 values_,
                                 weights.keys * kernels_.column_tile,
                                 kernels_.column_tile,
                                 out_ + chunk_row * out_stride_,
                                 out_stride_,
                                 weights.rows,
                                 call_.sizes.value_dim,
                                 weights.keys,
                                 true};
  if (visible)
    kernels_.product_selected(product, {visible, weights.stride, 1});
  else
    kernels_.product(product);
}

void ForwardBlock::finish(View<float, 4> out) {
  write_rows(call_, rows_, spot(0, count_, 0, 0), {out_, out_stride_, count_, call_.sizes.value_dim}, out);
}

void check_output(const char* name, const View<float, 4>& out, const Sizes& sizes) {
  check_equal(name, "out", shape_of(out), {sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  check_writable(name, "out", out);
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
  const auto& [key_block, chunk_rows, query_block] = call.tiling;
  const Index depth = call.sizes.head_dim, values = kernels::padded(call.sizes.value_dim, call.kernels.column_tile);
  const Index stride = call.tile_stride(), padded_rows = kernels::padded(query_block, call.kernels.row_tile);
  Index total = 0;
  for (Index part : {padded_rows * depth, stride * depth, key_block * values, chunk_rows * stride, chunk_rows * stride,
                     query_block * values, chunk_rows * stride})
    total += Workspace::aligned(part);
  return total;
}

namespace {

void stream_forward(const Call& call, RowStatistics& rows, Index head, View<float, 4> out, Index row) {
  ForwardBlock(call, rows, head / call.sizes.q_heads, head % call.sizes.q_heads, row).run(out);
}

// Heads of one item: enough of them that handing out items costs nothing.
void run_short(const Call& call, RowStatistics& rows, View<float, 4> out) {
  const Sizes& sizes = call.sizes;
  const Index pairs = std::max<Index>(1, sizes.q_len * sizes.kv_len);
  parallel_ranges(sizes.batch * sizes.q_heads, std::max<Index>(1, 2048 / pairs), [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head)
      if (!attend_short(call, rows, head / sizes.q_heads, head % sizes.q_heads, out))
        stream_forward(call, rows, head, out, 0);
  });
}

void run_streaming(const Call& call, RowStatistics& rows, View<float, 4> out) {
  const Sizes& sizes = call.sizes;
  const Index blocks = (sizes.q_len + call.tiling.query_block - 1) / call.tiling.query_block;
  parallel_items(sizes.batch * sizes.q_heads * blocks, [&](Index item, int) {
    // Last blocks first: under a causal mask they are the long ones.
    stream_forward(call, rows, item / blocks, out, (blocks - 1 - item % blocks) * call.tiling.query_block);
  });
}

}  // namespace

AttendResult run_forward(Call& call, View<float, 4> out) {
  const Sizes& sizes = call.sizes;
  call.tiling = forward_tiling(sizes, call.kernels);
  const Shape shape{sizes.batch, sizes.q_heads, sizes.q_len};
  RowStatistics rows{Tensor<float>::uninitialised(shape), Tensor<float>::uninitialised(shape), {}};
  if (call.options.observe.entropy) rows.spread = Tensor<float>::uninitialised(shape);
  if (call.options.observe.row_max) rows.largest_score = Tensor<float>::uninitialised(shape);
  if (is_decoding(call))
    run_decode(call, rows, out);
  else if (is_short(call))
    run_short(call, rows, out);
  else
    run_streaming(call, rows, out);
  AttendResult result;
  report(call, rows, result);
  result.entropy = std::move(rows.spread);
  result.row_max = std::move(rows.largest_score);
  return result;
}

}  // namespace detail

AttendResult attend_into(View<float, 4> out, View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                         const AttendOptions& options) {
  detail::Call call = detail::make_call("attend", q, k, v, options);
  detail::check_output("attend", out, call.sizes);
  return detail::run_forward(call, out);
}

AttendResult attend(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                    const AttendOptions& options) {
  detail::Call call = detail::make_call("attend", q, k, v, options);
  const auto& sizes = call.sizes;
  auto out = Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  AttendResult result = detail::run_forward(call, out.view<4>());
  result.out = std::move(out);
  return result;
}

}  // namespace regard
