// Backward pass of relative attention: one key head at a time, block of rows
// after block of rows, so that every sum has a fixed order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attention/call.h"
#include "attention/variants/relative.h"
#include "attention/variants/row_loops.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

// Sums of one (batch, query head) for what heads or entries may share.
struct HeadSums {
  Tensor<float> keys, values;                 // [batch * q_heads, distances, dim]
  Tensor<float> content_bias, position_bias;  // [batch * q_heads, head_dim]
};

class RelativeBackward {
 public:
  RelativeBackward(const RelativeCall& call, View<const float, 4> dout, const RelativeResult<float>& forward,
                   RelativeGradients& gradients, HeadSums& sums)
      : call_(call), dout_(dout), forward_(forward), gradients_(gradients), sums_(sums), scores_(call) {}

  void run(Index b, Index kv_head) {
    const Sizes& sizes = call_.sizes;
    dk_.resize(sizes.kv_len, sizes.head_dim);
    dv_.resize(sizes.kv_len, sizes.value_dim);
    dk_.zero();
    dv_.zero();
    for (Index h = kv_head * sizes.group(); h < (kv_head + 1) * sizes.group(); ++h)
      for (Index row = 0; row < sizes.q_len; row += relative_rows)
        block({b, h, row, std::min(relative_rows, sizes.q_len - row)});
    store(dk_, gradients_.dk, b * sizes.kv_heads + kv_head);
    store(dv_, gradients_.dv, b * sizes.kv_heads + kv_head);
  }

 private:
  void block(const RelativeSpot& spot) {
    spot_ = spot;
    scores_.compute(spot);
    if (scores_.columns() == 0) return;
    weight_gradients();
    score_gradients();
    value_sums();
    key_sums();
    query_sums();
  }

  Index head() const { return spot_.b * call_.sizes.q_heads + spot_.h; }
  const float* values_table() const {
    const auto& table = call_.in.terms.values;
    return table.data() + table_head(table, spot_.h) * table.stride(0) + scores_.range().first * table.stride(1);
  }
  kernels::Matrix dout_rows() const { return rows_of(dout_, spot_.b, spot_.h, spot_.row, spot_.rows); }
  // The part of a block of scores that belongs to a range of keys.
  kernels::Matrix part_of(const Scratch& x, const KeyRange& range) const {
    return {x.row(0) + range.column, spot_.rows, range.keys, x.stride(), 1};
  }

  void weight_gradients();
  void score_gradients();
  void value_sums();
  void key_sums();
  void query_sums();
  void add_to_table(Tensor<float>& sums, const kernels::Matrix& by_distance, Index dim);
  static void store(const Scratch& from, Tensor<float>& to, Index at) {
    for (Index j = 0; j < from.rows(); ++j)
      std::copy_n(from.row(j), from.cols(), to.data() + (at * from.rows() + j) * from.cols());
  }

  const RelativeCall& call_;
  View<const float, 4> dout_;
  const RelativeResult<float>& forward_;
  RelativeGradients& gradients_;
  HeadSums& sums_;
  RelativeScores scores_;
  RelativeSpot spot_{};
  Scratch dk_, dv_, dscores_, by_distance_, part_, dq_;
  PackedMatrix panels_;
};

// dscores_ = dout . (v + values of the distance).
void RelativeBackward::weight_gradients() {
  const Sizes& sizes = call_.sizes;
  dscores_.resize(spot_.rows, scores_.columns());
  const kernels::Kernels& kernels = kernels::active();
  const kernels::Matrix dout = dout_rows();
  for (const auto& [key, keys, column, coverage] : scores_.key_ranges()) {
    if (coverage == Coverage::none) {
      for (Index i = 0; i < spot_.rows; ++i) std::fill_n(dscores_.row(i) + column, keys, 0.0f);
      continue;
    }
    panels_.pack(transposed(rows_of(call_.in.v, spot_.b, spot_.h / sizes.group(), key, keys)));
    kernels.product({dout.floats(), dout.row_stride, dout.depth_stride, panels_.data(),
                     kernels.column_tile * panels_.depth(), kernels.column_tile, dscores_.row(0) + column,
                     dscores_.stride(), spot_.rows, keys, panels_.depth(), false});
  }
  const auto& table = call_.in.terms.values;
  if (!table.given()) return;
  panels_.pack(transposed({values_table(), scores_.range().count, sizes.value_dim, table.stride(1), table.stride(2)}));
  by_distance_.resize(spot_.rows, scores_.range().count);
  multiply(by_distance_, dout, panels_);
  scores_.spread(dscores_, by_distance_);
}

// Scores become weights, and dscores_ their gradients. Hidden pairs pass nothing on.
void RelativeBackward::score_gradients() {
  const Sizes& sizes = call_.sizes;
  const Index first = head() * sizes.q_len + spot_.row;
  std::vector<float> shared(static_cast<std::size_t>(spot_.rows));
  const float* out = forward_.out.data() + first * sizes.value_dim;
  kernels::active().row_dots({out, spot_.rows, sizes.value_dim, sizes.value_dim, 1}, dout_rows(), shared.data());
  const kernels::Tile gradients{dscores_.row(0), dscores_.stride(), spot_.rows, scores_.columns()};
  kernels::active().softmax_gradient(
      {scores_.tile(), gradients, forward_.lse.data() + first, shared.data(), nullptr, 1.0f});
}

void RelativeBackward::value_sums() {
  const Scratch& weights = scores_.scores();
  panels_.pack(dout_rows());
  for (const KeyRange& range : scores_.key_ranges())
    if (range.coverage != Coverage::none)
      add_where_nonzero(dv_, range.key, transposed(part_of(weights, range)), panels_);
  if (!call_.in.terms.values.given()) return;
  scores_.gather(by_distance_, weights);
  add_to_table(sums_.values, by_distance_.matrix(), call_.sizes.value_dim);
}

// panels_ holds what each row brings: adds by_distance^T . panels_ to the head's table.
void RelativeBackward::add_to_table(Tensor<float>& sums, const kernels::Matrix& by_distance, Index dim) {
  const auto range = scores_.range();
  part_.resize(range.count, dim);
  part_.zero();
  add_where_nonzero(part_, 0, transposed(by_distance), panels_);
  float* to = sums.data() + (head() * call_.distances() + range.first) * dim;
  for (Index d = 0; d < range.count; ++d) add_row(to + d * dim, part_.row(d), dim);
}

void RelativeBackward::key_sums() {
  panels_.pack(scores_.content_queries().matrix());
  for (const KeyRange& range : scores_.key_ranges())
    if (range.coverage != Coverage::none)
      add_where_nonzero(dk_, range.key, transposed(part_of(dscores_, range)), panels_);
  scores_.gather(by_distance_, dscores_);
  panels_.pack(scores_.position_queries().matrix());
  add_to_table(sums_.keys, by_distance_.matrix(), call_.sizes.head_dim);
}

void RelativeBackward::query_sums() {
  const Sizes& sizes = call_.sizes;
  const auto collect = [&](Tensor<float>& bias) {
    if (bias.empty()) return;
    for (Index i = 0; i < spot_.rows; ++i) add_row(bias.data() + head() * sizes.head_dim, part_.row(i), sizes.head_dim);
  };
  const auto& keys = call_.in.terms.keys;
  const float* table =
      keys.data() + table_head(keys, spot_.h) * keys.stride(0) + scores_.range().first * keys.stride(1);
  panels_.pack({table, scores_.range().count, sizes.head_dim, keys.stride(1), keys.stride(2)}, call_.scale);
  part_.resize(spot_.rows, sizes.head_dim);
  part_.zero();
  add_where_nonzero(part_, 0, by_distance_.matrix(), panels_);
  collect(sums_.position_bias);
  dq_.resize(spot_.rows, sizes.head_dim);
  for (Index i = 0; i < spot_.rows; ++i) std::copy_n(part_.row(i), sizes.head_dim, dq_.row(i));
  part_.zero();
  for (const KeyRange& range : scores_.key_ranges()) {
    if (range.coverage == Coverage::none) continue;
    panels_.pack(rows_of(call_.in.k, spot_.b, spot_.h / sizes.group(), range.key, range.keys), call_.scale);
    add_where_nonzero(part_, 0, part_of(dscores_, range), panels_);
  }
  collect(sums_.content_bias);
  float* to = gradients_.dq.data() + (head() * sizes.q_len + spot_.row) * sizes.head_dim;
  for (Index i = 0; i < spot_.rows; ++i)
    for (Index d = 0; d < sizes.head_dim; ++d) to[i * sizes.head_dim + d] = dq_.row(i)[d] + part_.row(i)[d];
}

// Sums over batch entries, and over heads where they share: `wanted` is the
// shape of what the gradient belongs to.
Tensor<float> shared_sum(const Tensor<float>& sums, const Sizes& sizes, const Shape& wanted) {
  Tensor<double> total(wanted);
  const Index one = wanted[0] == 0 ? 0 : total.count() / wanted[0];
  for (Index head = 0; head < sizes.batch * sizes.q_heads; ++head) {
    const Index to = wanted[0] == 1 ? 0 : head % sizes.q_heads * one;
    for (Index i = 0; i < one; ++i) total[to + i] += static_cast<double>(sums[head * one + i]);
  }
  Tensor<float> result(wanted);
  for (Index i = 0; i < total.count(); ++i) result[i] = static_cast<float>(total[i]);
  return result;
}

template <int Rank>
Tensor<float> sums_for(const View<const float, Rank>& table, Index heads) {
  if (!table.given()) return {};
  Shape shape = shape_of(table);
  shape[0] = heads;
  return Tensor<float>(shape);
}

}  // namespace
}  // namespace detail

RelativeGradients relative_attend_backward(View<const float, 4> dout, const RelativeInputs& inputs,
                                           const RelativeResult<float>& forward) {
  const char* name = "relative_attend_backward";
  const detail::RelativeCall call = detail::make_relative_call(name, inputs);
  const auto& sizes = call.sizes;
  const Shape out{sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim};
  detail::check_equal(name, "dout", detail::shape_of(dout), out);
  detail::check_equal(name, "forward.out", forward.out.shape(), out);
  detail::check_equal(name, "forward.lse", forward.lse.shape(), {sizes.batch, sizes.q_heads, sizes.q_len});
  RelativeGradients gradients;
  gradients.dq = Tensor<float>(detail::shape_of(inputs.q));
  gradients.dk = Tensor<float>(detail::shape_of(inputs.k));
  gradients.dv = Tensor<float>(detail::shape_of(inputs.v));
  const auto& terms = inputs.terms;
  const Index heads = sizes.batch * sizes.q_heads;
  detail::HeadSums sums{detail::sums_for(terms.keys, heads), detail::sums_for(terms.values, heads),
                        detail::sums_for(terms.content_bias, heads), detail::sums_for(terms.position_bias, heads)};
  std::vector<std::optional<detail::RelativeBackward>> workers(static_cast<std::size_t>(threads()));
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index item, int thread) {
    auto& worker = workers[static_cast<std::size_t>(thread)];
    if (!worker) worker.emplace(call, dout, forward, gradients, sums);
    worker->run(item / sizes.kv_heads, item % sizes.kv_heads);
  });
  gradients.dkeys = detail::shared_sum(sums.keys, sizes, detail::shape_of(terms.keys));
  if (terms.values.given()) gradients.dvalues = detail::shared_sum(sums.values, sizes, detail::shape_of(terms.values));
  if (terms.content_bias.given())
    gradients.dcontent_bias = detail::shared_sum(sums.content_bias, sizes, detail::shape_of(terms.content_bias));
  if (terms.position_bias.given())
    gradients.dposition_bias = detail::shared_sum(sums.position_bias, sizes, detail::shape_of(terms.position_bias));
  return gradients;
}

}  // namespace regard
