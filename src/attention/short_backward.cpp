#include <algorithm>

#include "attention/short.h"

namespace regard::detail {
namespace {

// A gradient's rows: the caller's own memory, or scratch that is copied there.
struct Target {
  kernels::StridedRows rows;
  bool in_place;
};

// One key head with its group of query heads.
class ShortGradient {
 public:
  ShortGradient(const Call& call, const BackwardState& state, Index b, Index kv_head)
      : call_(call), kernels_(call.kernels), state_(state), b_(b), kv_head_(kv_head), keys_(call.length(b)) {}

  bool run();

 private:
  Spot spot(Index h) const { return {b_, h, 0, call_.sizes.q_len, 0, keys_}; }
  kernels::Matrix keys() const { return rows_of(call_.k, b_, kv_head_, 0, keys_); }
  kernels::Matrix values() const { return rows_of(call_.v, b_, kv_head_, 0, keys_); }
  bool selects() const;
  void carve();
  void meet_head(Index h, bool first);
  const float* drop(const Spot& spot) const;
  Target target(const View<float, 4>& to, Index head, Index rows, float* scratch) const;
  void finish(const Target& target, const View<float, 4>& to, Index head) const;
  void add_transposed(const kernels::Tile& tile, const kernels::Matrix& rows, const Target& to, bool first) const;
  void multiply_keys(const kernels::Tile& gradients, Index h) const;

  const Call& call_;
  const kernels::Kernels& kernels_;
  const BackwardState& state_;
  Index b_, kv_head_, keys_, stride_ = 0;
  float *columns_ = nullptr, *weights_ = nullptr, *gradients_ = nullptr, *keep_ = nullptr;
  float *panels_ = nullptr, *dq_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  std::uint8_t* scratch_ = nullptr;
};

// Whether hidden pairs might meet numbers that are not finite.
bool ShortGradient::selects() const {
  bool hides = false;
  const Index first = kv_head_ * call_.sizes.group();
  for (Index h = first; h < first + call_.sizes.group(); ++h)
    hides |= call_.options.mask.coverage(mask_block(call_, spot(h))) != Coverage::all;
  if (!hides) return false;
  bool finite = kernels_.all_finite(keys()) && kernels_.all_finite(values());
  for (Index h = first; h < first + call_.sizes.group(); ++h)
    finite = finite && kernels_.all_finite(rows_of(call_.q, b_, h, 0, call_.sizes.q_len)) &&
             kernels_.all_finite(rows_of(state_.dout, b_, h, 0, call_.sizes.q_len));
  return !finite;
}

void ShortGradient::carve() {
  const Sizes& sizes = call_.sizes;
  stride_ = kernels::padded(sizes.kv_len, kernels_.lanes);
  const Index widest = kernels::padded(std::max(sizes.head_dim, sizes.value_dim), kernels_.column_tile);
  const Index tile = sizes.q_len * stride_, longest = std::max(sizes.q_len, sizes.kv_len);
  Workspace& workspace = Workspace::of_this_thread();
  Index total = 0;
  for (Index part : {stride_ * widest, tile, tile, tile, tile, longest * widest, sizes.q_len * widest,
                     sizes.kv_len * widest, sizes.kv_len * widest})
    total += Workspace::aligned(part);
  workspace.begin(total);
  columns_ = workspace.floats(stride_ * widest);
  weights_ = workspace.floats(tile);
  gradients_ = workspace.floats(tile);
  keep_ = workspace.floats(tile);
  scratch_ = workspace.bytes(tile);
  panels_ = workspace.floats(longest * widest);
  dq_ = workspace.floats(sizes.q_len * widest);
  dk_ = workspace.floats(sizes.kv_len * widest);
  dv_ = workspace.floats(sizes.kv_len * widest);
}

bool ShortGradient::run() {
  if (keys_ == 0 || selects()) return false;
  carve();
  const Index group = call_.sizes.group();
  for (Index g = 0; g < group; ++g) meet_head(kv_head_ * group + g, g == 0);
  finish(target(state_.dk, kv_head_, keys_, dk_), state_.dk, kv_head_);
  finish(target(state_.dv, kv_head_, keys_, dv_), state_.dv, kv_head_);
  return true;
}

void ShortGradient::meet_head(Index h, bool first) {
  const Spot at = spot(h);
  const kernels::Tile weights{weights_, stride_, at.rows, keys_}, gradients{gradients_, stride_, at.rows, keys_};
  const auto q = rows_of(call_.q, b_, h, 0, at.rows), dout = rows_of(state_.dout, b_, h, 0, at.rows);
  multiply_short(call_, q, keys(), {columns_, call_.scale}, weights);
  finish_scores(call_, at, call_.options.mask.coverage(mask_block(call_, at)), weights, scratch_);
  multiply_short(call_, dout, values(), {columns_, 1.0f}, gradients);
  const Index row = call_.row_index(b_, h, 0);
  kernels_.softmax_gradient(
      {weights, gradients, state_.lse.data() + row, state_.shared.data() + row, drop(at), call_.scale});
  add_transposed(weights, dout, target(state_.dv, kv_head_, keys_, dv_), first);
  add_transposed(gradients, q, target(state_.dk, kv_head_, keys_, dk_), first);
  multiply_keys(gradients, h);
}

const float* ShortGradient::drop(const Spot& at) const {
  if (call_.options.dropout.p == 0) return nullptr;
  kernels_.dropout_factors({keep_, stride_, at.rows, at.keys}, dropout_spot(call_.options.dropout, at));
  return keep_;
}

Target ShortGradient::target(const View<float, 4>& to, Index head, Index rows, float* scratch) const {
  if (writes_in_place(call_, to)) return {{&to(b_, head, 0, 0), to.stride(2), rows, to.size(3)}, true};
  return {{scratch, kernels::padded(to.size(3), kernels_.column_tile), rows, to.size(3)}, false};
}

// Copies what was not written in place, and gives padding its zeros.
void ShortGradient::finish(const Target& from, const View<float, 4>& to, Index head) const {
  for (Index i = 0; i < from.rows.rows && !from.in_place; ++i)
    for (Index d = 0; d < to.size(3); ++d) to(b_, head, i, d) = from.rows.data[i * from.rows.stride + d];
  for (Index i = from.rows.rows; i < to.size(2); ++i)
    for (Index d = 0; d < to.size(3); ++d) to(b_, head, i, d) = 0.0f;
}

// to (+)= tile^T . rows
void ShortGradient::add_transposed(const kernels::Tile& tile, const kernels::Matrix& rows, const Target& to,
                                   bool first) const {
  const RowsAsColumns columns = as_columns(call_, rows, panels_);
  kernels_.product({tile.data, kernels_.row_tile, 1, tile.stride, columns.data, columns.panel, columns.depth,
                    to.rows.data, to.rows.stride, tile.keys, rows.depth, tile.rows, !first});
}

// dq = gradients . keys
void ShortGradient::multiply_keys(const kernels::Tile& gradients, Index h) const {
  const Target to = target(state_.dq, h, gradients.rows, dq_);
  const RowsAsColumns columns = as_columns(call_, keys(), panels_);
  kernels_.product({gradients.data, kernels_.row_tile * gradients.stride, gradients.stride, 1, columns.data,
                    columns.panel, columns.depth, to.rows.data, to.rows.stride, gradients.rows, call_.sizes.head_dim,
                    gradients.keys, false});
  finish(to, state_.dq, h);
}

}  // namespace

bool has_short_gradient(const Call& call, const BackwardState& state) {
  const Sizes& sizes = call.sizes;
  const bool nothing = sizes.q_len == 0 || sizes.q_heads == 0 || sizes.kv_len == 0 || sizes.value_dim == 0;
  return !nothing && is_short(call) && state.dout.stride(3) == 1 && !changes_scores(call);
}

bool differentiate_short(const Call& call, const BackwardState& state, Index b, Index kv_head) {
  return ShortGradient(call, state, b, kv_head).run();
}

}  // namespace regard::detail
