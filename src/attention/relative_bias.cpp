// Relative position buckets as a score modifier and as a tensor.
#include "regard/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "regard/error.h"

namespace regard {
namespace {

// Buckets of one direction: its first ones hold one distance each.
struct Direction {
  Index count, exact;
};

Direction direction_of(const RelativeBuckets& rule) {
  const Index count = rule.bidirectional ? rule.buckets / 2 : rule.buckets;
  return {count, count / 2};
}

// Buckets are looked up in a table of all distances up to max_distance.
constexpr Index farthest_distance = Index{1} << 24;

void check(const RelativeBuckets& rule) {
  const Direction direction = direction_of(rule);
  if (rule.bidirectional && rule.buckets % 2 != 0)
    throw ArgumentError("relative buckets: " + std::to_string(rule.buckets) + " can't be halved for two directions");
  if (direction.count < 2)
    throw ArgumentError("relative buckets: " + std::to_string(rule.buckets) + " leave fewer than 2 for a direction");
  if (rule.max_distance <= direction.exact)
    throw ArgumentError("relative buckets: max_distance " + std::to_string(rule.max_distance) + " must exceed the " +
                        std::to_string(direction.exact) + " distances with buckets of their own");
  if (rule.max_distance > farthest_distance)
    throw ArgumentError("relative buckets: max_distance " + std::to_string(rule.max_distance) +
                        " is beyond 2^24, the size of the table of distances");
}

// The bucket of a distance >= 0 within its direction.
Index one_way(Index distance, const Direction& direction, Index max_distance) {
  if (distance < direction.exact) return distance;
  if (distance >= max_distance) return direction.count - 1;
  const double exact = static_cast<double>(direction.exact), far = static_cast<double>(max_distance);
  const double share = std::log(static_cast<double>(distance) / exact) / std::log(far / exact);
  // The small addend lets exact powers land in their bucket whatever the logarithms round to.
  const double steps = share * static_cast<double>(direction.count - direction.exact) + 1e-9;
  return std::min(direction.exact + static_cast<Index>(steps), direction.count - 1);
}

Index bucket_of(Index distance, const RelativeBuckets& rule) {
  const Direction direction = direction_of(rule);
  if (!rule.bidirectional) return one_way(std::max<Index>(0, -distance), direction, rule.max_distance);
  const Index side = distance > 0 ? direction.count : 0;
  return side + one_way(std::abs(distance), direction, rule.max_distance);
}

// Buckets of distances -max ... max, looked up instead of computed.
class BucketLookup {
 public:
  explicit BucketLookup(const RelativeBuckets& rule) : farthest_(rule.max_distance) {
    check(rule);
    for (Index distance = -farthest_; distance <= farthest_; ++distance)
      buckets_.push_back(static_cast<std::int32_t>(bucket_of(distance, rule)));
  }
  std::int32_t operator()(Index distance) const {
    return buckets_[static_cast<std::size_t>(std::clamp(distance, -farthest_, farthest_) + farthest_)];
  }

 private:
  Index farthest_;
  std::vector<std::int32_t> buckets_;
};

template <class T>
void check_table(const View<const T, 2>& table, const RelativeBuckets& rule) {
  if (table.size(0) != rule.buckets)
    throw ArgumentError("relative_bias: table " + table.text() + " needs shape [buckets,heads] with " +
                        std::to_string(rule.buckets) + " buckets");
}

// Distances key - query of a tile's diagonals: the tile of i rows and j keys has
// rows + keys - 1 of them, and diagonal j - i + rows - 1 holds pair (i, j).
Index diagonals(const auto& tile) { return tile.rows + tile.keys - 1; }
Index distance_of(const TileOrigin& origin, Index diagonal, Index rows) {
  return origin.key - origin.query + diagonal - (rows - 1);
}

constexpr float hidden = -std::numeric_limits<float>::infinity();

class RelativeBias final : public ScoreModifier {
 public:
  template <class T>
  RelativeBias(const View<const T, 2>& table, const RelativeBuckets& rule)
      : lookup_(rule), heads_(table.size(1)), table_({table.size(0), heads_}), exact_({table.size(0), heads_}) {
    for (Index n = 0; n < table_.count(); ++n) {
      exact_[n] = static_cast<double>(table(n / heads_, n % heads_));
      table_[n] = static_cast<float>(exact_[n]);
    }
  }
  std::string name() const override { return "relative bias"; }

  bool apply(const ScoreTile<float>& tile, const TileOrigin& origin) const override {
    thread_local std::vector<float> values;
    values.resize(static_cast<std::size_t>(diagonals(tile)));
    for (Index n = 0; n < diagonals(tile); ++n)
      values[static_cast<std::size_t>(n)] = table_[parameter(distance_of(origin, n, tile.rows), origin.head)];
    const bool hides = std::count(values.begin(), values.end(), hidden) > 0;
    for (std::int32_t i = 0; i < tile.rows; ++i) {
      float* row = tile.scores + i * tile.stride;
      const float* add = values.data() + tile.rows - 1 - i;
      for (std::int32_t j = 0; j < tile.keys; ++j) row[j] += add[j];
      // A table entry of -inf hides whatever the score is, +inf and NaN included.
      for (std::int32_t j = 0; hides && j < tile.keys; ++j) row[j] = add[j] == hidden ? hidden : row[j];
    }
    return hides;
  }
  double apply_one(double score, const Position& at) const override {
    const double add = exact_[parameter(-Index{at.distance()}, at.head())];
    return std::isinf(add) && add < 0 ? add : score + add;
  }
  bool differentiable() const override { return true; }
  void chain(const ScoreTile<float>&, const float*, const TileOrigin&) const override {}
  double derivative_one(double, const Position&) const override { return 1.0; }

  Index parameter_count() const override { return table_.count(); }
  void add_parameter_gradient(const ScoreTile<const float>& gradients, const float*, const TileOrigin& origin,
                              std::span<double> sums) const override {
    thread_local std::vector<double> along;
    along.assign(static_cast<std::size_t>(diagonals(gradients)), 0.0);
    for (std::int32_t i = 0; i < gradients.rows; ++i) {
      const float* row = gradients.scores + i * gradients.stride;
      double* to = along.data() + gradients.rows - 1 - i;
      for (std::int32_t j = 0; j < gradients.keys; ++j) to[j] += static_cast<double>(row[j]);
    }
    for (Index n = 0; n < diagonals(gradients); ++n)
      sums[static_cast<std::size_t>(parameter(distance_of(origin, n, gradients.rows), origin.head))] +=
          along[static_cast<std::size_t>(n)];
  }
  void add_parameter_gradient_one(double gradient, double, const Position& at, std::span<double> sums) const override {
    sums[static_cast<std::size_t>(parameter(-Index{at.distance()}, at.head()))] += gradient;
  }
  void check(const ScoreShape& shape) const override {
    if (heads_ != shape.q_heads)
      throw ArgumentError("relative_bias: table " + table_.text() + " has " + std::to_string(heads_) +
                          " heads but q has " + std::to_string(shape.q_heads));
  }

 private:
  Index parameter(Index distance, Index head) const { return lookup_(distance) * heads_ + head; }

  BucketLookup lookup_;
  Index heads_;
  Tensor<float> table_;   // [buckets, heads]
  Tensor<double> exact_;  // for the reference
};

Index single_start(const QueryStart& q_start, Index q_len, Index kv_len) {
  if (q_start.count() > 1)
    throw ArgumentError("relative_bias_tensor: q_start has " + std::to_string(q_start.count()) +
                        " entries but one tensor serves the whole batch; use the score modifier");
  return q_start.of(0, q_len, kv_len);
}

template <class T>
Tensor<T> tensor_of(View<const T, 2> table, const RelativeBuckets& rule, Index q_len, Index kv_len,
                    const QueryStart& q_start) {
  check_table(table, rule);
  const BucketLookup lookup(rule);
  const Index first = single_start(q_start, q_len, kv_len);
  auto bias = Tensor<T>::uninitialised({1, table.size(1), q_len, kv_len});
  T* to = bias.data();
  for (Index h = 0; h < table.size(1); ++h)
    for (Index i = 0; i < q_len; ++i)
      for (Index j = 0; j < kv_len; ++j) *to++ = table(lookup(j - (first + i)), h);
  return bias;
}

template <class T>
Tensor<T> table_gradient(View<const T, 4> dbias, const RelativeBuckets& rule, const QueryStart& q_start) {
  const BucketLookup lookup(rule);
  const Index heads = dbias.size(1), q_len = dbias.size(2), kv_len = dbias.size(3);
  const Index first = single_start(q_start, q_len, kv_len);
  std::vector<double> sums(static_cast<std::size_t>(rule.buckets * heads));
  for (Index b = 0; b < dbias.size(0); ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < q_len; ++i)
        for (Index j = 0; j < kv_len; ++j)
          sums[static_cast<std::size_t>(lookup(j - (first + i)) * heads + h)] += static_cast<double>(dbias(b, h, i, j));
  auto gradient = Tensor<T>::uninitialised({rule.buckets, heads});
  for (Index n = 0; n < gradient.count(); ++n) gradient[n] = static_cast<T>(sums[static_cast<std::size_t>(n)]);
  return gradient;
}

}  // namespace

Index relative_bucket(Index distance, const RelativeBuckets& rule) {
  check(rule);
  return bucket_of(distance, rule);
}

ScoreModifiers relative_bias(View<const float, 2> table, const RelativeBuckets& rule) {
  check_table(table, rule);
  return ScoreModifiers(std::make_shared<RelativeBias>(table, rule));
}
ScoreModifiers relative_bias(View<const double, 2> table, const RelativeBuckets& rule) {
  check_table(table, rule);
  return ScoreModifiers(std::make_shared<RelativeBias>(table, rule));
}

Tensor<float> relative_bias_tensor(View<const float, 2> table, const RelativeBuckets& rule, Index q_len, Index kv_len,
                                   const QueryStart& q_start) {
  return tensor_of(table, rule, q_len, kv_len, q_start);
}
Tensor<double> relative_bias_tensor(View<const double, 2> table, const RelativeBuckets& rule, Index q_len, Index kv_len,
                                    const QueryStart& q_start) {
  return tensor_of(table, rule, q_len, kv_len, q_start);
}

Tensor<float> relative_bias_backward(View<const float, 4> dbias, const RelativeBuckets& rule,
                                     const QueryStart& q_start) {
  return table_gradient(dbias, rule, q_start);
}
Tensor<double> relative_bias_backward(View<const double, 4> dbias, const RelativeBuckets& rule,
                                      const QueryStart& q_start) {
  return table_gradient(dbias, rule, q_start);
}

}  // namespace regard
