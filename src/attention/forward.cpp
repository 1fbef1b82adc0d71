// The streaming forward pass: a block of queries meets the keys tile by tile
// under a running softmax; nothing of size q_len x kv_len exists.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call.h"
#include "regard/attend.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

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
  float join_sink(Index at);
  void finish_row(Index chunk_row, float* values);

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
  kernels_.pack_interleaved(rows_of(call_.q, b_, h_, row_, count_), kernels_.row_tile, call_.scale, queries_);
  std::fill_n(out_, count_ * out_stride_, 0.0f);
  std::fill_n(rows_.max.data() + at(0), count_, -infinity);
  std::fill_n(rows_.sum.data() + at(0), count_, 0.0f);
  if (!rows_.spread.empty()) std::fill_n(rows_.spread.data() + at(0), count_, 0.0f);
}

void ForwardBlock::meet_keys(Index key, Index keys) {
  if (call_.options.mask.coverage(mask_block(call_, spot(0, count_, key, keys))) == Coverage::none) return;
  const Index group = call_.kv_head(h_);
  kernels_.pack_interleaved(rows_of(call_.k, b_, group, key, keys), kernels_.column_tile, 1.0f, keys_);
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
                    kernels_.column_tile * depth, scores_, scores.stride, rows, keys, depth, false});
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

// The sink joins maximum and denominator once, last. Returns what the sums so
// far are to be multiplied by.
float ForwardBlock::join_sink(Index at) {
  float& largest = rows_.max[at];
  float& sum = rows_.sum[at];
  const float sink = call_.options.sink[static_cast<std::size_t>(h_)];
  const double before = kernels_.row_reference(largest);
  const bool empty = largest == -infinity;
  largest = std::max(largest, sink);
  const double after = kernels_.row_reference(largest), moved = before - after;
  const float factor = empty ? 0.0f : static_cast<float>(std::exp(moved));
  if (!rows_.spread.empty())
    rows_.spread[at] = factor == 0.0f ? 0.0f : factor * (rows_.spread[at] + sum * static_cast<float>(moved));
  sum = sum * factor + static_cast<float>(std::exp(static_cast<double>(sink) - after));
  return factor;
}

void ForwardBlock::finish_row(Index chunk_row, float* values) {
  const Index row = at(chunk_row);
  float keys_sum = rows_.sum[row], factor = 1.0f;
  if (!call_.options.sink.empty()) {
    factor = join_sink(row);
    keys_sum *= factor;
  }
  const float sum = rows_.sum[row];
  if (!rows_.spread.empty()) {
    // H = -sum p ln p with p = w / sum and ln p = (s - reference) - ln sum.
    float& spread = rows_.spread[row];
    spread = sum == 0.0f ? 0.0f : (std::log(sum) * keys_sum - spread) / sum;
  }
  for (Index d = 0; d < call_.sizes.value_dim; ++d) values[d] = sum == 0.0f ? 0.0f : values[d] * factor / sum;
}

void ForwardBlock::finish(View<float, 4> out) {
  for (Index i = 0; i < count_; ++i) {
    float* values = out_ + i * out_stride_;
    finish_row(i, values);
    if (call_.sizes.value_dim == 0) continue;
    float* to = &out(b_, h_, row_ + i, 0);
    if (out.stride(3) == 1)
      std::copy_n(values, call_.sizes.value_dim, to);
    else
      for (Index d = 0; d < call_.sizes.value_dim; ++d) to[d * out.stride(3)] = values[d];
  }
}

void check_output(const char* name, const View<float, 4>& out, const Sizes& sizes) {
  check_equal(name, "out", shape_of(out), {sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  check_writable(name, "out", out);
}

void report(const Call& call, const RowStatistics& rows, AttendResult& result) {
  const Observe& observe = call.options.observe;
  if (observe.lse) {
    result.lse = Tensor<float>::uninitialised({call.sizes.batch, call.sizes.q_heads, call.sizes.q_len});
    for (Index i = 0; i < result.lse.count(); ++i)
      result.lse[i] = rows.sum[i] == 0.0f ? -infinity
                                             : static_cast<float>(call.kernels.row_reference(rows.max[i]) +
                                                                  static_cast<double>(std::log(rows.sum[i])));
  }
  if (observe.weights || !observe.rectangles.empty()) observe_scores(call, rows, result);
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

AttendResult run_forward(Call& call, View<float, 4> out) {
  const Sizes& sizes = call.sizes;
  call.tiling = forward_tiling(sizes, call.kernels);
  const Shape shape{sizes.batch, sizes.q_heads, sizes.q_len};
  RowStatistics rows{Tensor<float>::uninitialised(shape), Tensor<float>::uninitialised(shape), {}};
  if (call.options.observe.entropy) rows.spread = Tensor<float>::uninitialised(shape);
  const Index blocks = (sizes.q_len + call.tiling.query_block - 1) / call.tiling.query_block;
  parallel_items(sizes.batch * sizes.q_heads * blocks, [&](Index item, int) {
    const Index head = item / blocks;
    // Last blocks first: under a causal mask they are the long ones.
    const Index row = (blocks - 1 - item % blocks) * call.tiling.query_block;
    ForwardBlock(call, rows, head / sizes.q_heads, head % sizes.q_heads, row).run(out);
  });
  AttendResult result;
  report(call, rows, result);
  result.entropy = std::move(rows.spread);
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
