#include "attention/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attention/panels.h"
#include "attention/rows.h"
#include "attention/short.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr Index most_rows = 8, most_queries = 4;
// Running softmax of one split: [rows] statistics and [rows, width] sums.
struct Partial {
  float *max, *sum, *spread, *out;
};

Index rows_of_group(const Call& call) { return call.sizes.group() * call.sizes.q_len; }
Index padded_width(const Call& call) { return kernels::padded(call.sizes.value_dim, call.kernels.lanes); }
Index splits_of(const Call& call) { return std::max<Index>(1, (call.sizes.kv_len + decode_split - 1) / decode_split); }

// Floats of one partial result, whose sums come first and start on a cache line.
Index partial_floats(const Call& call) {
  constexpr Index line = 16;
  return kernels::padded(rows_of_group(call) * (3 + padded_width(call)), line);
}

// Where partial results of all splits of all key heads lie.
class Partials {
 public:
  explicit Partials(const Call& call)
      : rows_(rows_of_group(call)),
        width_(padded_width(call)),
        floats_(partial_floats(call)),
        memory_(static_cast<std::size_t>(decode_partials(call))) {}
  Index rows() const { return rows_; }
  Index width() const { return width_; }
  Partial of(Index item) {
    float* out = memory_.data() + item * floats_;
    float* max = out + rows_ * width_;
    return {max, max + rows_, max + 2 * rows_, out};
  }

 private:
  Index rows_, width_, floats_;
  AlignedVector<float> memory_;
};

struct DecodeBuffers {
  float *queries, *scores, *values;
  std::uint8_t* scratch;
};

DecodeBuffers carve(const Call& call, Layout& layout) {
  const Index rows = rows_of_group(call), tile = rows * decode_block;
  DecodeBuffers buffers;
  buffers.queries = layout.floats(rows * call.sizes.head_dim);
  buffers.scores = layout.floats(tile);
  buffers.values = layout.floats(call.v.dtype() == DType::f32 ? 0 : decode_block * padded_width(call));
  buffers.scratch = layout.bytes(tile);
  return buffers;
}

// One split of the keys of one key head.
class DecodeSplit {
 public:
  DecodeSplit(const Call& call, Index b, Index kv_head, Partial partial, Index width)
      : call_(call), kernels_(call.kernels), b_(b), kv_head_(kv_head), partial_(partial), width_(width) {}

  void run(Index begin, Index end);

 private:
  Index rows() const { return rows_of_group(call_); }
  void gather_queries();
  void meet_block(Index key, Index keys);
  void meet_keys(Index key, Index keys, Index before);
  void weigh_selected(const kernels::Tile& weights, const kernels::Matrix& v, Index before);
  // Asks the mask about every head; the most that anybody sees.
  Coverage look(Index key, Index keys);
  // Brings nearer what the next key head will read.
  void ask_for_next(const InputView& x) const;
  // Modifiers, bias and mask, head by head.
  void finish(Index key, Index keys);
  void drop(const kernels::Tile& weights, Index key);

  const Call& call_;
  const kernels::Kernels& kernels_;
  Index b_, kv_head_;
  Partial partial_;
  Index width_;
  DecodeBuffers memory_ = {};
  std::array<Coverage, most_rows> coverage_ = {};  // of the block at hand, per head of the group
};

// Scaled, head after head.
void DecodeSplit::gather_queries() {
  const Index dim = call_.sizes.head_dim, q_len = call_.sizes.q_len, first = kv_head_ * call_.sizes.group();
  for (Index g = 0; g < call_.sizes.group(); ++g)
    kernels_.widen_rows(rows_of(call_.q, b_, first + g, 0, q_len), memory_.queries + g * q_len * dim, dim);
  kernels_.scale({memory_.queries, dim, rows(), dim}, call_.scale);
}

void DecodeSplit::run(Index begin, Index end) {
  std::fill_n(partial_.max, rows(), -infinity);
  std::fill_n(partial_.sum, rows(), 0.0f);
  std::fill_n(partial_.spread, rows(), 0.0f);
  std::fill_n(partial_.out, rows() * width_, 0.0f);
  if (begin >= end) return;
  memory_ = Workspace::carved([&](Layout& layout) { return carve(call_, layout); });
  gather_queries();
  for (Index key = begin; key < end; key += decode_block) meet_block(key, std::min(decode_block, end - key));
}

// Without the pieces at either end that nobody sees.
void DecodeSplit::meet_block(Index key, Index keys) {
  constexpr Index piece = 128;
  const Coverage seen = look(key, keys);
  if (seen == Coverage::none) return;
  Index first = 0, end = keys;
  if (seen == Coverage::some) {
    while (first + piece < end && look(key + first, piece) == Coverage::none) first += piece;
    for (Index last = (end - 1) / piece * piece; last > first && look(key + last, end - last) == Coverage::none;
         last -= piece)
      end = last;
    look(key + first, end - first);
  }
  meet_keys(key + first, end - first, first);
}

void DecodeSplit::meet_keys(Index key, Index keys, Index before) {
  const kernels::Tile scores{memory_.scores, decode_block, rows(), keys};
  ask_for_next(call_.k);
  kernels_.dot_rows({memory_.queries, rows(), call_.sizes.head_dim, call_.sizes.head_dim, 1},
                    rows_of(call_.k, b_, kv_head_, key, keys), scores);
  finish(key, keys);
  // Whether pairs must be told apart, because a hidden one meets a value that is
  // not finite. Scores are few beside values: they are looked at first.
  const auto v = rows_of(call_.v, b_, kv_head_, key, keys);
  const bool select = !kernels_.all_visible(scores) && !kernels_.all_finite(v);
  if (select) kernels_.mark_visible(scores, memory_.scratch, decode_block);
  kernels_.softmax_step({scores, partial_.max, partial_.sum, call_.options.observe.entropy ? partial_.spread : nullptr,
                         partial_.out, width_, call_.sizes.value_dim});
  drop(scores, key);
  if (call_.sizes.value_dim == 0) return;
  ask_for_next(call_.v);
  if (!select) return kernels_.weigh_rows(scores, v, before, partial_.out, width_);
  weigh_selected(scores, v, before);
}

// Pair by pair, in the order and with the roundings of weigh_rows.
void DecodeSplit::weigh_selected(const kernels::Tile& weights, const kernels::Matrix& v, Index before) {
  static constexpr float one = 1.0f;
  kernels::Matrix unscaled = v;
  if (v.row_scales) {
    unscaled.row_scales = &one;
    unscaled.scale_stride = 0;
    for (Index r = 0; r < weights.rows; ++r)
      for (Index j = 0; j < weights.keys; ++j)
        if (memory_.scratch[r * weights.stride + j])
          weights.data[r * weights.stride + j] *= v.row_scales[j * v.scale_stride];
  }
  const auto values = as_floats(call_, unscaled, memory_.values);
  kernels::for_value_groups(before, v.rows, [&](Index first, Index keys) {
    kernels_.product_selected(
        {weights.data + first, weights.stride, kernels::value_run, values.floats() + first * values.row_stride,
         kernels_.column_tile, kernels::value_run * values.row_stride, partial_.out, width_, weights.rows, v.depth,
         keys, true},
        {memory_.scratch + first, weights.stride, kernels::value_run});
  });
}

// Only where a head's rows end before hardware follows them. (Measured from memory:
// 40 % less time for 32 rows of 32 floats; 20 % more for 64 of 64.)
void DecodeSplit::ask_for_next(const InputView& x) const {
  constexpr Index few = 4096;  // bytes
  const Index next = b_ * call_.sizes.kv_heads + kv_head_ + 1, b = next / call_.sizes.kv_heads;
  if (x.size(2) * x.size(3) * kernels::stored_bytes(x.dtype()) > few || b == call_.sizes.batch) return;
  ask_for_rows(rows_of(x, b, next % call_.sizes.kv_heads, 0, call_.length(b)));
}

Coverage DecodeSplit::look(Index key, Index keys) {
  bool any = false, whole = true;
  for (Index g = 0; g < call_.sizes.group(); ++g) {
    const Spot spot{b_, kv_head_ * call_.sizes.group() + g, 0, call_.sizes.q_len, key, keys};
    Coverage& coverage = coverage_[static_cast<std::size_t>(g)];
    coverage = call_.options.mask.coverage(mask_block(call_, spot));
    any |= coverage != Coverage::none;
    whole &= coverage == Coverage::all;
  }
  return !any ? Coverage::none : whole ? Coverage::all : Coverage::some;
}

void DecodeSplit::finish(Index key, Index keys) {
  const Index q_len = call_.sizes.q_len, first = kv_head_ * call_.sizes.group();
  for (Index g = 0; g < call_.sizes.group(); ++g) {
    const Spot spot{b_, first + g, 0, q_len, key, keys};
    const Coverage coverage = coverage_[static_cast<std::size_t>(g)];
    const Index offset = g * q_len * decode_block;
    finish_scores(call_, spot, one_panel(spot, coverage), {memory_.scores + offset, decode_block, q_len, keys},
                  memory_.scratch + offset);
  }
}

void DecodeSplit::drop(const kernels::Tile& weights, Index key) {
  const Index q_len = call_.sizes.q_len;
  for (Index g = 0; g < call_.sizes.group(); ++g) {
    const Spot spot{b_, kv_head_ * call_.sizes.group() + g, 0, q_len, key, weights.keys};
    drop_weights(call_, spot, {weights.data + g * q_len * decode_block, decode_block, q_len, weights.keys});
  }
}

// into = into + other, both relative to their own maxima.
void merge(const Partial& into, const Partial& other, Index rows, Index width) {
  for (Index i = 0; i < rows; ++i) {
    const float top = std::max(into.max[i], other.max[i]);
    if (top == -infinity) {
      into.sum[i] += other.sum[i];  // 0, or NaN where all that is visible is NaN
      continue;
    }
    const auto factor = [&](float max) { return max == -infinity ? 0.0f : std::exp(max - top); };
    const auto moved = [&](const Partial& part) {
      const float f = factor(part.max[i]);
      return f == 0.0f ? 0.0f : f * (part.spread[i] + part.sum[i] * (part.max[i] - top));
    };
    const float ours = factor(into.max[i]), theirs = factor(other.max[i]);
    into.spread[i] = moved(into) + moved(other);
    into.sum[i] = into.sum[i] * ours + other.sum[i] * theirs;
    into.max[i] = top;
    float* to = into.out + i * width;
    const float* from = other.out + i * width;
    for (Index d = 0; d < width; ++d) to[d] = to[d] * ours + from[d] * theirs;
  }
}

// What one key head's splits came to, as rows of the result.
void finish_head(const Call& call, RowStatistics& rows, const Partial& all, Index head, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  const Index b = head / sizes.kv_heads, first = head % sizes.kv_heads * sizes.group();
  const Index width = padded_width(call);
  for (Index g = 0; g < sizes.group(); ++g) {
    const Index at = call.row_index(b, first + g, 0), offset = g * sizes.q_len;
    std::copy_n(all.max + offset, sizes.q_len, rows.max.data() + at);
    std::copy_n(all.sum + offset, sizes.q_len, rows.sum.data() + at);
    if (!rows.spread.empty()) std::copy_n(all.spread + offset, sizes.q_len, rows.spread.data() + at);
    write_rows(call, rows, {b, first + g, 0, sizes.q_len, 0, 0},
               {all.out + offset * width, width, sizes.q_len, sizes.value_dim}, out);
  }
}

}  // namespace

bool is_decoding(const Call& call) {
  const Sizes& sizes = call.sizes;
  const bool unit = call.k.stride(3) == 1 && call.v.stride(3) == 1;
  const bool whole = sizes.head_dim % call.kernels.lanes == 0 && sizes.value_dim % call.kernels.lanes == 0;
  const Index rows = sizes.group() * sizes.q_len;
  return unit && whole && rows > 0 && rows <= most_rows && sizes.q_len <= most_queries;
}

Index decode_items(const Call& call) { return call.sizes.batch * call.sizes.kv_heads * splits_of(call); }

Index decode_workspace(const Call& call) {
  Layout counting;
  carve(call, counting);
  return counting.used();
}

Index decode_partials(const Call& call) { return decode_items(call) * partial_floats(call); }

void run_decode(const Call& call, RowStatistics& rows, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  const Index splits = splits_of(call), heads = sizes.batch * sizes.kv_heads;
  Partials partials(call);
  const Index grain = std::max<Index>(1, 2048 / std::max<Index>(1, sizes.kv_len * partials.rows()));
  parallel_ranges(heads * splits, grain, [&](Index begin, Index end) {
    for (Index item = begin; item < end; ++item) {
      const Index head = item / splits, b = head / sizes.kv_heads, key = item % splits * decode_split;
      DecodeSplit(call, b, head % sizes.kv_heads, partials.of(item), partials.width())
          .run(key, std::min(key + decode_split, call.length(b)));
    }
  });
  parallel_ranges(heads, std::max<Index>(1, 64 / partials.rows()), [&](Index begin, Index end) {
    for (Index head = begin; head < end; ++head) {
      const Partial all = partials.of(head * splits);
      for (Index split = 1; split < splits; ++split)
        merge(all, partials.of(head * splits + split), partials.rows(), partials.width());
      finish_head(call, rows, all, head, out);
    }
  });
}

}  // namespace regard::detail
