#include "attention/call.h"

#include <algorithm>
#include <cstring>

#include "attention/panels.h"
#include "regard/cpu.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// Scores in flight: row chunks of 24 suit register tiles of 6 and 12 rows.
constexpr Index chunk = 24;

Index key_block_for(const Sizes& sizes) {
  return std::max(sizes.head_dim, sizes.value_dim) <= 128 ? widest_key_block : widest_key_block / 2;
}

Index whole_chunks(Index rows, Index chunk_rows) { return kernels::padded(std::max<Index>(rows, 1), chunk_rows); }

}  // namespace

Tiling forward_tiling(const Sizes& sizes, const kernels::Kernels&) {
  static const CacheSizes caches = cache_sizes();
  // Packed keys and values stay in the second-level cache while queries and
  // output accumulators pass by, which may be some times larger: the more of them
  // share what was packed, the less packing shows. Enough blocks for every
  // thread, though.
  const Index row_bytes = 4 * (sizes.head_dim + sizes.value_dim);
  const Index fitting = std::clamp<Index>(2 * caches.l2 / row_bytes, 4 * chunk, 128 * chunk);
  const Index heads = std::max<Index>(1, sizes.batch * sizes.q_heads);
  const Index wanted_blocks = (4 * threads() + heads - 1) / heads;
  const Index shared = std::max<Index>(4 * chunk, sizes.q_len / wanted_blocks);
  return {key_block_for(sizes), chunk, whole_chunks(std::min({fitting, shared, sizes.q_len}), chunk)};
}

Tiling backward_tiling(const Sizes& sizes, const kernels::Kernels&) {
  const Index keys = std::max(sizes.head_dim, sizes.value_dim) <= 128 ? 128 : 64;
  return {keys, 2 * chunk, 2 * chunk};
}

Call make_call(const char* name, const InputView& q, const InputView& k, const InputView& v,
               const AttendOptions& options) {
  const Sizes sizes = check_shapes(name, q.sizes(), k.sizes(), v.sizes());
  check_types(name, q);
  check_options(name, sizes, options);
  return {sizes, q, k, v, options, broadcast(options.bias), scale_of(options, sizes), {}, kernels::active()};
}

void store_rows(const Call& call, const kernels::StridedRows& from, const OutputView& to, const Spot& first) {
  if (from.rows == 0 || from.cols == 0) return;
  void* rows = element_of(to, first.b, first.h, first.row);
  if (to.stride(3) == 1) return call.kernels.narrow_rows(from, {rows, to.stride(2), to.dtype()});
  for (Index i = 0; i < from.rows; ++i)
    for (Index d = 0; d < from.cols; ++d) {
      const float value = from.data[i * from.stride + d];
      const Index at = i * to.stride(2) + d * to.stride(3);
      switch (to.dtype()) {
        case DType::bf16: static_cast<std::uint16_t*>(rows)[at] = bfloat16_from(value); break;
        case DType::f16: static_cast<std::uint16_t*>(rows)[at] = float16_from(value); break;
        default: static_cast<float*>(rows)[at] = value;
      }
    }
}

// Zero is zero bits in every type.
void store_zeros(const OutputView& to, const Spot& rows) {
  const Index bytes = kernels::stored_bytes(to.dtype());
  for (Index i = 0; i < rows.rows; ++i) {
    auto* row = static_cast<char*>(element_of(to, rows.b, rows.h, rows.row + i));
    for (Index d = 0; d < to.size(3); ++d)
      std::memset(row + d * to.stride(3) * bytes, 0, static_cast<std::size_t>(bytes));
  }
}

void ask_for_rows(const kernels::Matrix& rows) {
  constexpr Index line = 64;
  if (rows.depth_stride != 1) return;
  const Index element = kernels::stored_bytes(rows.dtype);
  for (Index i = 0; i < rows.rows; ++i) {
    const char* row = static_cast<const char*>(rows.data) + i * rows.row_stride * element;
    for (Index at = 0; at < rows.depth * element; at += line) __builtin_prefetch(row + at, 0, 2);
  }
}

void ask_for_bias(const Call& call, const Spot& next) {
  if (!call.bias.given() || call.bias.stride(2) == 0) return;
  ask_for_rows(
      {&call.bias(next.b, next.h, next.row, next.key), next.rows, next.keys, call.bias.stride(2), call.bias.stride(3)});
}

void drop_weights(const Call& call, const Spot& spot, const kernels::Tile& weights) {
  if (call.options.dropout.p > 0) call.kernels.dropout(weights, dropout_spot(call.options.dropout, spot));
}

void cap_scores(const Call& call, const kernels::Tile& scores) {
  const auto& chain = call.options.score.chain();
  if (!chain.empty() && chain.front()->kind() == ScoreModifier::Kind::softcap)
    call.kernels.softcap(scores, chain.front()->softcap_value());
}

namespace {

// Returns true if the modifier hid a pair by returning -inf.
bool apply_modifier(const Call& call, const ScoreModifier& modifier, const kernels::Tile& scores,
                    const TileOrigin& origin) {
  switch (modifier.kind()) {
    case ScoreModifier::Kind::softcap: call.kernels.softcap(scores, modifier.softcap_value()); return false;
    case ScoreModifier::Kind::alibi:
      call.kernels.alibi(scores, modifier.slopes()[static_cast<std::size_t>(origin.head)],
                         static_cast<std::int32_t>(origin.query - origin.key));
      return false;
    case ScoreModifier::Kind::user: break;
  }
  return modifier.apply(
      {scores.data, scores.stride, static_cast<std::int32_t>(scores.rows), static_cast<std::int32_t>(scores.keys)},
      origin);
}

// A later modifier could turn the -inf of an earlier one into a number, so
// pairs hidden on the way are remembered in `visible` and hidden at the end.
void merge_hidden(const kernels::Tile& scores, std::uint8_t* visible, bool first) {
  for (Index i = 0; i < scores.rows; ++i)
    for (Index j = 0; j < scores.keys; ++j) {
      const std::uint8_t seen = scores.data[i * scores.stride + j] != -std::numeric_limits<float>::infinity();
      std::uint8_t& flag = visible[i * scores.stride + j];
      flag = first ? seen : flag & seen;
    }
}

}  // namespace

void finish_scores(const Call& call, const Spot& spot, const PanelCoverage& panels, const kernels::Tile& scores,
                   std::uint8_t* scratch, const ModifierInputs* inputs) {
  const TileOrigin origin{spot.b, spot.h, spot.row, call.q_start(spot.b) + spot.row, spot.key};
  const auto& chain = call.options.score.chain();
  bool hidden_by_modifier = false;
  for (std::size_t m = 0; m < chain.size(); ++m) {
    if (inputs)
      for (Index i = 0; i < scores.rows; ++i)
        std::copy_n(scores.data + i * scores.stride, scores.keys,
                    inputs->tiles[m] + inputs->column + i * scores.stride);
    if (!apply_modifier(call, *chain[m], scores, origin)) continue;
    merge_hidden(scores, scratch, !hidden_by_modifier);
    hidden_by_modifier = true;
  }
  if (call.bias.given())
    call.kernels.add_bias(scores, &call.bias(spot.b, spot.h, spot.row, spot.key), call.bias.stride(2),
                          call.bias.stride(3));
  // After the bias, whose +inf would turn -inf into NaN.
  if (hidden_by_modifier) call.kernels.hide(scores, scratch, scores.stride);
  hide_pairs(call, spot, panels, scores, scratch);
}

}  // namespace regard::detail
