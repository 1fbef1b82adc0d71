// Forward pass of attention through features: the state of all keys, blocks of
// queries against it, and the causal blocks in which pairs meet one by one.
#include "attention/variants/feature_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "attention/call.h"
#include "attention/variants/row_loops.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// The maxima to subtract: 0 where there is no key yet.
std::vector<float> references_of(const FeatureState& state) {
  std::vector<float> references = state.max;
  std::replace(references.begin(), references.end(), minus_infinity, 0.0f);
  return references;
}

// exp of every element, which is 0 or less.
void exponentiate(Scratch& x, Index rows) {
  const std::vector<float> zeros(static_cast<std::size_t>(rows), 0.0f), ones(static_cast<std::size_t>(rows), 1.0f);
  kernels::active().weights({x.row(0), x.stride(), rows, x.cols()}, zeros.data(), ones.data());
}

void check_key_mask(const char* name, const LinearOptions& options, const Sizes& sizes) {
  const auto& mask = options.key_mask;
  if (!mask.given()) return;
  if ((mask.size(0) != 1 && mask.size(0) != sizes.batch) || mask.size(1) != sizes.kv_len)
    throw ArgumentError(std::string(name) + ": key_mask " + mask.text() +
                        " needs [batch or 1,kv_len] = " + shape_text(Shape{sizes.batch, sizes.kv_len}));
}

}  // namespace

FeatureCall make_feature_call(const char* name, const LinearInputs& inputs, const LinearOptions& options,
                              const FeatureMap& map) {
  const Sizes sizes = check_shapes(name, inputs.q.sizes(), inputs.k.sizes(), inputs.v.sizes());
  AttendOptions known;
  known.q_start = options.q_start;
  check_options(name, sizes, known);
  check_key_mask(name, options, sizes);
  FeatureCall call{sizes, inputs.q, inputs.k, inputs.v, options, map, {}};
  for (Index b = 0; b < sizes.batch; ++b) {
    Index first = 0;
    while (first < sizes.kv_len && !call.has_key(b, first)) ++first;
    call.first_keys.push_back(first < sizes.kv_len ? first : FeatureCall::no_key);
  }
  return call;
}

void check_feature_backward(const char* name, const FeatureCall& call, const View<const float, 4>& dout,
                            const LinearResult<float>& forward) {
  const Sizes& sizes = call.sizes;
  const Shape out{sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim};
  check_equal(name, "dout", shape_of(dout), out);
  check_equal(name, "forward.out", forward.out.shape(), out);
  check_equal(name, "forward.normaliser", forward.normaliser.shape(), {sizes.batch, sizes.q_heads, sizes.q_len});
}

void FeatureState::reset(Index features, Index value_dim) {
  sums.resize(features, value_dim + 1);
  sums.zero();
  max.assign(static_cast<std::size_t>(features), minus_infinity);
}

kernels::Matrix KeyBlock::rows() const { return rows_of(call_.k, b_, kv_head_, key_, count_); }

void KeyBlock::load(Index b, Index kv_head, Index key, Index count) {
  b_ = b;
  kv_head_ = kv_head;
  key_ = key;
  count_ = count;
  const Index dim = call_.sizes.value_dim;
  features_.resize(count, call_.map.count());
  values_.resize(count, dim + 1);
  if (count == 0) return;
  call_.map.map(rows(), features_);
  const kernels::Matrix values = rows_of(call_.v, b, kv_head, key, count);
  const float nothing = call_.map.gives_exponents() ? minus_infinity : 0.0f;
  for (Index j = 0; j < count; ++j) {
    const bool present = call_.has_key(b, key + j);
    if (!present) std::fill_n(features_.row(j), features_.cols(), nothing);
    present ? copy_row(values, j, values_.row(j)) : void(std::fill_n(values_.row(j), dim, 0.0f));
    values_.row(j)[dim] = present ? 1.0f : 0.0f;
  }
}

bool KeyBlock::rises(const FeatureState& state) const {
  if (!call_.map.gives_exponents() || count_ < 2) return false;
  constexpr float too_far = 40.0f;
  const Index features = features_.cols();
  // What the first query sees, or the first key present where that is nothing.
  std::vector<float> seen = state.max, last(seen.size(), minus_infinity);
  if (call_.has_key(b_, key_)) raise_row(seen.data(), features_.row(0), features);
  Index present = 0;
  while (present < count_ - 1 && !call_.has_key(b_, key_ + present)) ++present;
  for (Index j = 0; j < count_; ++j) raise_row(last.data(), features_.row(j), features);
  for (Index f = 0; f < features; ++f) {
    const auto at = static_cast<std::size_t>(f);
    const float from = seen[at] == minus_infinity ? features_.row(present)[f] : seen[at];
    if (last[at] - from > too_far) return true;
  }
  return false;
}

void KeyBlock::settle(FeatureState& state) {
  if (call_.map.gives_exponents() && count_ > 0) raise(state);
}

void KeyBlock::raise(FeatureState& state) {
  const Index features = features_.cols();
  const std::vector<float> before = state.max;
  for (Index j = 0; j < count_; ++j) raise_row(state.max.data(), features_.row(j), features);
  for (Index f = 0; f < features; ++f) {
    const float was = before[static_cast<std::size_t>(f)], now = state.max[static_cast<std::size_t>(f)];
    if (was != now) scale_row(state.sums.row(f), std::exp(was - now), state.sums.cols());
  }
  const std::vector<float> reference = references_of(state);
  for (Index j = 0; j < count_; ++j) subtract_row(features_.row(j), reference.data(), features);
  exponentiate(features_, count_);
}

void KeyBlock::add_to(FeatureState& state) {
  if (count_ == 0) return;
  panels_.pack(values_.matrix());
  multiply(state.sums, transposed(features_.matrix()), panels_, Into::sum);
}

namespace {

// Every row times the power of two that brings its largest feature near 1.
void level_rows(Scratch& features, std::vector<float>& factors) {
  factors.assign(static_cast<std::size_t>(features.rows()), 1.0f);
  for (Index i = 0; i < features.rows(); ++i) {
    const float largest = *std::max_element(features.row(i), features.row(i) + features.cols());
    if (!std::isfinite(largest) || largest == 0.0f) continue;
    const float factor = std::ldexp(1.0f, -std::clamp(std::ilogb(largest), -100, 100));
    factors[static_cast<std::size_t>(i)] = factor;
    scale_row(features.row(i), factor, features.cols());
  }
}

// Every row relative to its own maximum: numerator and denominator share it.
void exponentiate_rows(Scratch& features, const FeatureState& state) {
  const Index count = features.rows();
  const std::vector<float> reference = references_of(state);
  for (Index i = 0; i < count; ++i) add_row(features.row(i), reference.data(), features.cols());
  std::vector<float> max(static_cast<std::size_t>(count), minus_infinity), sum(max.size());
  kernels::active().softmax_step(
      {{features.row(0), features.stride(), count, features.cols()}, max.data(), sum.data(), nullptr, nullptr, 0, 0});
}

}  // namespace

void load_queries(const FeatureCall& call, const Spot& spot, const FeatureState& state, QueryFeatures& features) {
  Scratch& to = features.rows;
  to.resize(spot.rows, call.map.count());
  call.map.map(rows_of(call.q, spot.b, spot.h, spot.row, spot.rows), to);
  call.map.gives_exponents() ? exponentiate_rows(to, state) : level_rows(to, features.factors);
  for (Index i = 0; i < spot.rows; ++i)
    if (!call.query_sees(spot.b, spot.row + i)) std::fill_n(to.row(i), to.cols(), 0.0f);
}

void keep_causal(Scratch& pairs, Index rows, Index first_query, Index first_key, Index keys) {
  for (Index i = 0; i < rows; ++i) {
    const Index end = std::clamp<Index>(first_query + i + 1 - first_key, 0, keys);
    std::fill(pairs.row(i) + end, pairs.row(i) + keys, 0.0f);
  }
}

QueryRows queries_at(const FeatureCall& call, Index b, const Positions& at) {
  const Index begin = std::clamp<Index>(at.first - call.q_start(b), 0, call.sizes.q_len);
  const Index end = std::clamp<Index>(at.first + at.count - call.q_start(b), begin, call.sizes.q_len);
  return {begin, end - begin};
}

Index causal_end(const FeatureCall& call, Index b) {
  return std::min(call.q_start(b) + call.sizes.q_len, kernels::padded(call.sizes.kv_len, feature_block));
}

Index first_row_after_keys(const FeatureCall& call, Index b) {
  return std::clamp<Index>(kernels::padded(call.sizes.kv_len, feature_block) - call.q_start(b), 0, call.sizes.q_len);
}

namespace {

// One thread's work on one key head and the query heads that share it.
class FeatureForward {
 public:
  FeatureForward(const FeatureCall& call, LinearResult<float>& result) : call_(call), result_(result), keys_(call) {}

  void run(Index b, Index kv_head, FeatureState& state) {
    b_ = b;
    kv_head_ = kv_head;
    call_.options.causal ? causal(state) : bidirectional(state);
  }

 private:
  void bidirectional(FeatureState& state) {
    const Sizes& sizes = call_.sizes;
    for (Index key = 0; key < sizes.kv_len; key += feature_block) {
      keys_.load(b_, kv_head_, key, std::min(feature_block, sizes.kv_len - key));
      keys_.settle(state);
      keys_.add_to(state);
    }
    meet_all_keys(0, state);
  }

  // Rows from `first` on, which see the whole state.
  void meet_all_keys(Index first, const FeatureState& state) {
    const Sizes& sizes = call_.sizes;
    sums_.pack(state.sums.matrix());
    for (Index h = first_head(); h < first_head() + sizes.group(); ++h)
      for (Index row = first; row < sizes.q_len; row += feature_block)
        meet_state(h, {row, std::min(feature_block, sizes.q_len - row)}, state);
  }

  // Blocks of positions in order: queries meet the state of all earlier blocks
  // and, pair by pair, the keys of their own.
  void causal(FeatureState& state) {
    const Index end = causal_end(call_, b_);
    for (Index position = 0; position < end; position += feature_block) causal_block({position, feature_block}, state);
    meet_all_keys(first_row_after_keys(call_, b_), state);
  }

  void causal_block(const Positions& at, FeatureState& state) {
    const Index kv_len = call_.sizes.kv_len;
    keys_.load(b_, kv_head_, std::min(at.first, kv_len), std::clamp<Index>(kv_len - at.first, 0, at.count));
    if (keys_.rises(state)) {
      causal_block(at.first_half(), state);
      return causal_block(at.second_half(), state);
    }
    keys_.settle(state);
    const QueryRows rows = queries_at(call_, b_, at);
    if (rows.count > 0) {
      sums_.pack(state.sums.matrix());
      values_.pack(keys_.values().matrix());
      features_.pack(transposed(keys_.features().matrix()));
      for (Index h = first_head(); h < first_head() + call_.sizes.group(); ++h) meet_state_and_block(h, rows, state);
    }
    keys_.add_to(state);
  }

  Index first_head() const { return kv_head_ * call_.sizes.group(); }

  void meet_state(Index h, const QueryRows& rows, const FeatureState& state) {
    load_queries(call_, {b_, h, rows.row, rows.count, 0, 0}, state, queries_);
    out_.resize(rows.count, call_.sizes.value_dim + 1);
    multiply(out_, queries_.rows.matrix(), sums_);
    write(h, rows);
  }

  void meet_state_and_block(Index h, const QueryRows& rows, const FeatureState& state) {
    load_queries(call_, {b_, h, rows.row, rows.count, 0, 0}, state, queries_);
    out_.resize(rows.count, call_.sizes.value_dim + 1);
    multiply(out_, queries_.rows.matrix(), sums_);
    pairs_.resize(rows.count, keys_.count());
    multiply(pairs_, queries_.rows.matrix(), features_);
    keep_causal(pairs_, rows.count, call_.q_start(b_) + rows.row, keys_.first(), keys_.count());
    add_where_nonzero(out_, 0, pairs_.matrix(), values_);
    write(h, rows);
  }

  void write(Index h, const QueryRows& rows) {
    const Index dim = call_.sizes.value_dim;
    const Index first = (b_ * call_.sizes.q_heads + h) * call_.sizes.q_len + rows.row;
    for (Index i = 0; i < rows.count; ++i) {
      const float* from = out_.row(i);
      const float sum = call_.query_sees(b_, rows.row + i) ? from[dim] : 0.0f;
      result_.normaliser[first + i] = sum;
      float* to = result_.out.data() + (first + i) * dim;
      for (Index d = 0; d < dim; ++d) to[d] = sum == 0.0f ? 0.0f : from[d] / sum;
    }
  }

  const FeatureCall& call_;
  LinearResult<float>& result_;
  KeyBlock keys_;
  Index b_ = 0, kv_head_ = 0;
  QueryFeatures queries_;
  Scratch out_, pairs_;
  PackedMatrix sums_, values_, features_;
};

// Every key head with its state, which `state_of` gives.
template <class F>
LinearResult<float> run_heads(const FeatureCall& call, F state_of) {
  const Sizes& sizes = call.sizes;
  LinearResult<float> result{Tensor<float>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
                             Tensor<float>({sizes.batch, sizes.q_heads, sizes.q_len})};
  std::vector<std::optional<FeatureForward>> workers(static_cast<std::size_t>(threads()));
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index item, int thread) {
    auto& worker = workers[static_cast<std::size_t>(thread)];
    if (!worker) worker.emplace(call, result);
    worker->run(item / sizes.kv_heads, item % sizes.kv_heads, state_of(item, thread));
  });
  return result;
}

}  // namespace

LinearResult<float> feature_attend(const FeatureCall& call) {
  std::vector<FeatureState> states(static_cast<std::size_t>(threads()));
  return run_heads(call, [&](Index, int thread) -> FeatureState& {
    FeatureState& state = states[static_cast<std::size_t>(thread)];
    state.reset(call.map.count(), call.sizes.value_dim);
    return state;
  });
}

LinearResult<float> feature_step(const FeatureCall& call, std::vector<FeatureState>& states) {
  return run_heads(call, [&](Index item, int) -> FeatureState& { return states[static_cast<std::size_t>(item)]; });
}

}  // namespace regard::detail
