// One call as the kernels' drivers see it: checked sizes, views, tile sizes.
#pragma once

#include <vector>

#include "attention/kernels/kernels.h"
#include "attention/problem.h"
#include "attention/workspace.h"
#include "regard/attend.h"
#include "regard/random.h"

namespace regard::detail {

// Rows and keys of the tiles. Key blocks decide the order of sums, so they
// depend on head_dim and value_dim only; rows may follow caches and threads.
struct Tiling {
  Index key_block;    // keys per tile
  Index chunk_rows;   // rows whose scores are in flight at once
  Index query_block;  // rows that share packed keys (forward)
};

constexpr Index widest_key_block = 192;

struct Call {
  Sizes sizes;
  InputView q, k, v;
  const AttendOptions& options;
  View<const float, 4> bias;  // broadcast
  float scale;
  Tiling tiling;
  const kernels::Kernels& kernels;

  Index length(Index b) const { return length_of(options, sizes, b); }
  Index q_start(Index b) const { return options.q_start.of(b, sizes.q_len, sizes.kv_len); }
  Index kv_head(Index h) const { return h / sizes.group(); }
  Index row_index(Index b, Index h, Index i) const { return (b * sizes.q_heads + h) * sizes.q_len + i; }
  // Width of a tile row in memory.
  Index tile_stride() const { return kernels::padded(tiling.key_block, kernels.column_tile); }
};

// Whether anything but scale and mask comes between q . k and the softmax.
inline bool changes_scores(const Call& call) {
  return call.options.bias.given() || !call.options.score.chain().empty();
}

Call make_call(const char* name, const InputView& q, const InputView& k, const InputView& v,
               const AttendOptions& options);
Tiling forward_tiling(const Sizes& sizes, const kernels::Kernels& kernels);
Tiling backward_tiling(const Sizes& sizes, const kernels::Kernels& kernels);

// Scratch floats of one thread's forward block.
Index forward_workspace(const Call& call);

// A tile's place: rows of one query head against keys of its key head.
struct Spot {
  Index b, h, row, rows, key, keys;
};

inline MaskBlock mask_block(const Call& call, const Spot& s) {
  return {s.b, s.h, s.row, s.rows, s.key, s.keys, call.q_start(s.b)};
}

// Where a tile's dropout factors are drawn, the same forward and backward.
inline kernels::Kernels::DropoutSpot dropout_spot(const Dropout& dropout, const Spot& s) {
  return {static_cast<std::uint32_t>(s.row),
          static_cast<std::uint32_t>(s.h),
          static_cast<std::uint32_t>(s.b),
          s.key,
          dropout.seed,
          dropout_threshold(dropout.p),
          static_cast<float>(1.0 / (1.0 - dropout.p))};
}

inline kernels::Matrix rows_of(const InputView& x, Index b, Index h, Index row, Index rows) {
  const Index offset = b * x.stride(0) + h * x.stride(1) + row * x.stride(2);
  const char* first = static_cast<const char*>(x.data()) + offset * kernels::stored_bytes(x.dtype());
  kernels::Matrix matrix{first, rows, x.size(3), x.stride(2), x.stride(3), x.dtype()};
  if (x.dtype() == DType::i8) {
    matrix.row_scales = &x.scales()(b, h, row);
    matrix.scale_stride = x.scales().stride(2);
  }
  return matrix;
}

// Rows of a result, wherever and as whatever they are stored.
inline void* element_of(const OutputView& x, Index b, Index h, Index row) {
  const Index offset = b * x.stride(0) + h * x.stride(1) + row * x.stride(2);
  return static_cast<char*>(x.data()) + offset * kernels::stored_bytes(x.dtype());
}
// from [rows, cols] becomes rows [row, row + from.rows) of one head of `to`.
void store_rows(const Call& call, const kernels::StridedRows& from, const OutputView& to, const Spot& first);
void store_zeros(const OutputView& to, const Spot& rows);
// Whether kernels may write or add to rows of x as float vectors.
inline bool has_float_rows(const OutputView& x) { return x.dtype() == DType::f32 && x.stride(3) == 1; }

// What finish_scores keeps for a backward pass: the score each modifier saw.
struct ModifierInputs {
  std::vector<float*> tiles;  // one per modifier, laid out like the score tile
  Index column = 0;           // where the scores at hand stand in it
};

struct PanelCoverage;
// Raw products become final scores: modifiers, bias, mask (-inf where hidden).
// `scratch` holds rows x stride bytes.
void finish_scores(const Call& call, const Spot& spot, const PanelCoverage& panels, const kernels::Tile& scores,
                   std::uint8_t* scratch, const ModifierInputs* inputs = nullptr);

// Bring nearer what will be read soon: the bias of a tile, whose rows are short
// pieces of long ones, which hardware does not foresee; rows of k or v.
void ask_for_bias(const Call& call, const Spot& next);
void ask_for_rows(const kernels::Matrix& rows);

// Weights times their dropout factors, if there is dropout.
void drop_weights(const Call& call, const Spot& spot, const kernels::Tile& weights);

// Only the leading soft cap, if there is one.
void cap_scores(const Call& call, const kernels::Tile& scores);

// What a forward pass knows about each row, [batch, q_heads, q_len].
struct RowStatistics {
  Tensor<float> max, sum, spread;    // spread is empty unless entropy was asked for; sums include no sink
  Tensor<float> largest_score = {};  // empty unless asked for; no sink
};

RowStatistics make_rows(const Call& call);

// The forward pass of a call that neither decodes nor is regrouped: rows and out.
void run_tiles(Call& call, RowStatistics& rows, const OutputView& out);

// Fills in what observing asks for beyond statistics of rows.
void observe_scores(const Call& call, const RowStatistics& rows, AttendResult& result);

}  // namespace regard::detail
