#include <algorithm>

#include "attention/panels.h"
#include "attention/short.h"

namespace regard::detail {
namespace {

// A gradient's rows: the caller's own memory, or scratch that is copied there.
struct Target {
  kernels::StridedRows rows;
  bool in_place;
};

struct Buffers {
  float *queries, *dout, *columns, *weights, *gradients, *keep, *panels, *dq, *dk, *dv;
  std::uint8_t* scratch;
};

Buffers carve(const Call& call, const BackwardState& state, Layout& layout) {
  const Sizes& sizes = call.sizes;
  const Index stride = kernels::padded(sizes.kv_len, call.kernels.lanes), tile = sizes.q_len * stride;
  const Index widest = kernels::padded(std::max(sizes.head_dim, sizes.value_dim), call.kernels.column_tile);
  Buffers buffers;
  buffers.queries = layout.floats(widened_floats(call.q));
  buffers.dout = layout.floats(widened_floats(state.dout));
  buffers.columns = layout.floats(stride * widest);
  buffers.weights = layout.floats(tile);
  buffers.gradients = layout.floats(tile);
  buffers.keep = layout.floats(tile);
  buffers.panels = layout.floats(std::max(sizes.q_len, sizes.kv_len) * widest);
  buffers.dq = layout.floats(sizes.q_len * widest);
  buffers.dk = layout.floats(sizes.kv_len * widest);
  buffers.dv = layout.floats(sizes.kv_len * widest);
  buffers.scratch = layout.bytes(tile);
  return buffers;
}

// One key head with its group of query heads.
class ShortGradient {
 public:
  ShortGradient(const Call& call, const BackwardState& state, Index b, Index kv_head)
      : call_(call),
        kernels_(call.kernels),
        state_(state),
        b_(b),
        kv_head_(kv_head),
        keys_(call.length(b)),
        stride_(kernels::padded(call.sizes.kv_len, call.kernels.lanes)) {}

  bool run();

 private:
  Spot spot(Index h) const { return {b_, h, 0, call_.sizes.q_len, 0, keys_}; }
  kernels::Matrix keys() const { return rows_of(call_.k, b_, kv_head_, 0, keys_); }
  kernels::Matrix values() const { return rows_of(call_.v, b_, kv_head_, 0, keys_); }
  bool selects() const;
  void meet_head(Index h, bool first);
  const float* drop(const Spot& spot) const;
  Target target(const OutputView& to, Index head, Index rows, float* scratch) const;
  void finish(const Target& target, const OutputView& to, Index head) const;
  void add_transposed(const kernels::Tile& tile, const kernels::Matrix& rows, const Target& to, bool first);
  void multiply_keys(const kernels::Tile& gradients, Index h);
  void ask_for_head_after(Index h);
  Index steps_of_head() const;

  const Call& call_;
  const kernels::Kernels& kernels_;
  const BackwardState& state_;
  Index b_, kv_head_, keys_, stride_;
  Buffers memory_ = {};
  kernels::Ahead ahead_;
};

// Whether hidden pairs might meet numbers that are not finite. Without a mask only
// an infinite query or key hides a pair, by a score of -inf.
bool ShortGradient::selects() const {
  bool hides = false, finite = kernels_.all_finite(keys());
  const Index first = kv_head_ * call_.sizes.group();
  for (Index h = first; h < first + call_.sizes.group(); ++h) {
    hides |= call_.options.mask.coverage(mask_block(call_, spot(h))) != Coverage::all;
    finite = finite && kernels_.all_finite(rows_of(call_.q, b_, h, 0, call_.sizes.q_len));
  }
  if (!hides || !finite) return !finite;
  finite = kernels_.all_finite(values());
  for (Index h = first; h < first + call_.sizes.group(); ++h)
    finite = finite && kernels_.all_finite(rows_of(state_.dout, b_, h, 0, call_.sizes.q_len));
  return !finite;
}

bool ShortGradient::run() {
  if (keys_ == 0 || selects()) return false;
  memory_ = Workspace::carved([&](Layout& layout) { return carve(call_, state_, layout); });
  const Index group = call_.sizes.group();
  for (Index g = 0; g < group; ++g) meet_head(kv_head_ * group + g, g == 0);
  finish(target(state_.dk, kv_head_, keys_, memory_.dk), state_.dk, kv_head_);
  finish(target(state_.dv, kv_head_, keys_, memory_.dv), state_.dv, kv_head_);
  return true;
}

// Of the five products.
Index ShortGradient::steps_of_head() const {
  const Sizes& sizes = call_.sizes;
  const auto steps = kernels_.product_steps;
  return 2 * steps(sizes.q_len, keys_) + steps(keys_, sizes.head_dim) + steps(keys_, sizes.value_dim) +
         steps(sizes.q_len, sizes.head_dim);
}

// What the query head after this one reads and writes.
void ShortGradient::ask_for_head_after(Index h) {
  const Sizes& sizes = call_.sizes;
  const Index next = b_ * sizes.q_heads + h + 1;
  ahead_ = {};
  if (next == sizes.batch * sizes.q_heads || !asks_ahead(call_, Pass::backward)) return;
  const Index b = next / sizes.q_heads, head = next % sizes.q_heads, group = call_.kv_head(head);
  const auto write = [&](const OutputView& to, Index to_head) {
    ahead_.write({element_of(to, b, to_head, 0), to.stride(2), to.dtype()}, to.size(2), to.size(3));
  };
  ahead_.read(rows_of(state_.forward.out, b, head, 0, sizes.q_len));
  ahead_.read(rows_of(state_.dout, b, head, 0, sizes.q_len));
  ahead_.read(rows_of(call_.q, b, head, 0, sizes.q_len));
  write(state_.dq, head);
  if (head % sizes.group() == 0) {
    ahead_.read(rows_of(call_.k, b, group, 0, call_.length(b)));
    ahead_.read(rows_of(call_.v, b, group, 0, call_.length(b)));
    write(state_.dk, group);
    write(state_.dv, group);
  }
  ahead_.spread_over(steps_of_head());
}

void ShortGradient::meet_head(Index h, bool first) {
  ask_for_head_after(h);
  const Spot at = spot(h);
  const kernels::Tile weights{memory_.weights, stride_, at.rows, keys_},
      gradients{memory_.gradients, stride_, at.rows, keys_};
  const auto q = as_floats(call_, rows_of(call_.q, b_, h, 0, at.rows), memory_.queries);
  const auto dout = as_floats(call_, rows_of(state_.dout, b_, h, 0, at.rows), memory_.dout);
  multiply_short(call_, q, keys(), {memory_.columns, call_.scale}, weights, &ahead_);
  finish_scores(call_, at, one_panel(at, call_.options.mask.coverage(mask_block(call_, at))), weights, memory_.scratch);
  multiply_short(call_, dout, values(), {memory_.columns, 1.0f}, gradients, &ahead_);
  const Index row = call_.row_index(b_, h, 0);
  kernels_.softmax_gradient(
      {weights, gradients, state_.lse.data() + row, state_.shared.data() + row, drop(at), call_.scale});
  add_transposed(weights, dout, target(state_.dv, kv_head_, keys_, memory_.dv), first);
  add_transposed(gradients, q, target(state_.dk, kv_head_, keys_, memory_.dk), first);
  multiply_keys(gradients, h);
}

const float* ShortGradient::drop(const Spot& at) const {
  if (call_.options.dropout.p == 0) return nullptr;
  kernels_.dropout_factors({memory_.keep, stride_, at.rows, at.keys}, dropout_spot(call_.options.dropout, at));
  return memory_.keep;
}

Target ShortGradient::target(const OutputView& to, Index head, Index rows, float* scratch) const {
  if (writes_in_place(call_, to))
    return {{static_cast<float*>(element_of(to, b_, head, 0)), to.stride(2), rows, to.size(3)}, true};
  return {{scratch, kernels::padded(to.size(3), kernels_.column_tile), rows, to.size(3)}, false};
}

// Copies what was not written in place, and gives padding its zeros.
void ShortGradient::finish(const Target& from, const OutputView& to, Index head) const {
  const Index written = from.rows.rows;
  if (!from.in_place) store_rows(call_, from.rows, to, {b_, head, 0, written, 0, 0});
  store_zeros(to, {b_, head, written, to.size(2) - written, 0, 0});
}

// to (+)= tile^T . rows
void ShortGradient::add_transposed(const kernels::Tile& tile, const kernels::Matrix& rows, const Target& to,
                                   bool first) {
  const RowsAsColumns columns = as_columns(call_, rows, memory_.panels);
  kernels_.product({tile.data, 1, tile.stride, columns.data, columns.panel, columns.depth, to.rows.data, to.rows.stride,
                    tile.keys, rows.depth, tile.rows, !first, &ahead_});
}

// dq = gradients . keys
void ShortGradient::multiply_keys(const kernels::Tile& gradients, Index h) {
  const Target to = target(state_.dq, h, gradients.rows, memory_.dq);
  const RowsAsColumns columns = as_columns(call_, keys(), memory_.panels);
  kernels_.product({gradients.data, gradients.stride, 1, columns.data, columns.panel, columns.depth, to.rows.data,
                    to.rows.stride, gradients.rows, call_.sizes.head_dim, gradients.keys, false, &ahead_});
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
