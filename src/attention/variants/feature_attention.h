// Attention through features of queries and keys, in time and memory linear in
// length: what linear attention and the Performer share.
//
//   out_i = sum_j phi(q_i) . phi(k_j) v_j / sum_j phi(q_i) . phi(k_j)
//
// The sums over keys live in a state of [features, value_dim + 1]: the last
// column carries the denominator, as if every value ended in a 1.
#pragma once

#include <limits>
#include <vector>

#include "attention/call.h"
#include "attention/problem.h"
#include "attention/variants/products.h"
#include "regard/linear_attention.h"

namespace regard::detail {

// Features of rows, or the logarithms of features (exponents).
class FeatureMap {
 public:
  virtual ~FeatureMap() = default;
  virtual Index count() const = 0;
  virtual bool gives_exponents() const = 0;
  // to [x.rows, count()].
  virtual void map(const kernels::Matrix& x, Scratch& to) const = 0;
  // dx [x.rows, x.depth] from the gradient of what map gave; may change dto.
  virtual void back(const kernels::Matrix& x, Scratch& dto, Scratch& dx) const = 0;
};

struct FeatureCall {
  Sizes sizes;
  View<const float, 4> q, k, v;
  LinearOptions options;
  const FeatureMap& map;
  std::vector<Index> first_keys;  // of each batch entry: the first that may be attended, or no_key

  static constexpr Index no_key = std::numeric_limits<Index>::max();
  Index q_start(Index b) const { return options.q_start.of(b, sizes.q_len, sizes.kv_len); }
  bool has_key(Index b, Index key) const {
    const auto& mask = options.key_mask;
    return !mask.given() || mask(mask.size(0) == 1 ? 0 : b, key) != 0;
  }
  // Whether a query sees any key, or any query a key, whatever they hold.
  bool query_sees(Index b, Index row) const {
    const Index first = first_keys[static_cast<std::size_t>(b)];
    return first != no_key && (!options.causal || first <= q_start(b) + row);
  }
  bool key_is_seen(Index b, Index key) const {
    return has_key(b, key) && sizes.q_len > 0 && (!options.causal || key <= q_start(b) + sizes.q_len - 1);
  }
};

// Throws ArgumentError beginning with `name`.
FeatureCall make_feature_call(const char* name, const LinearInputs& inputs, const LinearOptions& options,
                              const FeatureMap& map);

// Rows mapped at a time, and the block within which causal pairs are met one by one.
constexpr Index feature_block = 64;

// What all keys so far add up to. Where features are exponentials, row f is
// relative to exp(max[f]), the largest key's, so that nothing over- or underflows.
struct FeatureState {
  Scratch sums;  // [features, value_dim + 1]
  std::vector<float> max;

  void reset(Index features, Index value_dim);
};

// Rows of keys with their features and values, and what they do to a state.
class KeyBlock {
 public:
  explicit KeyBlock(const FeatureCall& call) : call_(call) {}

  // Maps keys [key, key + count). What the key mask hides has features and values of 0.
  void load(Index b, Index kv_head, Index key, Index count);
  // Whether exponents rise so far within the block that its earlier queries would
  // lose theirs beside the later keys: the block is then to be taken in halves.
  bool rises(const FeatureState& state) const;
  // Raises state.max to cover the block, rescales the sums accordingly and makes
  // features of exponents.
  void settle(FeatureState& state);
  void add_to(FeatureState& state);

  Index count() const { return count_; }
  Index first() const { return key_; }
  kernels::Matrix rows() const;  // the keys themselves
  Scratch& features() { return features_; }
  Scratch& values() { return values_; }  // [count, value_dim + 1], last column 1

 private:
  void raise(FeatureState& state);

  const FeatureCall& call_;
  Index b_ = 0, kv_head_ = 0, key_ = 0, count_ = 0;
  Scratch features_, values_;
  PackedMatrix panels_;
};

// Features of queries, each row times a factor that numerator and denominator
// share: its largest feature comes out near 1. Rows that see no key are 0.
struct QueryFeatures {
  Scratch rows;
  std::vector<float> factors;  // of each row; exponents have none
};
// Queries [row, row + count) of one head relative to a state's maxima.
void load_queries(const FeatureCall& call, const Spot& spot, const FeatureState& state, QueryFeatures& features);

// Keeps pair (i, j) of a causal block where key j stands at or before query i.
void keep_causal(Scratch& pairs, Index rows, Index first_query, Index first_key, Index keys);

// Positions [first, first + count), and the queries that stand there: rows [row, row + count).
struct Positions {
  Index first, count;
  Positions first_half() const { return {first, count / 2}; }
  Positions second_half() const { return {first + count / 2, count - count / 2}; }
};
struct QueryRows {
  Index row, count;
};
QueryRows queries_at(const FeatureCall& call, Index b, const Positions& at);

// Blocks of positions end with the last query or the last block of keys; rows
// behind the latter see all keys.
Index causal_end(const FeatureCall& call, Index b);
Index first_row_after_keys(const FeatureCall& call, Index b);

// dout and what the forward pass left must have the call's sizes.
void check_feature_backward(const char* name, const FeatureCall& call, const View<const float, 4>& dout,
                            const LinearResult<float>& forward);

LinearResult<float> feature_attend(const FeatureCall& call);
LinearGradients feature_attend_backward(const FeatureCall& call, View<const float, 4> dout,
                                        const LinearResult<float>& forward);

// New tokens (causal among themselves) against states [batch * kv_heads] of all before.
LinearResult<float> feature_step(const FeatureCall& call, std::vector<FeatureState>& states);

}  // namespace regard::detail
