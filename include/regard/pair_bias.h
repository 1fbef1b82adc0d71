// A learned number for each kind of pair: score + table[bucket of the pair, head].
// What the kinds are is the caller's: distances in a dependency tree (tree.h),
// relations between words, distances between image patches.
//
//   const auto distances = tree_distances(sentence.heads());       // [n, n]
//   attend(q, k, v, {.score = pair_bias(table, distances)});       // table [farthest + 1, q_heads]
//
// Memory for one 32-bit number a pair, shared by heads and, on request, by the
// batch; everything else streams, and the table gets a gradient. Sources: Shaw et
// al., "Self-attention with relative position representations", 2018, for numbers
// learned per kind of pair; Bugliarello and Okazaki, "Enhancing machine translation
// with dependency-aware self-attention", 2020, for distances in a tree.
#pragma once

#include <cstdint>

#include "regard/score.h"
#include "regard/tensor.h"

namespace regard {

// table [buckets, q_heads]. pairs [q_len, kv_len], or [batch or 1, q_len, kv_len],
// by row and key slot. Buckets beyond the table share its last row; a negative one
// adds nothing. Both are copied. A table entry of -inf hides its pairs. The
// gradient is dparameters of attend_backward, [buckets * q_heads] laid out like the
// table. Throws ArgumentError for a table without rows and pairs of another rank;
// the call does where sizes disagree with q and k.
ScoreModifiers pair_bias(View<const float, 2> table, const Tensor<std::int32_t>& pairs);
ScoreModifiers pair_bias(View<const double, 2> table, const Tensor<std::int32_t>& pairs);

}  // namespace regard
