// Hashing, sorting and the scores of a chunk.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention/call.h"
#include "attention/variants/reformer.h"
#include "attention/variants/row_loops.h"
#include "core/instruction_sets.h"
#include "regard/error.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard {
namespace detail {

struct Place {
  std::int32_t bucket, chunk;
};

// Counts of the keys whose bucket is the token's and whose chunk is its own or the one before.
REGARD_EACH_INSTRUCTION_SET void add_meetings(std::int32_t* counts, const std::int32_t* buckets,
                                              const std::int32_t* chunks, Place token, Index keys) {
#pragma GCC ivdep
  for (Index j = 0; j < keys; ++j)
    counts[j] += (buckets[j] == token.bucket) & (chunks[j] <= token.chunk) & (chunks[j] >= token.chunk - 1);
}

REGARD_EACH_INSTRUCTION_SET void keep_bucket(std::int32_t* counts, const std::int32_t* buckets, std::int32_t bucket,
                                             Index keys) {
#pragma GCC ivdep
  for (Index j = 0; j < keys; ++j) counts[j] = buckets[j] == bucket ? counts[j] : 0;
}

namespace {

constexpr float hidden = -std::numeric_limits<float>::infinity();

}  // namespace

struct Sharing {
  const std::int32_t *meetings, *keys;  // of each key: rounds, token
  const float* steps;                   // [rounds]: steps[n] = log(n + 1) - log(n), from 1 on
  std::int32_t rounds;
  std::int32_t token, last;  // the asking token, and the last it may see
};

// Who does not meet is hidden, as is the token itself; the others' weights are
// shared among the rounds in which they meet: divided by their number, whose
// logarithm is summed up in steps, since vectors have no quick look-up.
REGARD_EACH_INSTRUCTION_SET void hide_and_share(float* row, const Sharing& by, Index count) {
  for (std::int32_t n = 1; n < by.rounds; ++n) {
    const float step = by.steps[n];
#pragma GCC ivdep
    for (Index j = 0; j < count; ++j) row[j] -= by.meetings[j] > n ? step : 0.0f;
  }
#pragma GCC ivdep
  for (Index j = 0; j < count; ++j) {
    const bool seen = (by.meetings[j] > 0) & (by.keys[j] != by.token) & (by.keys[j] <= by.last);
    row[j] = seen ? row[j] : hidden;
  }
}

namespace {

constexpr Index hash_rows = 256;  // tokens hashed at a time

// R of one head and round, [head_dim, buckets / 2].
Tensor<float> rotation(const ReformerOptions& options, Index head_dim, Index stream) {
  Tensor<float> matrix({head_dim, options.buckets / 2});
  Random random(options.seed, static_cast<std::uint64_t>(stream));
  for (float& value : matrix.values()) value = static_cast<float>(random.normal());
  return matrix;
}

// 1 / |qk| of every token of a head.
std::vector<float> inverse_lengths(const kernels::Matrix& qk, Index len, Index dim) {
  std::vector<float> inverses, row(static_cast<std::size_t>(dim));
  for (Index token = 0; token < len; ++token) {
    copy_row(qk, token, row.data());
    double square = 0;
    for (float value : row) square += static_cast<double>(value) * static_cast<double>(value);
    inverses.push_back(square == 0 ? 0.0f : static_cast<float>(1 / std::sqrt(square)));
  }
  return inverses;
}

}  // namespace

Sizes check_reformer(const char* name, const std::array<Index, 4>& qk, const std::array<Index, 4>& v,
                     const ReformerOptions& options) {
  const Sizes sizes = check_shapes(name, qk, qk, v);
  const auto refuse = [&](const std::string& what) { throw ArgumentError(std::string(name) + ": " + what); };
  if (options.buckets < 1 || (options.buckets > 1 && options.buckets % 2 != 0))
    refuse("buckets must be even (a bucket is a direction or its opposite) or 1, got " +
           std::to_string(options.buckets));
  if (options.rounds < 1) refuse("rounds must be at least 1, got " + std::to_string(options.rounds));
  if (options.chunk < 1) refuse("chunk must be at least 1, got " + std::to_string(options.chunk));
  constexpr Index most = std::numeric_limits<std::int32_t>::max();
  if (sizes.q_len > most || options.buckets >= most) refuse("lengths and buckets must be below 2^31");
  if (options.scale && !std::isfinite(*options.scale)) refuse("scale is not finite");
  const auto& mask = options.key_mask;
  if (mask.given() && ((mask.size(0) != 1 && mask.size(0) != sizes.batch) || mask.size(1) != sizes.q_len))
    refuse("key_mask " + mask.text() + " needs [batch or 1,len] = " + shape_text(Shape{sizes.batch, sizes.q_len}));
  return sizes;
}

void check_buckets(const char* name, const Tensor<std::int32_t>& buckets, const ReformerOptions& options) {
  const Index len = buckets.size(3), rows = buckets.size(1) * buckets.size(2);
  const auto& mask = options.key_mask;
  for (Index n = 0; n < buckets.count(); ++n) {
    const bool padded = mask.given() && mask(mask.size(0) == 1 ? 0 : n / len / rows, n % len) == 0;
    const bool fits = padded ? buckets[n] == options.buckets : buckets[n] >= 0 && buckets[n] < options.buckets;
    if (!fits)
      throw ArgumentError(std::string(name) + ": token " + std::to_string(n % len) + " has bucket " +
                          std::to_string(buckets[n]) + " but " + (padded ? "is padded and " : "") +
                          "options.buckets is " + std::to_string(options.buckets) +
                          "; use the options of the forward pass");
  }
}

std::vector<HashRound> sorted_rounds(const std::int32_t* buckets, Index len, const ReformerOptions& options) {
  const Index chunk = clamped(options, len).chunk;
  std::vector<HashRound> rounds(static_cast<std::size_t>(options.rounds));
  for (HashRound& round : rounds) {
    round.buckets.assign(buckets, buckets + len);
    buckets += len;
    // Counting sort; stable, so positions stay in order within a bucket.
    std::vector<std::int32_t> next(static_cast<std::size_t>(options.buckets + 2));
    for (std::int32_t bucket : round.buckets) ++next[static_cast<std::size_t>(bucket) + 1];
    for (std::size_t n = 1; n < next.size(); ++n) next[n] += next[n - 1];
    round.order.resize(static_cast<std::size_t>(len));
    round.chunks.resize(static_cast<std::size_t>(len));
    for (std::int32_t token = 0; token < len; ++token) {
      const std::int32_t at = next[static_cast<std::size_t>(round.buckets[static_cast<std::size_t>(token)])]++;
      round.order[static_cast<std::size_t>(at)] = token;
      round.chunks[static_cast<std::size_t>(token)] = static_cast<std::int32_t>(at / chunk);
    }
  }
  return rounds;
}

void sort_head(const ReformerCall& call, Index b, Index h, const HashRound& round, SortedHead& head) {
  const Index len = call.sizes.q_len, dim = call.sizes.head_dim, value_dim = call.sizes.value_dim;
  const kernels::Matrix qk = rows_of(call.qk, b, h, 0, len), v = rows_of(call.v, b, h, 0, len);
  if (head.inverses.empty()) head.inverses = inverse_lengths(qk, len, dim);
  head.queries.resize(len, dim);
  head.keys.resize(len, dim);
  head.values.resize(len, value_dim);
  for (Index at = 0; at < len; ++at) {
    const Index token = round.order[static_cast<std::size_t>(at)];
    float *query = head.queries.row(at), *key = head.keys.row(at), *value = head.values.row(at);
    if (!call.is_real(b, token)) {
      std::fill_n(query, dim, 0.0f);
      std::fill_n(key, dim, 0.0f);
      std::fill_n(value, value_dim, 0.0f);
      continue;
    }
    copy_row(qk, token, query);
    copy_row(v, token, value);
    std::copy_n(query, dim, key);
    scale_row(key, head.inverses[static_cast<std::size_t>(token)], dim);
    scale_row(query, call.scale, dim);
  }
}

void ChunkScores::compute(Index b, std::size_t round, Index chunk, const SortedHead& head) {
  const Index size = call_.options.chunk, len = call_.sizes.q_len;
  first_row_ = chunk * size;
  rows_ = std::min(size, len - first_row_);
  first_key_ = std::max<Index>(0, first_row_ - size);
  keys_ = first_row_ + rows_ - first_key_;
  scores_.resize(rows_, keys_);
  panels_.pack(transposed(head.keys.matrix(first_key_, keys_)));
  multiply(scores_, head.queries.matrix(first_row_, rows_), panels_);
  hide_and_count(b, round);
}

void ChunkScores::hide_and_count(Index b, std::size_t round) {
  const auto& order = rounds_[round].order;
  const auto gather = [&](std::vector<std::int32_t>& to, const std::vector<std::int32_t> HashRound::*which) {
    to.clear();
    for (const HashRound& one : rounds_)
      for (Index j = 0; j < keys_; ++j)
        to.push_back((one.*which)[static_cast<std::size_t>(order[static_cast<std::size_t>(first_key_ + j)])]);
  };
  gather(key_buckets_, &HashRound::buckets);
  gather(key_chunks_, &HashRound::chunks);
  std::vector<float> steps{0.0f};
  for (std::size_t n = 1; n < rounds_.size(); ++n)
    steps.push_back(static_cast<float>(std::log1p(1 / static_cast<double>(n))));
  for (Index i = 0; i < rows_; ++i) {
    const std::int32_t token = order[static_cast<std::size_t>(first_row_ + i)];
    float* row = scores_.row(i);
    if (!call_.is_real(b, token)) {
      std::fill_n(row, keys_, hidden);
      continue;
    }
    count_meetings(token, round);
    const std::int32_t last = call_.options.causal ? token : std::numeric_limits<std::int32_t>::max();
    hide_and_share(row,
                   {meetings_.data(), order.data() + first_key_, steps.data(),
                    static_cast<std::int32_t>(rounds_.size()), token, last},
                   keys_);
  }
}

// meetings_[j]: rounds in which the token meets key j; 0 unless they do in this one.
void ChunkScores::count_meetings(std::int32_t token, std::size_t round) {
  meetings_.assign(static_cast<std::size_t>(keys_), 0);
  for (std::size_t r = 0; r < rounds_.size(); ++r)
    add_meetings(
        meetings_.data(), key_buckets_.data() + static_cast<Index>(r) * keys_,
        key_chunks_.data() + static_cast<Index>(r) * keys_,
        {rounds_[r].buckets[static_cast<std::size_t>(token)], rounds_[r].chunks[static_cast<std::size_t>(token)]},
        keys_);
  keep_bucket(meetings_.data(), key_buckets_.data() + static_cast<Index>(round) * keys_,
              rounds_[round].buckets[static_cast<std::size_t>(token)], keys_);
}

}  // namespace detail

Tensor<std::int32_t> reformer_buckets(View<const float, 4> qk, const ReformerOptions& options) {
  const auto sizes = detail::check_reformer("reformer_buckets", qk.sizes(), qk.sizes(), options);
  const detail::ReformerCall call{sizes, qk, {}, options, 1.0f};
  const Index len = sizes.q_len, half = options.buckets / 2;
  Tensor<std::int32_t> buckets({sizes.batch, sizes.q_heads, options.rounds, len});
  parallel_items(sizes.batch * sizes.q_heads, [&](Index item, int) {
    const Index b = item / sizes.q_heads, h = item % sizes.q_heads;
    detail::PackedMatrix packed_rotation;
    detail::Scratch turned;
    for (Index r = 0; r < options.rounds; ++r) {
      std::int32_t* to = buckets.data() + (item * options.rounds + r) * len;
      const auto matrix = detail::rotation(options, sizes.head_dim, h * options.rounds + r);
      packed_rotation.pack({matrix.data(), sizes.head_dim, half, half, 1});
      for (Index first = 0; first < len; first += detail::hash_rows) {
        const Index rows = std::min(detail::hash_rows, len - first);
        turned.resize(rows, half);
        if (half > 0) detail::multiply(turned, detail::rows_of(qk, b, h, first, rows), packed_rotation);
        for (Index i = 0; i < rows; ++i)
          to[first + i] = !call.is_real(b, first + i)
                              ? static_cast<std::int32_t>(options.buckets)
                              : static_cast<std::int32_t>(detail::largest_of_both_signs(turned.row(i), half));
      }
    }
  });
  return buckets;
}

}  // namespace regard
