// A learned number for each kind of pair, as a score modifier.
#include "regard/pair_bias.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "regard/error.h"

namespace regard {
namespace {

constexpr double hidden = -std::numeric_limits<double>::infinity();

// [q_len, kv_len] or [batch or 1, q_len, kv_len] -> the latter.
Tensor<std::int32_t> with_batch(Tensor<std::int32_t> pairs) {
  if (pairs.rank() == 2) pairs.reshape({1, pairs.size(0), pairs.size(1)});
  if (pairs.rank() != 3)
    throw ArgumentError("pair_bias: pairs " + pairs.text() + " must be [q_len,kv_len] or [batch,q_len,kv_len]");
  return pairs;
}

template <class T>
Tensor<double> in_double(const View<const T, 2>& table) {
  Tensor<double> all({table.size(0), table.size(1)});
  for (Index bucket = 0; bucket < table.size(0); ++bucket)
    for (Index head = 0; head < table.size(1); ++head)
      all[bucket * table.size(1) + head] = static_cast<double>(table(bucket, head));
  return all;
}

class PairBias final : public ScoreModifier {
 public:
  PairBias(Tensor<double> table, const Tensor<std::int32_t>& pairs)
      : table_(std::move(table)), pairs_(with_batch(pairs)) {
    if (table_.size(0) < 1) throw ArgumentError("pair_bias: table " + table_.text() + " has no rows");
    for (Index head = 0; head < table_.size(1); ++head) {
      std::vector<float> column(1, 0.0f);
      for (Index bucket = 0; bucket < table_.size(0); ++bucket)
        column.push_back(static_cast<float>(table_[bucket * table_.size(1) + head]));
      hides_.push_back(std::count(column.begin(), column.end(), static_cast<float>(hidden)) > 0);
      columns_.push_back(std::move(column));
    }
  }
  std::string name() const override { return "pair bias"; }

  bool apply(const ScoreTile<float>& tile, const TileOrigin& origin) const override {
    const std::vector<float>& column = columns_[static_cast<std::size_t>(origin.head)];
    const bool hides = hides_[static_cast<std::size_t>(origin.head)] != 0;
    for (std::int32_t i = 0; i < tile.rows; ++i) {
      const std::int32_t* buckets = row(origin, i);
      float* scores = tile.scores + i * tile.stride;
      for (std::int32_t j = 0; j < tile.keys; ++j) {
        const float add = column[column_place(buckets[j])];
        // An entry of -inf hides whatever the score is, +inf and NaN included.
        scores[j] = hides && add == static_cast<float>(hidden) ? add : scores[j] + add;
      }
    }
    return hides;
  }
  double apply_one(double score, const Position& at) const override {
    const Index place = parameter(at);
    if (place < 0) return score;
    return table_[place] == hidden ? hidden : score + table_[place];
  }
  bool differentiable() const override { return true; }
  void chain(const ScoreTile<float>&, const float*, const TileOrigin&) const override {}
  double derivative_one(double, const Position&) const override { return 1.0; }

  Index parameter_count() const override { return table_.count(); }
  void add_parameter_gradient(const ScoreTile<const float>& gradients, const float*, const TileOrigin& origin,
                              std::span<double> sums) const override {
    thread_local std::vector<double> column;
    column.assign(static_cast<std::size_t>(table_.size(0)) + 1, 0.0);
    for (std::int32_t i = 0; i < gradients.rows; ++i) {
      const std::int32_t* buckets = row(origin, i);
      const float* from = gradients.scores + i * gradients.stride;
      for (std::int32_t j = 0; j < gradients.keys; ++j)
        column[column_place(buckets[j])] += static_cast<double>(from[j]);
    }
    for (Index bucket = 0; bucket < table_.size(0); ++bucket)
      sums[static_cast<std::size_t>(bucket * table_.size(1) + origin.head)] +=
          column[static_cast<std::size_t>(bucket) + 1];
  }
  void add_parameter_gradient_one(double gradient, double, const Position& at, std::span<double> sums) const override {
    if (const Index place = parameter(at); place >= 0) sums[static_cast<std::size_t>(place)] += gradient;
  }
  void check(const ScoreShape& shape) const override {
    if (table_.size(1) != shape.q_heads)
      throw ArgumentError("pair_bias: table " + table_.text() + " has " + std::to_string(table_.size(1)) +
                          " heads but q has " + std::to_string(shape.q_heads));
    if (pairs_.size(1) != shape.q_len || pairs_.size(2) != shape.kv_len ||
        (pairs_.size(0) != 1 && pairs_.size(0) != shape.batch))
      throw ArgumentError("pair_bias: pairs " + pairs_.text() + " but batch, q_len and kv_len are " +
                          shape_text({shape.batch, shape.q_len, shape.kv_len}));
  }

 private:
  const std::int32_t* row(const TileOrigin& origin, Index i) const {
    const Index entry = pairs_.size(0) == 1 ? 0 : origin.batch;
    return pairs_.data() + (entry * pairs_.size(1) + origin.row + i) * pairs_.size(2) + origin.key;
  }
  Index bounded(std::int32_t bucket) const { return std::min<Index>(bucket, table_.size(0) - 1); }
  // Place in `table_`, or -1 for a pair without a number.
  Index parameter(const Position& at) const {
    const std::int32_t bucket = row(at.tile, at.i)[at.j];
    return bucket < 0 ? -1 : bounded(bucket) * table_.size(1) + at.head();
  }
  // A column is one head's numbers, behind a 0 for pairs without one.
  std::size_t column_place(std::int32_t bucket) const {
    return bucket < 0 ? 0 : static_cast<std::size_t>(bounded(bucket)) + 1;
  }

  Tensor<double> table_;        // [buckets, heads]
  Tensor<std::int32_t> pairs_;  // [batch or 1, q_len, kv_len]
  std::vector<std::vector<float>> columns_;
  std::vector<std::uint8_t> hides_;  // whether a column holds -inf
};

}  // namespace

ScoreModifiers pair_bias(View<const float, 2> table, const Tensor<std::int32_t>& pairs) {
  return ScoreModifiers(std::make_shared<PairBias>(in_double(table), pairs));
}
ScoreModifiers pair_bias(View<const double, 2> table, const Tensor<std::int32_t>& pairs) {
  return ScoreModifiers(std::make_shared<PairBias>(in_double(table), pairs));
}

}  // namespace regard
