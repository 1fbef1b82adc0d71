// Backward pass of attention through features. What flows back into each row is
// dout / D with -(dout . out) / D for the denominator: one column more, as in the
// state. Stabilising maxima cancel between numerator and denominator, so they
// count as constants.
#include <algorithm>
#include <cmath>
#include <optional>

#include "attention/call.h"
#include "attention/variants/feature_attention.h"
#include "attention/variants/row_loops.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

class FeatureBackward {
 public:
  FeatureBackward(const FeatureCall& call, View<const float, 4> dout, const LinearResult<float>& forward,
                  LinearGradients& gradients)
      : call_(call), dout_(dout), forward_(forward), gradients_(gradients), keys_(call) {}

  void run(Index b, Index kv_head) {
    b_ = b;
    kv_head_ = kv_head;
    state_.reset(call_.map.count(), call_.sizes.value_dim);
    returned_.resize(call_.map.count(), call_.sizes.value_dim + 1);
    returned_.zero();
    call_.options.causal ? causal() : bidirectional();
  }

 private:
  Index first_head() const { return kv_head_ * call_.sizes.group(); }
  Index last_head() const { return first_head() + call_.sizes.group(); }
  Index kv_len() const { return call_.sizes.kv_len; }
  // Keys of a block of positions.
  void load_keys(const Positions& at) {
    const Index key = std::min(at.first, kv_len());
    keys_.load(b_, kv_head_, key, std::min(at.count, kv_len() - key));
  }
  // A causal block as the forward pass took it, with the maxima up to its end.
  struct Block {
    Positions at;
    std::vector<float> max;
  };

  void bidirectional();
  void meet_all_keys(Index first);
  void causal();
  void block_queries(const Positions& at, std::vector<Block>& blocks);
  void block_keys(const Block& block);
  void rescale_returned(const std::vector<float>& from, const std::vector<float>& to);

  void load_returned(Index h, const QueryRows& rows);
  void pair_gradients(const QueryRows& rows);
  void add_query_gradient(Index h, const QueryRows& rows);
  void key_block_gradients(const QueryRows& rows);
  void write_key_gradients();

  const FeatureCall& call_;
  View<const float, 4> dout_;
  const LinearResult<float>& forward_;
  LinearGradients& gradients_;
  KeyBlock keys_;
  Index b_ = 0, kv_head_ = 0;
  FeatureState state_;
  Scratch returned_;        // sum over queries of phi(q)^T dout', [features, value_dim + 1]
  QueryFeatures queries_;   // phi of a block of queries
  Scratch back_;            // and their dout'
  Scratch pairs_, dpairs_;  // phi(q) . phi(k) and dout' . v', causal ones only
  Scratch dqueries_, dkeys_, dvalues_, dx_;
  PackedMatrix panels_;
};

// back_ = dout', zeros for rows that see nothing.
void FeatureBackward::load_returned(Index h, const QueryRows& rows) {
  const Index dim = call_.sizes.value_dim;
  const kernels::Matrix dout = rows_of(dout_, b_, h, rows.row, rows.count);
  back_.resize(rows.count, dim + 1);
  for (Index i = 0; i < rows.count; ++i) {
    const Index at = (b_ * call_.sizes.q_heads + h) * call_.sizes.q_len + rows.row + i;
    const float sum = forward_.normaliser[at];
    float* to = back_.row(i);
    std::fill_n(to, dim + 1, 0.0f);
    if (sum == 0.0f) continue;
    const float* out = forward_.out.data() + at * dim;
    copy_row(dout, i, to);
    float dot = 0;
    for (Index d = 0; d < dim; ++d) {
      dot += to[d] * out[d];
      to[d] /= sum;
    }
    to[dim] = -dot / sum;
  }
}

// The gradient of a block's queries goes through the map to dq.
void FeatureBackward::add_query_gradient(Index h, const QueryRows& rows) {
  const Index features = call_.map.count();
  for (Index i = 0; i < rows.count; ++i)
    call_.map.gives_exponents() ? multiply_row(dqueries_.row(i), queries_.rows.row(i), features)
                                : scale_row(dqueries_.row(i), queries_.factors[static_cast<std::size_t>(i)], features);
  const kernels::Matrix x = rows_of(call_.q, b_, h, rows.row, rows.count);
  call_.map.back(x, dqueries_, dx_);
  const Index dim = call_.sizes.head_dim;
  float* to = gradients_.dq.data() + ((b_ * call_.sizes.q_heads + h) * call_.sizes.q_len + rows.row) * dim;
  for (Index i = 0; i < rows.count; ++i) {
    const float normaliser = forward_.normaliser[(b_ * call_.sizes.q_heads + h) * call_.sizes.q_len + rows.row + i];
    // A row that sees nothing has no gradient, whatever it holds.
    for (Index d = 0; d < dim; ++d) to[i * dim + d] = normaliser == 0.0f ? 0.0f : dx_.row(i)[d];
  }
}

void FeatureBackward::write_key_gradients() {
  const Index dim = call_.sizes.head_dim, value_dim = call_.sizes.value_dim;
  if (call_.map.gives_exponents())
    for (Index j = 0; j < keys_.count(); ++j) multiply_row(dkeys_.row(j), keys_.features().row(j), dkeys_.cols());
  call_.map.back(keys_.rows(), dkeys_, dx_);
  const Index first = (b_ * call_.sizes.kv_heads + kv_head_) * kv_len() + keys_.first();
  for (Index j = 0; j < keys_.count(); ++j) {
    // A key that no query sees has no gradient, whatever it holds.
    const bool present = call_.key_is_seen(b_, keys_.first() + j);
    float *dk = gradients_.dk.data() + (first + j) * dim, *dv = gradients_.dv.data() + (first + j) * value_dim;
    for (Index d = 0; d < dim; ++d) dk[d] = present ? dx_.row(j)[d] : 0.0f;
    for (Index d = 0; d < value_dim; ++d) dv[d] = present ? dvalues_.row(j)[d] : 0.0f;
  }
}

void FeatureBackward::bidirectional() {
  for (Index key = 0; key < kv_len(); key += feature_block) {
    load_keys({key, feature_block});
    keys_.settle(state_);
    keys_.add_to(state_);
  }
  meet_all_keys(0);
  for (Index key = 0; key < kv_len(); key += feature_block) {
    load_keys({key, feature_block});
    keys_.settle(state_);
    key_block_gradients({0, 0});
    write_key_gradients();
  }
}

// dq of the rows from `first` on, which see the whole state, and what they return.
void FeatureBackward::meet_all_keys(Index first) {
  PackedMatrix sums;
  sums.pack(transposed(state_.sums.matrix()));
  for (Index h = first_head(); h < last_head(); ++h)
    for (Index row = first; row < call_.sizes.q_len; row += feature_block) {
      const QueryRows rows{row, std::min(feature_block, call_.sizes.q_len - row)};
      load_queries(call_, {b_, h, row, rows.count, 0, 0}, state_, queries_);
      load_returned(h, rows);
      dqueries_.resize(rows.count, call_.map.count());
      multiply(dqueries_, back_.matrix(), sums);
      panels_.pack(back_.matrix());
      multiply(returned_, transposed(queries_.rows.matrix()), panels_, Into::sum);
      add_query_gradient(h, rows);
    }
}

// First keys to last for dq, then last to first for dk and dv.
void FeatureBackward::causal() {
  std::vector<Block> blocks;
  const Index end = causal_end(call_, b_);
  for (Index position = 0; position < end; position += feature_block) block_queries({position, feature_block}, blocks);
  meet_all_keys(first_row_after_keys(call_, b_));
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) block_keys(*block);
}

// pairs_ and dpairs_ of a block of queries and the keys of the same positions.
void FeatureBackward::pair_gradients(const QueryRows& rows) {
  const Index first = call_.q_start(b_) + rows.row;
  pairs_.resize(rows.count, keys_.count());
  panels_.pack(transposed(keys_.features().matrix()));
  multiply(pairs_, queries_.rows.matrix(), panels_);
  keep_causal(pairs_, rows.count, first, keys_.first(), keys_.count());
  dpairs_.resize(rows.count, keys_.count());
  panels_.pack(transposed(keys_.values().matrix()));
  multiply(dpairs_, back_.matrix(), panels_);
  keep_causal(dpairs_, rows.count, first, keys_.first(), keys_.count());
}

// dq, from the state of all earlier keys and the own block.
void FeatureBackward::block_queries(const Positions& at, std::vector<Block>& blocks) {
  load_keys(at);
  if (keys_.rises(state_)) {
    block_queries(at.first_half(), blocks);
    return block_queries(at.second_half(), blocks);
  }
  keys_.settle(state_);
  blocks.push_back({at, state_.max});
  const QueryRows rows = queries_at(call_, b_, at);
  for (Index h = first_head(); h < last_head() && rows.count > 0; ++h) {
    load_queries(call_, {b_, h, rows.row, rows.count, 0, 0}, state_, queries_);
    load_returned(h, rows);
    dqueries_.resize(rows.count, call_.map.count());
    panels_.pack(transposed(state_.sums.matrix()));
    multiply(dqueries_, back_.matrix(), panels_);
    pair_gradients(rows);
    panels_.pack(keys_.features().matrix());
    add_where_nonzero(dqueries_, 0, dpairs_.matrix(), panels_);
    add_query_gradient(h, rows);
  }
  keys_.add_to(state_);
}

// dk and dv, from what all later queries returned and the own block. Keys behind
// the last query are met by nobody.
void FeatureBackward::block_keys(const Block& block) {
  rescale_returned(state_.max, block.max);
  state_.max = block.max;
  load_keys(block.at);
  keys_.settle(state_);
  const QueryRows rows = queries_at(call_, b_, block.at);
  key_block_gradients(rows);
  if (keys_.count() > 0) write_key_gradients();
  for (Index h = first_head(); h < last_head() && rows.count > 0; ++h) {
    load_queries(call_, {b_, h, rows.row, rows.count, 0, 0}, state_, queries_);
    load_returned(h, rows);
    panels_.pack(back_.matrix());
    multiply(returned_, transposed(queries_.rows.matrix()), panels_, Into::sum);
  }
}

// What later queries returned is relative to maxima that only grew.
void FeatureBackward::rescale_returned(const std::vector<float>& from, const std::vector<float>& to) {
  if (!call_.map.gives_exponents()) return;
  for (std::size_t f = 0; f < to.size(); ++f) {
    if (from[f] == to[f]) continue;
    scale_row(returned_.row(static_cast<Index>(f)), std::exp(to[f] - from[f]), returned_.cols());
  }
}

// dkeys_ and dvalues_ from returned_ and, where rows are given, from the causal
// pairs of the block.
void FeatureBackward::key_block_gradients(const QueryRows& rows) {
  dkeys_.resize(keys_.count(), call_.map.count());
  dvalues_.resize(keys_.count(), call_.sizes.value_dim + 1);
  if (keys_.count() == 0) return;
  panels_.pack(transposed(returned_.matrix()));
  multiply(dkeys_, keys_.values().matrix(), panels_);
  panels_.pack(returned_.matrix());
  multiply(dvalues_, keys_.features().matrix(), panels_);
  for (Index h = first_head(); h < last_head() && rows.count > 0; ++h) {
    load_queries(call_, {b_, h, rows.row, rows.count, 0, 0}, state_, queries_);
    load_returned(h, rows);
    pair_gradients(rows);
    panels_.pack(queries_.rows.matrix());
    add_where_nonzero(dkeys_, 0, transposed(dpairs_.matrix()), panels_);
    panels_.pack(back_.matrix());
    add_where_nonzero(dvalues_, 0, transposed(pairs_.matrix()), panels_);
  }
}

}  // namespace

LinearGradients feature_attend_backward(const FeatureCall& call, View<const float, 4> dout,
                                        const LinearResult<float>& forward) {
  const Sizes& sizes = call.sizes;
  LinearGradients gradients{Tensor<float>(shape_of(call.q)), Tensor<float>(shape_of(call.k)),
                            Tensor<float>(shape_of(call.v))};
  std::vector<std::optional<FeatureBackward>> workers(static_cast<std::size_t>(threads()));
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index item, int thread) {
    auto& worker = workers[static_cast<std::size_t>(thread)];
    if (!worker) worker.emplace(call, dout, forward, gradients);
    worker->run(item / sizes.kv_heads, item % sizes.kv_heads);
  });
  return gradients;
}

}  // namespace regard::detail
