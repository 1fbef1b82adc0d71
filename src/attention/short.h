// Sequences of up to 64 queries and keys: all scores of a head fit in one tile,
// so nothing but the keys is packed, and outputs are written in place. Short
// problems are bound by set-up and packing, not by arithmetic.
#pragma once

#include "attention/backward.h"
#include "attention/call.h"
#include "attention/kernels/ahead.h"

namespace regard::detail {

constexpr Index short_length = 64;

// Where keys are turned round, and what multiplies them on the way.
struct KeyColumns {
  float* memory;  // [depth, tile stride]
  float scale;
};
// tile = rows . (scale * keys)^T, rows read where they lie. True if the keys are finite.
// `ahead` goes on with every register tile.
bool multiply_short(const Call& call, const kernels::Matrix& rows, const kernels::Matrix& keys,
                    const KeyColumns& columns, const kernels::Tile& tile, kernels::Ahead* ahead);
// Rows as the right side of a product: where they lie, or, when their width is
// no multiple of a vector, in panels.
struct RowsAsColumns {
  const float* data;
  Index panel, depth;
};
RowsAsColumns as_columns(const Call& call, const kernels::Matrix& rows, float* memory);

// Rows as the left side of a product: where they lie, or widened to float into
// `memory`, which needs widened_floats of the tensor.
Index widened_floats(const InputView& x);
kernels::Matrix as_floats(const Call& call, const kernels::Matrix& rows, float* memory);

// A product may write into a caller's rows of `width` only in whole vectors.
bool writes_in_place(const Call& call, const OutputView& out);

// Whether to ask for the next head's memory while one is computed: not where the
// whole batch stays in the caches, and not for heads so small that asking costs more
// than it saves. Measured: 14 to 27 % less time for heads of 32 and 64 from memory,
// 12 to 25 % more in caches.
enum class Pass { forward, backward };
bool asks_ahead(const Call& call, Pass pass);

// Sizes and strides that the short path takes.
bool is_short(const Call& call);
// The same for gradients, which leave shared biases and modifiers to the
// streaming pass.
bool has_short_gradient(const Call& call, const BackwardState& state);

// Scratch floats of one head's output.
Index short_workspace(const Call& call);

// One head's output. Returns false, with nothing written, when values are not
// finite and pairs are hidden, or may be by an infinite key: the streaming pass selects pair by pair.
bool attend_short(const Call& call, RowStatistics& rows, Index b, Index h, const OutputView& out);

// Gradients of one key head and its group of query heads; false as above.
bool differentiate_short(const Call& call, const BackwardState& state, Index b, Index kv_head);

}  // namespace regard::detail
