// Backward pass of the Reformer: the rounds once more, each pair's weight split
// evenly over the rounds in which it meets.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call.h"
#include "attention/variants/reformer.h"
#include "attention/variants/row_loops.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

class ReformerBackward {
 public:
  ReformerBackward(const ReformerCall& call, View<const float, 4> dout, const ReformerResult<float>& forward,
                   ReformerGradients& gradients, Index head)
      : call_(call),
        dout_(dout),
        forward_(forward),
        gradients_(gradients),
        b_(head / call.sizes.q_heads),
        h_(head % call.sizes.q_heads),
        rounds_(sorted_rounds(forward.buckets.data() + head * call.options.rounds * call.sizes.q_len, call.sizes.q_len,
                              call.options)),
        chunk_(call, rounds_) {
    const Index len = call.sizes.q_len;
    for (auto [to, dim] :
         {std::pair{&dq_, call.sizes.head_dim}, {&dk_, call.sizes.head_dim}, {&dv_, call.sizes.value_dim}}) {
      to->resize(len, dim);
      to->zero();
    }
  }

  void run() {
    SortedHead head;
    for (std::size_t round = 0; round < rounds_.size(); ++round) {
      sort_head(call_, b_, h_, rounds_[round], head);
      sort_rows(rounds_[round]);
      for (Index chunk = 0; chunk < call_.chunk_count(); ++chunk) meet(round, chunk, head);
    }
    write();
  }

 private:
  Index first_token() const { return (b_ * call_.sizes.q_heads + h_) * call_.sizes.q_len; }
  // Whoever meets nobody has the weight 1 on itself; its scores never matter.
  bool alone(Index token) const { return meets_nobody_[static_cast<std::size_t>(token)] != 0; }

  // dout, lse and dout . out in the order of a round.
  void sort_rows(const HashRound& round) {
    const Index len = call_.sizes.q_len, dim = call_.sizes.value_dim;
    const kernels::Matrix dout = rows_of(dout_, b_, h_, 0, len);
    sorted_dout_.resize(len, dim);
    lse_.resize(static_cast<std::size_t>(len));
    shared_.resize(static_cast<std::size_t>(len));
    if (meets_nobody_.empty()) meets_nobody_.assign(static_cast<std::size_t>(len), 1);
    for (Index at = 0; at < len; ++at) {
      const Index token = round.order[static_cast<std::size_t>(at)];
      float *row = sorted_dout_.row(at), sum = 0;
      call_.is_real(b_, token) ? copy_row(dout, token, row) : void(std::fill_n(row, dim, 0.0f));
      for (Index d = 0; d < dim; ++d) sum += row[d] * forward_.out[(first_token() + token) * dim + d];
      shared_[static_cast<std::size_t>(at)] = sum;
      lse_[static_cast<std::size_t>(at)] = forward_.lse[first_token() + token];
    }
  }

  void meet(std::size_t round, Index chunk, const SortedHead& head);
  void scatter(std::size_t round, const Scratch& part, Index first, Scratch& to) {
    for (Index i = 0; i < part.rows(); ++i)
      add_row(to.row(rounds_[round].order[static_cast<std::size_t>(first + i)]), part.row(i), part.cols());
  }
  void write();

  const ReformerCall& call_;
  View<const float, 4> dout_;
  const ReformerResult<float>& forward_;
  ReformerGradients& gradients_;
  Index b_, h_;
  std::vector<HashRound> rounds_;
  ChunkScores chunk_;
  Scratch dq_, dk_, dv_;  // by token; dk_ of the keys of length 1
  Scratch sorted_dout_, dscores_, part_;
  std::vector<float> lse_, shared_;
  std::vector<std::uint8_t> meets_nobody_;
  PackedMatrix panels_;
};

void ReformerBackward::meet(std::size_t round, Index chunk, const SortedHead& head) {
  chunk_.compute(b_, round, chunk, head);
  const Index row = chunk_.first_row(), rows = chunk_.rows(), key = chunk_.first_key(), keys = chunk_.keys();
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < keys; ++j)
      if (chunk_.scores().row(i)[j] != -std::numeric_limits<float>::infinity())
        meets_nobody_[static_cast<std::size_t>(rounds_[round].order[static_cast<std::size_t>(row + i)])] = 0;
  dscores_.resize(rows, keys);
  panels_.pack(transposed(head.values.matrix(key, keys)));
  multiply(dscores_, sorted_dout_.matrix(row, rows), panels_);
  kernels::active().softmax_gradient({chunk_.tile(),
                                      {dscores_.row(0), dscores_.stride(), rows, keys},
                                      lse_.data() + row,
                                      shared_.data() + row,
                                      nullptr,
                                      1.0f});
  const kernels::Matrix weights = chunk_.scores().matrix(0, rows), dscores = dscores_.matrix(0, rows);
  const auto add_product = [&](const kernels::Matrix& a, const kernels::Matrix& b, Index first, Scratch& to) {
    panels_.pack(b);
    part_.resize(a.rows, b.depth);
    part_.zero();
    add_where_nonzero(part_, 0, a, panels_);
    scatter(round, part_, first, to);
  };
  add_product(transposed(weights), sorted_dout_.matrix(row, rows), key, dv_);
  add_product(transposed(dscores), head.queries.matrix(row, rows), key, dk_);
  add_product(dscores, head.keys.matrix(key, keys), row, dq_);
}

// Keys are qk / |qk|: what is along qk does not pass.
void ReformerBackward::write() {
  const Index len = call_.sizes.q_len, dim = call_.sizes.head_dim, value_dim = call_.sizes.value_dim;
  for (Index token = 0; token < len; ++token) {
    if (!call_.is_real(b_, token)) continue;
    double square = 0, along = 0;
    for (Index d = 0; d < dim; ++d) {
      const double value = static_cast<double>(call_.qk(b_, h_, token, d));
      square += value * value;
      along += value * static_cast<double>(dk_.row(token)[d]);
    }
    const double inverse = square == 0 ? 0 : 1 / std::sqrt(square);
    float* dqk = gradients_.dqk.data() + (first_token() + token) * dim;
    for (Index d = 0; d < dim; ++d) {
      const double value = static_cast<double>(call_.qk(b_, h_, token, d));
      const double key_part = (static_cast<double>(dk_.row(token)[d]) - along * value * inverse * inverse) * inverse;
      dqk[d] = dq_.row(token)[d] * call_.scale + static_cast<float>(key_part);
    }
    float* dv = gradients_.dv.data() + (first_token() + token) * value_dim;
    for (Index d = 0; d < value_dim; ++d) dv[d] = dv_.row(token)[d] + (alone(token) ? dout_(b_, h_, token, d) : 0.0f);
  }
}

}  // namespace
}  // namespace detail

ReformerGradients reformer_attend_backward(View<const float, 4> dout, View<const float, 4> qk, View<const float, 4> v,
                                           const ReformerResult<float>& forward, const ReformerOptions& options) {
  const char* name = "reformer_attend_backward";
  const auto sizes = detail::check_reformer(name, qk.sizes(), v.sizes(), options);
  const Shape out{sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim};
  detail::check_equal(name, "dout", detail::shape_of(dout), out);
  detail::check_equal(name, "forward.out", forward.out.shape(), out);
  detail::check_equal(name, "forward.lse", forward.lse.shape(), {sizes.batch, sizes.q_heads, sizes.q_len});
  detail::check_equal(name, "forward.buckets", forward.buckets.shape(),
                      {sizes.batch, sizes.q_heads, options.rounds, sizes.q_len});
  detail::check_buckets(name, forward.buckets, options);
  const double scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  const detail::ReformerCall call{sizes, qk, v, detail::clamped(options, sizes.q_len), static_cast<float>(scale)};
  ReformerGradients gradients{Tensor<float>(detail::shape_of(qk)), Tensor<float>(detail::shape_of(v))};
  parallel_items(sizes.batch * sizes.q_heads,
                 [&](Index head, int) { detail::ReformerBackward(call, dout, forward, gradients, head).run(); });
  return gradients;
}

}  // namespace regard
