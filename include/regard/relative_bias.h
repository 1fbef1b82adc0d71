// Relative position buckets: one learned number per head and bucket of
// distances, added to the score (before the mask). Source: Raffel et al.,
// "Exploring the limits of transfer learning with a unified text-to-text
// Transformer" (T5), 2020.
//
//   attend(q, k, v, {.score = relative_bias(table), .scale = 1.0f});   // T5 has no 1/sqrt(d)
//
// The modifier never builds anything of size q_len x kv_len, and its table gets
// a gradient; the tensor is there for what wants to see or change the numbers.
// T5 gives its cross-attention no bias.
#pragma once

#include <cstdint>

#include "regard/attend.h"
#include "regard/score.h"
#include "regard/tensor.h"

namespace regard {

// The near half of the buckets holds one distance each; the rest grow like
// logarithms up to max_distance, and everything beyond shares the last.
struct RelativeBuckets {
  Index buckets = 32;
  Index max_distance = 128;   // at most 2^24
  bool bidirectional = true;  // half of the buckets for keys after the query; else those count as distance 0
};

// The bucket of `distance` = key position - query position, in [0, buckets).
// Throws ArgumentError when buckets are odd in both directions, fewer than 2 a
// direction, or max_distance does not exceed the exact distances or exceeds 2^24.
Index relative_bucket(Index distance, const RelativeBuckets& rule = {});

// As a score modifier: score + table[bucket(key - query), head]. table [buckets,
// q_heads]; copied. Its gradient is dparameters of attend_backward, [buckets *
// q_heads] laid out like the table.
ScoreModifiers relative_bias(View<const float, 2> table, const RelativeBuckets& rule = {});
ScoreModifiers relative_bias(View<const double, 2> table, const RelativeBuckets& rule = {});

// As a tensor [1, q_heads, q_len, kv_len] for AttendOptions::bias. Row i stands
// at q_start + i (default bottom-right, as in attend); one q_start only.
Tensor<float> relative_bias_tensor(View<const float, 2> table, const RelativeBuckets& rule, Index q_len, Index kv_len,
                                   const QueryStart& q_start = {});
Tensor<double> relative_bias_tensor(View<const double, 2> table, const RelativeBuckets& rule, Index q_len, Index kv_len,
                                    const QueryStart& q_start = {});

// Back from the gradient of that tensor to the table's, [buckets, q_heads].
Tensor<float> relative_bias_backward(View<const float, 4> dbias, const RelativeBuckets& rule,
                                     const QueryStart& q_start = {});
Tensor<double> relative_bias_backward(View<const double, 4> dbias, const RelativeBuckets& rule,
                                      const QueryStart& q_start = {});

}  // namespace regard
