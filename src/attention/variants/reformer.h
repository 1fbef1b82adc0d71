// What the passes of the Reformer share: rounds of sorted tokens and the chunks
// in which they meet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/variants/products.h"
#include "regard/reformer.h"

namespace regard::detail {

struct ReformerCall {
  Sizes sizes;  // q_len = kv_len: the tokens
  View<const float, 4> qk, v;
  ReformerOptions options;  // chunk at most the number of tokens (or 1)
  float scale;

  Index chunk_count() const { return (sizes.q_len + options.chunk - 1) / options.chunk; }
  bool is_real(Index b, Index token) const {
    const auto& mask = options.key_mask;
    return !mask.given() || mask(mask.size(0) == 1 ? 0 : b, token) != 0;
  }
};

// A chunk longer than the sequence is one of its length.
inline ReformerOptions clamped(ReformerOptions options, Index len) {
  options.chunk = std::min(options.chunk, std::max<Index>(1, len));
  return options;
}

// Throws ArgumentError beginning with `name`.
Sizes check_reformer(const char* name, const std::array<Index, 4>& qk, const std::array<Index, 4>& v,
                     const ReformerOptions& options);

// Buckets that others computed: real tokens need one in [0, options.buckets), padded
// ones options.buckets. Throws ArgumentError beginning with `name`.
void check_buckets(const char* name, const Tensor<std::int32_t>& buckets, const ReformerOptions& options);

// One round of one head.
struct HashRound {
  std::vector<std::int32_t> order;    // tokens by bucket, then position
  std::vector<std::int32_t> buckets;  // of each token
  std::vector<std::int32_t> chunks;   // of each token
};
// buckets [rounds, len] of one head.
std::vector<HashRound> sorted_rounds(const std::int32_t* buckets, Index len, const ReformerOptions& options);

// One head in one round, token after token in sorted order.
struct SortedHead {
  Scratch queries, keys, values;  // queries are scaled, keys have length 1
  std::vector<float> inverses;    // of each token's length, 0 for 0; found in the head's first round
};

// The queries of one chunk against the keys of its own and the chunk before.
class ChunkScores {
 public:
  ChunkScores(const ReformerCall& call, const std::vector<HashRound>& rounds) : call_(call), rounds_(rounds) {}

  // Scores of chunk `chunk` of a round: scale q . k - log(rounds the pair meets
  // in), -inf where a pair doesn't meet or is hidden.
  void compute(Index b, std::size_t round, Index chunk, const SortedHead& head);

  Scratch& scores() { return scores_; }
  kernels::Tile tile() { return {scores_.row(0), scores_.stride(), rows_, keys_}; }
  Index first_row() const { return first_row_; }  // in sorted order
  Index rows() const { return rows_; }
  Index first_key() const { return first_key_; }
  Index keys() const { return keys_; }

 private:
  void hide_and_count(Index b, std::size_t round);
  void count_meetings(std::int32_t token, std::size_t round);

  const ReformerCall& call_;
  const std::vector<HashRound>& rounds_;
  Index first_row_ = 0, rows_ = 0, first_key_ = 0, keys_ = 0;
  Scratch scores_;
  PackedMatrix panels_;
  std::vector<std::int32_t> key_buckets_, key_chunks_;  // [rounds, keys] of the chunk
  std::vector<std::int32_t> meetings_;                  // [keys]
};

// One head's tokens in the order of a round.
void sort_head(const ReformerCall& call, Index b, Index h, const HashRound& round, SortedHead& head);

}  // namespace regard::detail
