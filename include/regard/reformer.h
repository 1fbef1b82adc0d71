// Reformer: attention among tokens that hash alike, in several rounds.
//
// Queries and keys are shared: k_j = qk_j / |qk_j|. In each round tokens are
// sorted by bucket, then position, and cut into chunks; token i meets the tokens
// of its own bucket in its own chunk and the one before. It attends to the union
// over rounds, each pair counted once, and to itself only where it meets nobody
// else:
//
//   out_i = sum over j in P_i of softmax_j(scale qk_i . k_j) v_j
//
// So a score is scale |qk_i| cos(angle): the query with its length, the key
// without. Hugging Face divides a key by its root mean square and by
// sqrt(head_dim), which leaves it with length 1, and scores by nothing more: its
// checkpoints need `.scale = 1`. Where keys have length 1 and scores are divided by
// sqrt(head_dim) besides (reformer-pytorch), the default is right.
//
// With one bucket and a chunk of the whole length that is exact attention.
// Time grows like n log n; memory like n. Source: Kitaev, Kaiser, Levskaya,
// "Reformer: the efficient Transformer", ICLR 2020 (equations 5 to 8).
#pragma once

#include <cstdint>
#include <optional>

#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

struct ReformerOptions {
  Index buckets = 2;  // even, or 1: no hashing
  Index rounds = 4;
  Index chunk = 64;
  bool causal = false;
  std::uint64_t seed = 0;                     // names the rotations
  View<const std::uint8_t, 2> key_mask = {};  // [batch or 1, len], nonzero = real token
  std::optional<double> scale = {};           // of keys of length 1; default 1 / sqrt(head_dim)
};

// Bucket of every token: [batch, heads, rounds, len]. The largest of the
// coordinates of qk R and -qk R, R [head_dim, buckets / 2] Gaussian for each head
// and round, drawn row by row by Random(seed, head * rounds + round) (angular
// hashing, Andoni et al., 2015). Padded tokens have the bucket `buckets`, their own.
Tensor<std::int32_t> reformer_buckets(View<const float, 4> qk, const ReformerOptions& options);

template <class T>
struct ReformerResult {
  Tensor<T> out;                 // [batch, heads, len, value_dim]; zeros for padded tokens
  Tensor<T> lse;                 // [batch, heads, len]
  Tensor<std::int32_t> buckets;  // as reformer_buckets gives them
};

// qk [batch, heads, len, head_dim], v [batch, heads, len, value_dim]. Throws
// ArgumentError for an odd number of buckets above 1 and for sizes that disagree.
ReformerResult<float> reformer_attend(View<const float, 4> qk, View<const float, 4> v, const ReformerOptions& options);

struct ReformerGradients {
  Tensor<float> dqk, dv;
};

// Exact gradients of sum(dout * out) for the buckets that the forward pass found.
ReformerGradients reformer_attend_backward(View<const float, 4> dout, View<const float, 4> qk, View<const float, 4> v,
                                           const ReformerResult<float>& forward, const ReformerOptions& options);

namespace reference {
// The definition above in plain double loops, for given buckets.
ReformerResult<double> reformer_attend(View<const double, 4> qk, View<const double, 4> v,
                                       const Tensor<std::int32_t>& buckets, const ReformerOptions& options);
}  // namespace reference

}  // namespace regard
