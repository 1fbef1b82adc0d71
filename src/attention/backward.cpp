// The streaming backward pass. One work item is a block of keys of one key
// head; it meets every chunk of queries that sees it, recomputes the weights
// from the forward pass's log-sum-exp, and keeps its dk and dv to itself.
//
// dq needs sums over key blocks. No atomics and no partial copies: item n of a
// key head adds to a chunk of dq only after item n - 1 has passed that chunk,
// so sums run over key blocks in order for any number of threads. Items are
// claimed in order, so whoever waits, waits for work that is under way.
#include "attention/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/short.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard::detail {

Index BackwardBlock::workspace_floats(const Call& call) {
  const Index rows = call.tiling.chunk_rows, keys = call.tiling.key_block, stride = call.tile_stride();
  const Index tile = call.kernels.column_tile, depth = call.sizes.head_dim, values = call.sizes.value_dim;
  const Index wide_depth = kernels::padded(depth, tile), wide_values = kernels::padded(values, tile);
  const Index row_groups = kernels::padded(rows, call.kernels.row_tile);
  const Index modifiers = static_cast<Index>(call.options.score.chain().size());
  Index total = 0;
  for (Index part : {stride * depth, stride * values, keys * wide_depth, keys * wide_depth, keys * wide_values,
                     row_groups * depth, row_groups * values, rows * wide_depth, rows * wide_values, rows * wide_depth,
                     rows * stride, rows * stride, rows * stride, rows * stride})
    total += Workspace::aligned(part);
  return total + modifiers * Workspace::aligned(rows * stride);
}

void BackwardBlock::carve() {
  Workspace& workspace = Workspace::of_this_thread();
  workspace.begin(workspace_floats(call_));
  const Index rows = call_.tiling.chunk_rows, keys = call_.tiling.key_block, stride = call_.tile_stride();
  const Index depth = call_.sizes.head_dim, values = call_.sizes.value_dim;
  wide_depth_ = kernels::padded(depth, kernels_.column_tile);
  wide_values_ = kernels::padded(values, kernels_.column_tile);
  const Index row_groups = kernels::padded(rows, kernels_.row_tile);
  key_columns_ = workspace.floats(stride * depth);
  value_columns_ = workspace.floats(stride * values);
  key_panels_ = workspace.floats(keys * wide_depth_);
  dk_ = workspace.floats(keys * wide_depth_);
  dv_ = workspace.floats(keys * wide_values_);
  query_groups_ = workspace.floats(row_groups * depth);
  dout_groups_ = workspace.floats(row_groups * values);
  query_panels_ = workspace.floats(rows * wide_depth_);
  dout_panels_ = workspace.floats(rows * wide_values_);
  dq_ = workspace.floats(rows * wide_depth_);
  weights_ = workspace.floats(rows * stride);
  gradients_ = workspace.floats(rows * stride);
  keep_ = workspace.floats(rows * stride);
  scratch_ = workspace.bytes(rows * stride);
  for (std::size_t m = 0; m < call_.options.score.chain().size(); ++m)
    inputs_.tiles.push_back(workspace.floats(rows * stride));
}

BackwardBlock::BackwardBlock(const Call& call, BackwardState& state, Index item)
    : call_(call), kernels_(call.kernels), state_(state), item_(item) {
  const Index pair = item / state.key_blocks, block = item % state.key_blocks;
  b_ = pair / call.sizes.kv_heads;
  kv_head_ = pair % call.sizes.kv_heads;
  key_ = block * call.tiling.key_block;
  keys_ = std::min(call.tiling.key_block, call.sizes.kv_len - key_);
  visible_keys_ = std::clamp<Index>(call.length(b_) - key_, 0, keys_);
  oldest_open_ = item - block;
  if (state.dbias_shared.given()) {
    const auto& strides = state.dbias_shared.strides();
    const bool across_heads = strides[0] == 0 || strides[1] == 0;
    if (strides[3] == 0)
      bias_before_ = across_heads || block > 0 ? item - 1 : -1;
    else if (across_heads)
      bias_before_ = item - state.key_blocks;
  }
}

// Also when run() threw: nobody may wait for us for ever.
BackwardBlock::~BackwardBlock() { state_.turnstile->pass(item_, Turnstile::finished); }

void BackwardBlock::run() {
  carve();
  if (visible_keys_ > 0) pack_keys();
  std::fill_n(dk_, keys_ * wide_depth_, 0.0f);
  std::fill_n(dv_, keys_ * wide_values_, 0.0f);
  Index step = 0;
  for (Index g = 0; g < call_.sizes.group() && visible_keys_ > 0; ++g)
    for (Index row = 0; row < call_.sizes.q_len; row += call_.tiling.chunk_rows, ++step) {
      const Index h = kv_head_ * call_.sizes.group() + g;
      const Spot spot{b_, h, row, std::min(call_.tiling.chunk_rows, call_.sizes.q_len - row), key_, visible_keys_};
      const Coverage coverage = call_.options.mask.coverage(mask_block(call_, spot));
      if (coverage != Coverage::none) meet_chunk(spot, coverage, step);
      state_.turnstile->pass(item_, step + 1);
    }
  write(dk_, wide_depth_, state_.dk);
  write(dv_, wide_values_, state_.dv);
  // Passing on only after the one before makes the line whole: who comes next
  // need not look further back.
  if (bias_before_ >= 0) state_.turnstile->wait(bias_before_, Turnstile::finished);
}

void BackwardBlock::pack_keys() {
  const auto k = rows_of(call_.k, b_, kv_head_, key_, visible_keys_);
  const auto v = rows_of(call_.v, b_, kv_head_, key_, visible_keys_);
  keys_finite_ = kernels_.pack_interleaved(k, kernels_.column_tile, call_.scale, key_columns_);
  keys_finite_ &= kernels_.pack_interleaved(v, kernels_.column_tile, 1.0f, value_columns_);
  kernels_.pack_panels(k, 1.0f, key_panels_);
}

void BackwardBlock::meet_chunk(const Spot& spot, Coverage coverage, Index step) {
  const kernels::Tile weights{weights_, call_.tile_stride(), spot.rows, spot.keys};
  const kernels::Tile gradients{gradients_, weights.stride, spot.rows, spot.keys};
  const bool finite = pack_chunk(spot) && keys_finite_;
  multiply_forward(query_groups_, key_columns_, call_.sizes.head_dim, weights);
  finish_scores(call_, spot, coverage, weights, scratch_, &inputs_);
  const bool select = !finite && !kernels_.mark_visible(weights, scratch_, weights.stride);
  multiply_forward(dout_groups_, value_columns_, call_.sizes.value_dim, gradients);
  const Index first = call_.row_index(b_, spot.h, spot.row);
  // The scale comes last: after what bias and modifiers want to know.
  const bool apart = changes_scores(call_);
  kernels_.softmax_gradient({weights, gradients, state_.lse.data() + first, state_.shared.data() + first,
                             drop(spot, weights.stride), apart ? 1.0f : call_.scale});
  add_transposed(weights, dout_panels_, dv_, call_.sizes.value_dim, select);
  add_bias_gradient(spot, gradients);
  chain_modifiers(spot, gradients);
  if (apart) kernels_.scale(gradients, call_.scale);
  add_transposed(gradients, query_panels_, dk_, call_.sizes.head_dim, select);
  add_queries(spot, gradients, select, step);
}

// Both layouts of the chunk's queries and output gradients; true if finite.
bool BackwardBlock::pack_chunk(const Spot& spot) {
  const auto q = rows_of(call_.q, b_, spot.h, spot.row, spot.rows);
  const auto dout = rows_of(state_.dout, b_, spot.h, spot.row, spot.rows);
  bool finite = kernels_.pack_interleaved(q, kernels_.row_tile, 1.0f, query_groups_);
  finite &= kernels_.pack_interleaved(dout, kernels_.row_tile, 1.0f, dout_groups_);
  kernels_.pack_panels(q, 1.0f, query_panels_);
  kernels_.pack_panels(dout, 1.0f, dout_panels_);
  return finite;
}

// tile[rows x keys] = rows . keys^T
void BackwardBlock::multiply_forward(const float* groups, const float* columns, Index depth,
                                     const kernels::Tile& tile) const {
  kernels_.product({groups, kernels_.row_tile * depth, 1, kernels_.row_tile, columns, kernels_.column_tile * depth,
                    kernels_.column_tile, tile.data, tile.stride, tile.rows, tile.keys, depth, false});
}

// to[keys x depth] += tile^T . panels
void BackwardBlock::add_transposed(const kernels::Tile& tile, const float* panels, float* to, Index depth,
                                   bool select) const {
  if (depth == 0) return;
  const kernels::Product product{tile.data,
                                 kernels_.row_tile,
                                 1,
                                 tile.stride,
                                 panels,
                                 tile.rows * kernels_.column_tile,
                                 kernels_.column_tile,
                                 to,
                                 kernels::padded(depth, kernels_.column_tile),
                                 tile.keys,
                                 depth,
                                 tile.rows,
                                 true};
  if (select)
    kernels_.product_selected(product, {scratch_, 1, tile.stride});
  else
    kernels_.product(product);
}

void BackwardBlock::add_queries(const Spot& spot, const kernels::Tile& gradients, bool select, Index step) {
  const kernels::Product product{gradients.data,
                                 kernels_.row_tile * gradients.stride,
                                 gradients.stride,
                                 1,
                                 key_panels_,
                                 spot.keys * kernels_.column_tile,
                                 kernels_.column_tile,
                                 dq_,
                                 wide_depth_,
                                 spot.rows,
                                 call_.sizes.head_dim,
                                 spot.keys,
                                 false};
  if (select)
    kernels_.product_selected(product, {scratch_, gradients.stride, 1});
  else
    kernels_.product(product);
  wait_for_earlier_blocks(step + 1);
  const View<float, 4>& dq = state_.dq;
  if (dq.stride(3) == 1) {
    kernels_.add_rows(dq_, wide_depth_, &dq(b_, spot.h, spot.row, 0), dq.stride(2), spot.rows, call_.sizes.head_dim);
    return;
  }
  for (Index i = 0; i < spot.rows; ++i)
    for (Index d = 0; d < call_.sizes.head_dim; ++d) dq(b_, spot.h, spot.row + i, d) += dq_[i * wide_depth_ + d];
}

const float* BackwardBlock::drop(const Spot& spot, Index stride) const {
  if (call_.options.dropout.p == 0) return nullptr;
  kernels_.dropout_factors({keep_, stride, spot.rows, spot.keys}, dropout_spot(call_.options.dropout, spot));
  return keep_;
}

void BackwardBlock::wait_for_earlier_blocks(Index step) {
  for (Index other = oldest_open_; other < item_; ++other) {
    state_.turnstile->wait(other, step);
    if (other == oldest_open_ && state_.turnstile->passed(other) == Turnstile::finished) ++oldest_open_;
  }
}

template <class T>
void BackwardBlock::add_tile(const View<T, 4>& dbias, const Spot& spot, const kernels::Tile& gradients) const {
  const Index key_stride = dbias.stride(3);
  for (Index i = 0; i < spot.rows; ++i) {
    const float* from = gradients.data + i * gradients.stride;
    T* to = &dbias(b_, spot.h, spot.row + i, spot.key);
    for (Index j = 0; j < spot.keys; ++j) to[j * key_stride] += static_cast<T>(from[j]);
  }
}

// A bias shared by several heads, batch entries or key blocks collects from
// several items; those go in the order of their numbers.
void BackwardBlock::add_bias_gradient(const Spot& spot, const kernels::Tile& gradients) {
  if (state_.dbias_dense.given()) add_tile(state_.dbias_dense, spot, gradients);
  if (!state_.dbias_shared.given()) return;
  if (bias_before_ >= 0) state_.turnstile->wait(bias_before_, Turnstile::finished);
  add_tile(state_.dbias_shared, spot, gradients);
}

// From d(score entering the softmax) back to d(q . k * scale).
void BackwardBlock::chain_modifiers(const Spot& spot, const kernels::Tile& gradients) {
  const auto& chain = call_.options.score.chain();
  const TileOrigin origin{b_, spot.h, spot.row, call_.q_start(b_) + spot.row, spot.key};
  const ScoreTile<float> tile{gradients.data, gradients.stride, static_cast<std::int32_t>(spot.rows),
                              static_cast<std::int32_t>(spot.keys)};
  for (std::size_t m = chain.size(); m-- > 0;) {
    if (chain[m]->parameter_count() > 0)
      chain[m]->add_parameter_gradient({tile.scores, tile.stride, tile.rows, tile.keys}, inputs_.tiles[m], origin,
                                       state_.parameter_sums(item_, m, chain[m]->parameter_count()));
    if (chain[m]->kind() == ScoreModifier::Kind::softcap)
      kernels_.softcap_chain(gradients, inputs_.tiles[m], chain[m]->softcap_value());
    else
      chain[m]->chain(tile, inputs_.tiles[m], origin);
  }
}

void BackwardBlock::write(const float* from, Index stride, const View<float, 4>& to) const {
  for (Index j = 0; j < keys_; ++j)
    for (Index d = 0; d < to.size(3); ++d) to(b_, kv_head_, key_ + j, d) = from[j * stride + d];
}

namespace {

// Row statistics in packed form: lse, and what softmax's gradient subtracts.
void prepare_rows(const Call& call, const AttendForward& forward, View<const float, 3> dlse, BackwardState& state) {
  const Sizes& sizes = call.sizes;
  state.lse = packed(forward.lse);
  state.shared = Tensor<float>::uninitialised(state.lse.shape());
  const Index grain = std::max<Index>(1, 512 / std::max<Index>(1, sizes.q_len));
  parallel_ranges(sizes.batch * sizes.q_heads, grain, [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head) {
      const Index b = head / sizes.q_heads, h = head % sizes.q_heads;
      float* shared = state.shared.data() + head * sizes.q_len;
      call.kernels.row_dots(rows_of(forward.out, b, h, 0, sizes.q_len), rows_of(state.dout, b, h, 0, sizes.q_len),
                            shared);
      for (Index i = 0; dlse.given() && i < sizes.q_len; ++i) shared[i] -= dlse(b, h, i);
    }
  });
}

Tensor<float> sink_gradient(const Call& call, const BackwardState& state) {
  if (call.options.sink.empty()) return {};
  const Sizes& sizes = call.sizes;
  std::vector<double> sums(static_cast<std::size_t>(sizes.q_heads));
  for (Index at = 0; at < state.lse.count(); ++at) {
    const auto h = static_cast<std::size_t>(at / sizes.q_len % sizes.q_heads);
    if (state.lse[at] == -std::numeric_limits<float>::infinity()) continue;
    sums[h] -= std::exp(static_cast<double>(call.options.sink[h]) - static_cast<double>(state.lse[at])) *
               static_cast<double>(state.shared[at]);
  }
  Tensor<float> dsink({sizes.q_heads});
  for (std::size_t h = 0; h < sums.size(); ++h) dsink[static_cast<Index>(h)] = static_cast<float>(sums[h]);
  return dsink;
}

void prepare_parameters(const Call& call, Index items, BackwardState& state) {
  for (const auto& modifier : call.options.score.chain()) {
    state.first_parameter.push_back(state.parameters);
    state.parameters += modifier->parameter_count();
  }
  state.sums.assign(static_cast<std::size_t>(items * state.parameters), 0.0);
}

std::vector<std::vector<double>> parameter_gradients(const Call& call, Index items, BackwardState& state) {
  std::vector<std::vector<double>> gradients;
  for (std::size_t m = 0; m < call.options.score.chain().size(); ++m) {
    const Index count = call.options.score.chain()[m]->parameter_count();
    gradients.emplace_back(static_cast<std::size_t>(count));
    for (Index item = 0; item < items; ++item) {
      const auto sums = state.parameter_sums(item, m, count);
      for (std::size_t p = 0; p < sums.size(); ++p) gradients[m][p] += sums[p];
    }
  }
  return gradients;
}

void set_zero(const View<float, 4>& x, Index b, Index h) {
  for (Index i = 0; i < x.size(2); ++i)
    for (Index d = 0; d < x.size(3); ++d) x(b, h, i, d) = 0.0f;
}

// One item per key head, in runs long enough that handing them out costs
// nothing. Heads that need selection pair by pair stream as usual: a short
// head is a single key block, which waits for nobody.
void run_short(const Call& call, BackwardState& state) {
  const Sizes& sizes = call.sizes;
  const Index pairs = std::max<Index>(1, sizes.q_len * sizes.kv_len * sizes.group());
  parallel_ranges(sizes.batch * sizes.kv_heads, std::max<Index>(1, 1024 / pairs), [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head) {
      const Index b = head / sizes.kv_heads, kv_head = head % sizes.kv_heads;
      if (differentiate_short(call, state, b, kv_head)) continue;
      for (Index g = 0; g < sizes.group(); ++g) set_zero(state.dq, b, kv_head * sizes.group() + g);
      BackwardBlock(call, state, head).run();
    }
  });
}

void run_streaming(const Call& call, BackwardState& state, Index items) {
  for (Index b = 0; b < call.sizes.batch; ++b)
    for (Index h = 0; h < call.sizes.q_heads; ++h) set_zero(state.dq, b, h);
  parallel_items(items, [&](Index item, int) { BackwardBlock(call, state, item).run(); });
}

AttendGradients run_backward(Call& call, BackwardState& state, const AttendForward& forward,
                             View<const float, 3> dlse) {
  const Sizes& sizes = call.sizes;
  call.tiling = backward_tiling(sizes, call.kernels);
  AttendGradients result;
  Tensor<double> bias_sums;
  if (call.options.bias.given()) {
    result.dbias = Tensor<float>(shape_of(call.options.bias));
    if (result.dbias.shape() == Shape{sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len}) {
      state.dbias_dense = result.dbias.view<4>();
    } else {
      bias_sums = Tensor<double>(result.dbias.shape());
      state.dbias_shared = broadcast(bias_sums.view<4>());
    }
  }
  state.key_blocks = (sizes.kv_len + call.tiling.key_block - 1) / call.tiling.key_block;
  const Index items = sizes.batch * sizes.kv_heads * state.key_blocks;
  state.turnstile = std::make_unique<Turnstile>(items);
  prepare_rows(call, forward, dlse, state);
  prepare_parameters(call, items, state);
  has_short_gradient(call, state) ? run_short(call, state) : run_streaming(call, state, items);
  if (state.dbias_shared.given())
    for (Index i = 0; i < bias_sums.count(); ++i) result.dbias[i] = static_cast<float>(bias_sums[i]);
  result.dsink = sink_gradient(call, state);
  result.dparameters = parameter_gradients(call, items, state);
  return result;
}

Call checked_call(View<const float, 4> dout, View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                  const AttendForward& forward, const AttendOptions& options, View<const float, 3> dlse) {
  Call call = make_call("attend_backward", q, k, v, options);
  check_backward("attend_backward", call.sizes, dout, forward, dlse);
  check_differentiable("attend_backward", options.score);
  return call;
}

}  // namespace
}  // namespace regard::detail

namespace regard {

AttendGradients attend_backward_into(const GradientViews& gradients, View<const float, 4> dout, View<const float, 4> q,
                                     View<const float, 4> k, View<const float, 4> v, const AttendForward& forward,
                                     const AttendOptions& options, View<const float, 3> dlse) {
  detail::Call call = detail::checked_call(dout, q, k, v, forward, options, dlse);
  const char* name = "attend_backward";
  detail::check_equal(name, "dq", detail::shape_of(gradients.dq), detail::shape_of(q));
  detail::check_equal(name, "dk", detail::shape_of(gradients.dk), detail::shape_of(k));
  detail::check_equal(name, "dv", detail::shape_of(gradients.dv), detail::shape_of(v));
  detail::check_writable(name, "dq", gradients.dq);
  detail::check_writable(name, "dk", gradients.dk);
  detail::check_writable(name, "dv", gradients.dv);
  detail::check_apart(name, {{"dq", gradients.dq}, {"dk", gradients.dk}, {"dv", gradients.dv}});
  detail::BackwardState state;
  state.dout = dout;
  state.dq = gradients.dq;
  state.dk = gradients.dk;
  state.dv = gradients.dv;
  return detail::run_backward(call, state, forward, dlse);
}

AttendGradients attend_backward(View<const float, 4> dout, View<const float, 4> q, View<const float, 4> k,
                                View<const float, 4> v, const AttendForward& forward, const AttendOptions& options,
                                View<const float, 3> dlse) {
  auto dq = Tensor<float>::uninitialised(detail::shape_of(q));
  auto dk = Tensor<float>::uninitialised(detail::shape_of(k));
  auto dv = Tensor<float>::uninitialised(detail::shape_of(v));
  AttendGradients result = attend_backward_into({dq, dk, dv}, dout, q, k, v, forward, options, dlse);
  result.dq = std::move(dq);
  result.dk = std::move(dk);
  result.dv = std::move(dv);
  return result;
}

}  // namespace regard
