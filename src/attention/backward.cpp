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

#include "attention/regroup.h"
#include "attention/short.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard::detail {

namespace {

// Floats from one row to the next of a chunk whose columns are read as panels: an
// odd number of cache lines, so that a column's rows do not crowd into few sets
// of the cache.
Index spread_rows(Index width) {
  constexpr Index line = 16;
  return (kernels::padded(width, line) / line | 1) * line;
}

}  // namespace

BackwardBuffers BackwardBlock::carve(Layout& layout) {
  const Index rows = call_.tiling.chunk_rows, keys = call_.tiling.key_block, stride = call_.tile_stride();
  const Index depth = call_.sizes.head_dim, values = call_.sizes.value_dim;
  BackwardBuffers buffers;
  buffers.key_columns = layout.floats(stride * depth);
  buffers.value_columns = layout.floats(stride * values);
  buffers.key_panels = layout.floats(keys * wide_depth_);
  buffers.dk = layout.floats(keys * wide_depth_);
  buffers.dv = layout.floats(keys * wide_values_);
  buffers.queries = layout.floats(rows * spread_rows(wide_depth_));
  buffers.dout = layout.floats(rows * spread_rows(wide_values_));
  buffers.dq = layout.floats(rows * wide_depth_);
  buffers.weights = layout.floats(rows * stride);
  buffers.gradients = layout.floats(rows * stride);
  buffers.keep = layout.floats(rows * stride);
  buffers.scratch = layout.bytes(rows * stride);
  inputs_.tiles.clear();
  for (std::size_t m = 0; m < call_.options.score.chain().size(); ++m)
    inputs_.tiles.push_back(layout.floats(rows * stride));
  return buffers;
}

BackwardBlock::BackwardBlock(const Call& call, BackwardState& state, Index item)
    : call_(call), kernels_(call.kernels), state_(state), item_(item) {
  const Index pair = item / state.key_blocks, block = item % state.key_blocks;
  b_ = pair / call.sizes.kv_heads;
  kv_head_ = pair % call.sizes.kv_heads;
  key_ = block * call.tiling.key_block;
  keys_ = std::min(call.tiling.key_block, call.sizes.kv_len - key_);
  wide_depth_ = kernels::padded(call.sizes.head_dim, kernels_.column_tile);
  wide_values_ = kernels::padded(call.sizes.value_dim, kernels_.column_tile);
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
  memory_ = Workspace::carved([&](Layout& layout) { return carve(layout); });
  if (visible_keys_ > 0) pack_keys();
  // Products read whole vectors: what lies beyond a row's end has to be a number.
  std::fill_n(memory_.queries, call_.tiling.chunk_rows * spread_rows(wide_depth_), 0.0f);
  std::fill_n(memory_.dout, call_.tiling.chunk_rows * spread_rows(wide_values_), 0.0f);
  std::fill_n(memory_.dk, keys_ * wide_depth_, 0.0f);
  std::fill_n(memory_.dv, keys_ * wide_values_, 0.0f);
  Index step = 0;
  for (Index g = 0; g < call_.sizes.group() && visible_keys_ > 0; ++g)
    for (Index row = 0; row < call_.sizes.q_len; row += call_.tiling.chunk_rows, ++step) {
      const Index h = kv_head_ * call_.sizes.group() + g;
      const Spot spot{b_, h, row, std::min(call_.tiling.chunk_rows, call_.sizes.q_len - row), key_, visible_keys_};
      const PanelCoverage panels = seen_panels(call_, spot);
      if (panels.keys > 0) meet_chunk(spot, panels, step);
      state_.turnstile->pass(item_, step + 1);
    }
  write(memory_.dk, wide_depth_, state_.dk);
  write(memory_.dv, wide_values_, state_.dv);
  // Passing on only after the one before makes the line whole: who comes next
  // need not look further back.
  if (bias_before_ >= 0) state_.turnstile->wait(bias_before_, Turnstile::finished);
}

void BackwardBlock::pack_keys() {
  const auto k = rows_of(call_.k, b_, kv_head_, key_, visible_keys_);
  const auto v = rows_of(call_.v, b_, kv_head_, key_, visible_keys_);
  keys_finite_ = kernels_.pack_interleaved(k, kernels_.column_tile, call_.scale, memory_.key_columns);
  keys_finite_ &= kernels_.pack_interleaved(v, kernels_.column_tile, 1.0f, memory_.value_columns);
  kernels_.pack_panels(k, 1.0f, memory_.key_panels);
}

void BackwardBlock::meet_chunk(const Spot& tile, const PanelCoverage& panels, Index step) {
  kernels::Tile weights{memory_.weights, call_.tile_stride(), tile.rows, 0};
  const bool finite = take_chunk(tile) && keys_finite_;
  weights.keys = for_seen_runs(panels, [&](const SeenRun& run) { score_run(tile, panels, run); });
  kernels::Tile gradients = weights;
  gradients.data = memory_.gradients;
  const bool select = !finite && !kernels_.mark_visible(weights, memory_.scratch, weights.stride);
  const Index row = call_.row_index(b_, tile.h, tile.row);
  // The scale comes last: after what bias and modifiers want to know.
  const bool apart = changes_scores(call_);
  kernels_.softmax_gradient({weights, gradients, state_.lse.data() + row, state_.shared.data() + row,
                             call_.options.dropout.p == 0 ? nullptr : memory_.keep, apart ? 1.0f : call_.scale});
  add_transposed(weights, panels, {memory_.dout, memory_.dv, call_.sizes.value_dim}, select);
  if (apart) pass_through_changes(tile, panels, gradients);
  add_transposed(gradients, panels, {memory_.queries, memory_.dk, call_.sizes.head_dim}, select);
  multiply_keys(gradients, panels, select);
  add_queries(tile, step);
}

// A run's scores, the gradients of its weights, and dropout factors.
void BackwardBlock::score_run(const Spot& tile, const PanelCoverage& panels, const SeenRun& run) {
  const Spot spot = run.within(panels, tile);
  const auto columns = [&](float* memory) {
    return kernels::Tile{memory + run.column, call_.tile_stride(), spot.rows, spot.keys};
  };
  const Index first = panels.first + run.first;
  inputs_.column = run.column;
  multiply_forward(memory_.queries, {memory_.key_columns, call_.sizes.head_dim}, first, columns(memory_.weights));
  finish_scores(call_, spot, panels_of(panels, run), columns(memory_.weights), memory_.scratch + run.column, &inputs_);
  multiply_forward(memory_.dout, {memory_.value_columns, call_.sizes.value_dim}, first, columns(memory_.gradients));
  if (call_.options.dropout.p > 0)
    kernels_.dropout_factors(columns(memory_.keep), dropout_spot(call_.options.dropout, spot));
}

// From d(score entering the softmax) back to d(q . k), with what bias and modifiers
// learn on the way.
void BackwardBlock::pass_through_changes(const Spot& tile, const PanelCoverage& panels,
                                         const kernels::Tile& gradients) {
  for_seen_runs(panels, [&](const SeenRun& run) {
    const kernels::Tile columns = columns_of(gradients, run.column, run.keys);
    const Spot spot = run.within(panels, tile);
    inputs_.column = run.column;
    add_bias_gradient(spot, columns);
    chain_modifiers(spot, columns);
  });
  kernels_.scale(gradients, call_.scale);
}

// The chunk's queries and output gradients; true if finite.
bool BackwardBlock::take_chunk(const Spot& spot) {
  const bool finite =
      kernels_.widen_rows(rows_of(call_.q, b_, spot.h, spot.row, spot.rows), memory_.queries, spread_rows(wide_depth_));
  return kernels_.widen_rows(rows_of(state_.dout, b_, spot.h, spot.row, spot.rows), memory_.dout,
                             spread_rows(wide_values_)) &&
         finite;
}

// tile[rows x keys] = rows . keys^T, from key `first` of the block on.
void BackwardBlock::multiply_forward(const float* rows, const PackedKeys& keys, Index first,
                                     const kernels::Tile& tile) const {
  const Index depth = keys.depth, stride = spread_rows(kernels::padded(depth, kernels_.column_tile));
  kernels_.product({rows, stride, 1, keys.data + first * depth, kernels_.column_tile * depth, kernels_.column_tile,
                    tile.data, tile.stride, tile.rows, tile.keys, depth, false});
}

// to[keys x depth] += tile^T . rows
void BackwardBlock::add_transposed(const kernels::Tile& tile, const PanelCoverage& panels, const KeySums& sums,
                                   bool select) const {
  if (sums.depth == 0) return;
  const Index wide = kernels::padded(sums.depth, kernels_.column_tile);
  for_seen_runs(panels, [&](const SeenRun& run) {
    const kernels::Product product{tile.data + run.column,
                                   1,
                                   tile.stride,
                                   sums.rows,
                                   kernels_.column_tile,
                                   spread_rows(wide),
                                   sums.to + (panels.first + run.first) * wide,
                                   wide,
                                   run.keys,
                                   sums.depth,
                                   tile.rows,
                                   true};
    kernels::multiply(kernels_, product, {select ? memory_.scratch + run.column : nullptr, 1, tile.stride});
  });
}

// What the tile's keys give to the chunk's dq.
void BackwardBlock::multiply_keys(const kernels::Tile& gradients, const PanelCoverage& panels, bool select) const {
  bool accumulate = false;
  for_seen_runs(panels, [&](const SeenRun& run) {
    const kernels::Product product{gradients.data + run.column,
                                   gradients.stride,
                                   1,
                                   memory_.key_panels + (panels.first + run.first) * kernels_.column_tile,
                                   visible_keys_ * kernels_.column_tile,
                                   kernels_.column_tile,
                                   memory_.dq,
                                   wide_depth_,
                                   gradients.rows,
                                   call_.sizes.head_dim,
                                   run.keys,
                                   accumulate};
    kernels::multiply(kernels_, product, {select ? memory_.scratch + run.column : nullptr, gradients.stride, 1});
    accumulate = true;
  });
}

void BackwardBlock::add_queries(const Spot& spot, Index step) {
  wait_for_earlier_blocks(step + 1);
  const View<float, 4>& dq = state_.dq_sums;
  if (dq.stride(3) == 1) {
    kernels_.add_rows(memory_.dq, wide_depth_, &dq(b_, spot.h, spot.row, 0), dq.stride(2), spot.rows,
                      call_.sizes.head_dim);
    return;
  }
  for (Index i = 0; i < spot.rows; ++i)
    for (Index d = 0; d < call_.sizes.head_dim; ++d) dq(b_, spot.h, spot.row + i, d) += memory_.dq[i * wide_depth_ + d];
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

// Undoes the modifiers, last to first.
void BackwardBlock::chain_modifiers(const Spot& spot, const kernels::Tile& gradients) {
  const auto& chain = call_.options.score.chain();
  const TileOrigin origin{b_, spot.h, spot.row, call_.q_start(b_) + spot.row, spot.key};
  const ScoreTile<float> tile{gradients.data, gradients.stride, static_cast<std::int32_t>(spot.rows),
                              static_cast<std::int32_t>(spot.keys)};
  for (std::size_t m = chain.size(); m-- > 0;) {
    if (chain[m]->parameter_count() > 0)
      chain[m]->add_parameter_gradient({tile.scores, tile.stride, tile.rows, tile.keys},
                                       inputs_.tiles[m] + inputs_.column, origin,
                                       state_.parameter_sums(item_, m, chain[m]->parameter_count()));
    if (chain[m]->kind() == ScoreModifier::Kind::softcap)
      kernels_.softcap_chain(gradients, inputs_.tiles[m] + inputs_.column, chain[m]->softcap_value());
    else
      chain[m]->chain(tile, inputs_.tiles[m] + inputs_.column, origin);
  }
}

void BackwardBlock::write(float* from, Index stride, const OutputView& to) const {
  store_rows(call_, {from, stride, keys_, to.size(3)}, to, {b_, kv_head_, key_, keys_, 0, 0});
}

namespace {

// What softmax's gradient subtracts in one head's rows.
void prepare_head(const Call& call, BackwardState& state, Index b, Index h) {
  const Index q_len = call.sizes.q_len;
  float* shared = state.shared.data() + call.row_index(b, h, 0);
  call.kernels.row_dots(rows_of(state.forward.out, b, h, 0, q_len), rows_of(state.dout, b, h, 0, q_len), shared);
  for (Index i = 0; state.dlse.given() && i < q_len; ++i) shared[i] -= state.dlse(b, h, i);
}

void prepare_heads(const Call& call, BackwardState& state) {
  const Index q_heads = call.sizes.q_heads, grain = std::max<Index>(1, 512 / std::max<Index>(1, call.sizes.q_len));
  parallel_ranges(call.sizes.batch * q_heads, grain, [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head) prepare_head(call, state, head / q_heads, head % q_heads);
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

// Sums over key blocks need floats; half-precision gradients get memory for them.
Tensor<float> prepare_queries(BackwardState& state) {
  if (state.dq.dtype() == DType::f32) {
    state.dq_sums = {static_cast<float*>(state.dq.data()), state.dq.sizes(), state.dq.strides()};
    return {};
  }
  auto sums = Tensor<float>::uninitialised(shape_of(state.dq));
  state.dq_sums = sums;
  return sums;
}

void start_queries(const BackwardState& state, Index b, Index h) {
  store_zeros(state.dq_sums, {b, h, 0, state.dq.size(2), 0, 0});
}

void finish_queries(const Call& call, const BackwardState& state, Index b, Index h) {
  if (state.dq.dtype() == DType::f32 || state.dq.count() == 0) return;
  store_rows(call, {&state.dq_sums(b, h, 0, 0), state.dq_sums.stride(2), state.dq.size(2), state.dq.size(3)}, state.dq,
             {b, h, 0, state.dq.size(2), 0, 0});
}

// One item per key head, in runs long enough that handing them out costs
// nothing. Heads that need selection pair by pair stream as usual: a short
// head is a single key block, which waits for nobody.
void run_short(const Call& call, BackwardState& state) {
  const Sizes& sizes = call.sizes;
  const Index pairs = std::max<Index>(1, sizes.q_len * sizes.kv_len * sizes.group());
  parallel_ranges(sizes.batch * sizes.kv_heads, std::max<Index>(1, 1024 / pairs), [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head) {
      const Index b = head / sizes.kv_heads, kv_head = head % sizes.kv_heads, first = kv_head * sizes.group();
      for (Index h = first; h < first + sizes.group(); ++h) prepare_head(call, state, b, h);
      if (differentiate_short(call, state, b, kv_head)) continue;
      for (Index h = first; h < first + sizes.group(); ++h) start_queries(state, b, h);
      BackwardBlock(call, state, head).run();
      for (Index h = first; h < first + sizes.group(); ++h) finish_queries(call, state, b, h);
    }
  });
}

void run_streaming(const Call& call, BackwardState& state, Index items) {
  const Index q_heads = call.sizes.q_heads, heads = call.sizes.batch * q_heads;
  prepare_heads(call, state);
  parallel_items(heads, [&](Index head, int) { start_queries(state, head / q_heads, head % q_heads); });
  parallel_items(items, [&](Index item, int) { BackwardBlock(call, state, item).run(); });
  parallel_items(heads, [&](Index head, int) { finish_queries(call, state, head / q_heads, head % q_heads); });
}

AttendGradients run_backward(Call& call, BackwardState& state) {
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
  const Tensor<float> query_sums = prepare_queries(state);
  state.lse = packed(state.forward.lse);
  state.shared = Tensor<float>::uninitialised(state.lse.shape());
  prepare_parameters(call, items, state);
  has_short_gradient(call, state) ? run_short(call, state) : run_streaming(call, state, items);
  if (state.dbias_shared.given())
    for (Index i = 0; i < bias_sums.count(); ++i) result.dbias[i] = static_cast<float>(bias_sums[i]);
  result.dsink = sink_gradient(call, state);
  result.dparameters = parameter_gradients(call, items, state);
  return result;
}

}  // namespace

AttendGradients differentiate(Call& call, const BackwardViews& views) {
  BackwardState state;
  state.dout = views.dout;
  state.forward = views.forward;
  state.dlse = views.dlse;
  state.dq = views.gradients.dq;
  state.dk = views.gradients.dk;
  state.dv = views.gradients.dv;
  return run_backward(call, state);
}

namespace {

void check_gradient_types(const InputView& k, const InputView& v) {
  for (const auto& [name, view] : {std::pair{"k", &k}, std::pair{"v", &v}})
    if (view->dtype() == DType::i8)
      throw ArgumentError(std::string("attend_backward: ") + name + " is int8, which has no gradient");
}

Call checked_call(const InputView& dout, const InputView& q, const InputView& k, const InputView& v,
                  const AttendForward& forward, const AttendOptions& options, View<const float, 3> dlse) {
  Call call = make_call("attend_backward", q, k, v, options);
  check_gradient_types(k, v);
  check_backward(
      "attend_backward", call.sizes,
      {shape_of(dout), shape_of(forward.out), shape_of(forward.lse), dlse.given() ? shape_of(dlse) : Shape{}});
  check_differentiable("attend_backward", options.score);
  return call;
}

void check_gradients(const GradientViews& gradients, const Call& call, const InputView& dout, const InputView& out) {
  const char* name = "attend_backward";
  check_equal(name, "dq", shape_of(gradients.dq), shape_of(call.q));
  check_equal(name, "dk", shape_of(gradients.dk), shape_of(call.k));
  check_equal(name, "dv", shape_of(gradients.dv), shape_of(call.v));
  check_writable(name, "dq", gradients.dq, call.q.dtype());
  check_writable(name, "dk", gradients.dk, call.k.dtype());
  check_writable(name, "dv", gradients.dv, call.v.dtype());
  check_apart(name, {{"dq", gradients.dq}, {"dk", gradients.dk}, {"dv", gradients.dv}});
  for (const NamedOutput& gradient :
       {NamedOutput{"dq", gradients.dq}, NamedOutput{"dk", gradients.dk}, NamedOutput{"dv", gradients.dv}})
    check_apart(name, gradient, {{"q", call.q}, {"k", call.k}, {"v", call.v}, {"dout", dout}, {"out", out}});
}

}  // namespace
}  // namespace regard::detail

namespace regard {

AttendGradients attend_backward_into(const GradientViews& gradients, const InputView& dout, const InputView& q,
                                     const InputView& k, const InputView& v, const AttendForward& forward,
                                     const AttendOptions& options, View<const float, 3> dlse) {
  detail::Call call = detail::checked_call(dout, q, k, v, forward, options, dlse);
  detail::check_gradients(gradients, call, dout, forward.out);
  const detail::BackwardViews views{gradients, dout, forward, dlse};
  if (const auto how = detail::choose_regrouping(call).how) return detail::differentiate_regrouped(call, *how, views);
  return detail::differentiate(call, views);
}

namespace {

template <class T>
BasicAttendGradients<T> backward_as(const InputView& dout, const View<const T, 4>& q, const InputView& k,
                                    const InputView& v, const AttendForward& forward, const AttendOptions& options,
                                    const View<const float, 3>& dlse) {
  const InputView queries(q);
  for (const auto& [name, view] : {std::pair{"k", &k}, std::pair{"v", &v}})
    if (view->dtype() != queries.dtype() && view->dtype() != DType::i8)
      throw ArgumentError(std::string("attend_backward: ") + name + " is " + dtype_name(view->dtype()) + " but q is " +
                          dtype_name(queries.dtype()) + "; attend_backward_into takes gradients of several types");
  auto dq = Tensor<T>::uninitialised(detail::shape_of(q));
  auto dk = Tensor<T>::uninitialised(detail::shape_of(k));
  auto dv = Tensor<T>::uninitialised(detail::shape_of(v));
  AttendGradients rest = attend_backward_into({dq, dk, dv}, dout, q, k, v, forward, options, dlse);
  return {std::move(dq),         std::move(dk),         std::move(dv),
          std::move(rest.dbias), std::move(rest.dsink), std::move(rest.dparameters)};
}

}  // namespace

AttendGradients attend_backward(const InputView& dout, View<const float, 4> q, const InputView& k, const InputView& v,
                                const AttendForward& forward, const AttendOptions& options, View<const float, 3> dlse) {
  return backward_as(dout, q, k, v, forward, options, dlse);
}
BasicAttendGradients<BFloat16> attend_backward(const InputView& dout, View<const BFloat16, 4> q, const InputView& k,
                                               const InputView& v, const AttendForward& forward,
                                               const AttendOptions& options, View<const float, 3> dlse) {
  return backward_as(dout, q, k, v, forward, options, dlse);
}
BasicAttendGradients<Float16> attend_backward(const InputView& dout, View<const Float16, 4> q, const InputView& k,
                                              const InputView& v, const AttendForward& forward,
                                              const AttendOptions& options, View<const float, 3> dlse) {
  return backward_as(dout, q, k, v, forward, options, dlse);
}

}  // namespace regard
