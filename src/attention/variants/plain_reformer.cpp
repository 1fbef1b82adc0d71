// The Reformer's definition for given buckets, in plain double loops: nobody
// sorts, a token's place is the number of tokens before it.
#include <cmath>
#include <vector>

#include "attention/variants/reformer.h"

namespace regard::reference {
namespace {

// One round of one head.
struct PlainRound {
  const std::int32_t* buckets;  // [len]
  Index len, chunk;

  // In the order of buckets, then positions.
  Index place(Index token) const {
    Index before = 0;
    for (Index other = 0; other < len; ++other)
      before += buckets[other] < buckets[token] || (buckets[other] == buckets[token] && other < token);
    return before;
  }
};

// Chunks of every token, [rounds][len].
std::vector<std::vector<Index>> chunks_of(const std::vector<PlainRound>& rounds) {
  std::vector<std::vector<Index>> chunks;
  for (const PlainRound& round : rounds) {
    chunks.emplace_back();
    for (Index token = 0; token < round.len; ++token) chunks.back().push_back(round.place(token) / round.chunk);
  }
  return chunks;
}

// Whether token i sees token j in any round: the same bucket, and its own chunk or the one before.
bool sees(const std::vector<PlainRound>& rounds, const std::vector<std::vector<Index>>& chunks, Index i, Index j) {
  for (std::size_t n = 0; n < rounds.size(); ++n) {
    const Index back = chunks[n][static_cast<std::size_t>(i)] - chunks[n][static_cast<std::size_t>(j)];
    if (rounds[n].buckets[i] == rounds[n].buckets[j] && (back == 0 || back == 1)) return true;
  }
  return false;
}

}  // namespace

ReformerResult<double> reformer_attend(View<const double, 4> qk, View<const double, 4> v,
                                       const Tensor<std::int32_t>& buckets, const ReformerOptions& options) {
  const char* name = "reference::reformer_attend";
  const auto s = detail::check_reformer(name, qk.sizes(), v.sizes(), options);
  detail::check_equal(name, "buckets", buckets.shape(), {s.batch, s.q_heads, options.rounds, s.q_len});
  detail::check_buckets(name, buckets, options);
  const double scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(s.head_dim));
  ReformerResult<double> result{Tensor<double>({s.batch, s.q_heads, s.q_len, s.value_dim}),
                                Tensor<double>({s.batch, s.q_heads, s.q_len}), buckets};
  const auto out = result.out.view<4>();
  const auto score = [&](Index b, Index h, Index i, Index j) {
    double product = 0, square = 0;
    for (Index d = 0; d < s.head_dim; ++d) {
      product += qk(b, h, i, d) * qk(b, h, j, d);
      square += qk(b, h, j, d) * qk(b, h, j, d);
    }
    return square == 0 ? 0 : scale * product / std::sqrt(square);
  };
  const auto real = [&](Index b, Index token) {
    const auto& mask = options.key_mask;
    return !mask.given() || mask(mask.size(0) == 1 ? 0 : b, token) != 0;
  };
  for (Index head = 0; head < s.batch * s.q_heads; ++head) {
    const Index b = head / s.q_heads, h = head % s.q_heads;
    std::vector<PlainRound> rounds;
    for (Index r = 0; r < options.rounds; ++r)
      rounds.push_back({buckets.data() + (head * options.rounds + r) * s.q_len, s.q_len, options.chunk});
    const auto chunks = chunks_of(rounds);
    for (Index i = 0; i < s.q_len; ++i) {
      std::vector<Index> met;
      for (Index j = 0; j < s.q_len && real(b, i); ++j)
        if (j != i && real(b, j) && !(options.causal && j > i) && sees(rounds, chunks, i, j)) met.push_back(j);
      if (met.empty() && real(b, i)) met.push_back(i);
      double total = 0;
      for (Index j : met) total += std::exp(score(b, h, i, j));
      result.lse[head * s.q_len + i] = std::log(total);
      for (Index j : met)
        for (Index d = 0; d < s.value_dim; ++d) out(b, h, i, d) += std::exp(score(b, h, i, j)) / total * v(b, h, j, d);
    }
  }
  return result;
}

}  // namespace regard::reference
