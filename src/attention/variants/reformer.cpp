// The Reformer, forward.
#include "regard/reformer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/variants/reformer.h"
#include "attention/variants/row_loops.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// One head: rounds add to each token's running maximum, sum and values.
class ReformerForward {
 public:
  ReformerForward(const ReformerCall& call, ReformerResult<float>& result, Index head)
      : call_(call),
        result_(result),
        b_(head / call.sizes.q_heads),
        h_(head % call.sizes.q_heads),
        rounds_(sorted_rounds(result.buckets.data() + head * call.options.rounds * call.sizes.q_len, call.sizes.q_len,
                              call.options)),
        chunk_(call, rounds_) {
    const auto tokens = static_cast<std::size_t>(call.sizes.q_len);
    max_.assign(tokens, minus_infinity);
    sum_.assign(tokens, 0.0f);
    out_.resize(call.sizes.q_len, call.sizes.value_dim);
    out_.zero();
  }

  void run() {
    SortedHead head;
    for (std::size_t round = 0; round < rounds_.size(); ++round) {
      sort_head(call_, b_, h_, rounds_[round], head);
      for (Index chunk = 0; chunk < call_.chunk_count(); ++chunk) meet(round, chunk, head);
    }
    write();
  }

 private:
  void meet(std::size_t round, Index chunk, const SortedHead& head) {
    chunk_.compute(b_, round, chunk, head);
    const Index rows = chunk_.rows();
    std::vector<float> max(static_cast<std::size_t>(rows), minus_infinity), sum(max.size(), 0.0f);
    kernels::active().softmax_step({chunk_.tile(), max.data(), sum.data(), nullptr, nullptr, 0, 0});
    part_.resize(rows, call_.sizes.value_dim);
    part_.zero();
    panels_.pack(head.values.matrix(chunk_.first_key(), chunk_.keys()));
    add_where_nonzero(part_, 0, chunk_.scores().matrix(0, rows), panels_);
    for (Index i = 0; i < rows; ++i)
      merge(rounds_[round].order[static_cast<std::size_t>(chunk_.first_row() + i)], max[static_cast<std::size_t>(i)],
            sum[static_cast<std::size_t>(i)], part_.row(i));
  }

  // A part's maximum, sum and values join those of the token.
  void merge(Index token, float max, float sum, const float* values) {
    if (max == minus_infinity && sum == 0.0f) return;
    float &known_max = max_[static_cast<std::size_t>(token)], &known_sum = sum_[static_cast<std::size_t>(token)];
    const float top = std::max(max, known_max), old_factor = std::exp(known_max - top), factor = std::exp(max - top);
    scale_row(out_.row(token), old_factor, call_.sizes.value_dim);
    add_times(out_.row(token), values, factor, call_.sizes.value_dim);
    known_sum = known_sum * old_factor + sum * factor;
    known_max = top;
  }

  void write() {
    const Index len = call_.sizes.q_len, dim = call_.sizes.value_dim;
    const Index first = (b_ * call_.sizes.q_heads + h_) * len;
    for (Index token = 0; token < len; ++token) {
      const float sum = sum_[static_cast<std::size_t>(token)];
      float* to = result_.out.data() + (first + token) * dim;
      // Who meets nobody attends to itself, with the one weight of 1.
      const bool alone = sum == 0.0f && call_.is_real(b_, token);
      result_.lse[first + token] = alone         ? own_score(token)
                                   : sum == 0.0f ? minus_infinity
                                                 : max_[static_cast<std::size_t>(token)] + std::log(sum);
      if (alone)
        for (Index d = 0; d < dim; ++d) to[d] = call_.v(b_, h_, token, d);
      else if (sum == 0.0f)
        std::fill_n(to, dim, 0.0f);
      else
        divided_row(to, out_.row(token), sum, dim);
    }
  }

  // scale qk . qk / |qk|
  float own_score(Index token) const {
    double square = 0;
    for (Index d = 0; d < call_.sizes.head_dim; ++d)
      square += std::pow(static_cast<double>(call_.qk(b_, h_, token, d)), 2);
    return call_.scale * static_cast<float>(std::sqrt(square));
  }

  const ReformerCall& call_;
  ReformerResult<float>& result_;
  Index b_, h_;
  std::vector<HashRound> rounds_;
  ChunkScores chunk_;
  std::vector<float> max_, sum_;
  Scratch out_, part_;
  PackedMatrix panels_;
};

}  // namespace
}  // namespace detail

ReformerResult<float> reformer_attend(View<const float, 4> qk, View<const float, 4> v, const ReformerOptions& options) {
  const auto sizes = detail::check_reformer("reformer_attend", qk.sizes(), v.sizes(), options);
  const double scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  const detail::ReformerCall call{sizes, qk, v, detail::clamped(options, sizes.q_len), static_cast<float>(scale)};
  ReformerResult<float> result{Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
                               Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len}),
                               reformer_buckets(qk, options)};
  parallel_items(sizes.batch * sizes.q_heads,
                 [&](Index head, int) { detail::ReformerForward(call, result, head).run(); });
  return result;
}

}  // namespace regard
