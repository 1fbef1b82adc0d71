// Whole matrices of weights in double precision, and what observers must say
// about them.
#pragma once

#include <algorithm>

#include "attention/cases.h"

namespace regard::testing {

// Segments of uneven lengths, one of them empty.
inline std::vector<Index> uneven_bounds(Index length) {
  return {0, length / 7, length / 7, length / 2 + length % 2, length};
}

inline Observe everything() {
  return {.lse = true,
          .entropy = true,
          .row_max = true,
          .distance = true,
          .top_k = 5,
          .key_mass = QueryRange{},
          .pooled_sum = MapSize{5, 7},
          .pooled_max = MapSize{6, 3},
          .diagonals = OffsetRange{},
          .weights = true};
}

// With segments, whose bounds depend on the lengths.
inline Observe everything(const Composition& c) {
  Observe all = everything();
  all.segment_sum = SegmentBounds{uneven_bounds(c.q.size(2)), uneven_bounds(c.k.size(2))};
  return all;
}

// Whole matrices [batch, heads, rows, keys], and what can be read off them.
struct Matrices {
  Tensor<double> weights, scores;

  Index heads() const { return weights.size(0) * weights.size(1); }
  Index rows() const { return weights.size(2); }
  Index keys() const { return weights.size(3); }
  double weight(Index head, Index i, Index j) const { return weights[(head * rows() + i) * keys() + j]; }

  Tensor<double> row_max() const {
    Tensor<double> result({weights.size(0), weights.size(1), rows()}, -std::numeric_limits<double>::infinity());
    for (Index at = 0; at < scores.count(); ++at) result[at / keys()] = std::max(result[at / keys()], scores[at]);
    return result;
  }
  Tensor<double> distance(const QueryStart& q_start) const {
    Tensor<double> result({weights.size(0), weights.size(1), rows()});
    for (Index at = 0; at < weights.count(); ++at) {
      const Index row = at / keys(), b = row / (rows() * weights.size(1));
      result[row] +=
          weights[at] * static_cast<double>(std::abs(q_start.of(b, rows(), keys()) + row % rows() - at % keys()));
    }
    return result;
  }
  Tensor<double> key_mass(Index begin, Index end) const {
    Tensor<double> result({weights.size(0), weights.size(1), keys()});
    for (Index head = 0; head < heads(); ++head)
      for (Index i = begin; i < end; ++i)
        for (Index j = 0; j < keys(); ++j) result[head * keys() + j] += weight(head, i, j);
    return result;
  }
  template <class F>
  Tensor<double> pooled(const MapSize& size, F join) const {
    Tensor<double> result({weights.size(0), weights.size(1), size.rows, size.columns});
    for (Index head = 0; head < heads(); ++head)
      for (Index r = 0; r < size.rows; ++r)
        for (Index c = 0; c < size.columns; ++c)
          for (Index i = r * rows() / size.rows; i < (r + 1) * rows() / size.rows; ++i)
            for (Index j = c * keys() / size.columns; j < (c + 1) * keys() / size.columns; ++j) {
              double& cell = result[(head * size.rows + r) * size.columns + c];
              cell = join(cell, weight(head, i, j));
            }
    return result;
  }
  Tensor<double> segments(const SegmentBounds& bounds) const {
    const std::size_t down = bounds.rows.size() - 1, across = bounds.keys.size() - 1;
    Tensor<double> result({weights.size(0), weights.size(1), static_cast<Index>(down), static_cast<Index>(across)});
    for (Index head = 0; head < heads(); ++head)
      for (std::size_t r = 0; r < down; ++r)
        for (std::size_t c = 0; c < across; ++c)
          for (Index i = bounds.rows[r]; i < bounds.rows[r + 1]; ++i)
            for (Index j = bounds.keys[c]; j < bounds.keys[c + 1]; ++j)
              result[(head * static_cast<Index>(down) + static_cast<Index>(r)) * static_cast<Index>(across) +
                     static_cast<Index>(c)] += weight(head, i, j);
    return result;
  }
  Tensor<double> diagonals(const QueryStart& q_start, Index first, Index count) const {
    Tensor<double> result({weights.size(0), weights.size(1), count});
    for (Index head = 0; head < heads(); ++head)
      for (Index i = 0; i < rows(); ++i)
        for (Index j = 0; j < keys(); ++j) {
          const Index offset = q_start.of(head / weights.size(1), rows(), keys()) + i - j;
          if (offset >= first && offset < first + count) result[head * count + offset - first] += weight(head, i, j);
        }
    return result;
  }
};

// From the reference's own weights and masked scores, head by head.
inline Matrices matrices_of(const Composition& c) {
  DoubleInputs wide(c);
  wide.options.observe = {.weights = true};
  const Index heads = c.q.size(1), rows = c.q.size(2), keys = c.k.size(2);
  for (Index head = 0; head < c.q.size(0) * heads; ++head)
    wide.options.observe.rectangles.push_back({head / heads, head % heads, 0, rows, 0, keys, Stage::masked});
  auto result = reference::attend(wide.q, wide.k, wide.v, wide.options);
  Matrices all{std::move(result.weights), Tensor<double>({c.q.size(0), heads, rows, keys})};
  double* to = all.scores.data();
  for (const auto& part : result.rectangles) to = std::copy(part.values().begin(), part.values().end(), to);
  return all;
}

// Numbers of either precision against those read off the matrices.
inline void expect_close(const char* what, const Tensor<float>& got, const Tensor<double>& wanted) {
  ASSERT_EQ(got.shape(), wanted.shape()) << what;
  const Errors found = errors(got, wanted);
  EXPECT_TRUE(found.special_values_agree) << what;
  EXPECT_LE(found.largest_error, 4e-6 * std::max(found.largest_value, 1e-3)) << what;
}
inline void expect_close(const char* what, const Tensor<double>& got, const Tensor<double>& wanted) {
  ASSERT_EQ(got.shape(), wanted.shape()) << what;
  for (Index i = 0; i < got.count(); ++i)
    ASSERT_TRUE(got[i] == wanted[i] || std::abs(got[i] - wanted[i]) <= 1e-12 * (1 + std::abs(wanted[i])))
        << what << " at " << i << ": " << got[i] << ", right is " << wanted[i];
}

// Each row's keys: different, in order, with weights that are the row's largest.
// Which of two keys comes first is free where float32 cannot tell them apart.
template <class T>
void expect_top_keys(const BasicAttendResult<T>& got, const Matrices& all, double tolerance) {
  const Index count = got.top_keys.size(3);
  std::vector<double> sorted(static_cast<std::size_t>(all.keys()));
  for (Index row = 0; row < all.heads() * all.rows(); ++row) {
    const double* weights = all.weights.data() + row * all.keys();
    std::copy_n(weights, all.keys(), sorted.begin());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    std::vector<Index> keys;
    for (Index n = 0; n < count; ++n) {
      const Index key = got.top_keys[row * count + n];
      const double found = static_cast<double>(got.top_weights[row * count + n]);
      const double right = n < all.keys() ? sorted[static_cast<std::size_t>(n)] : 0.0;
      ASSERT_NEAR(found, right, tolerance) << "row " << row << ", number " << n;
      if (key < 0) {
        ASSERT_EQ(key, -1);
        ASSERT_EQ(found, 0.0);
        ASSERT_LT(right, 1e-37);
        continue;
      }
      ASSERT_LT(key, all.keys());
      ASSERT_NEAR(weights[key], found, tolerance) << "row " << row << ", key " << key;
      ASSERT_GT(found, 0.0);
      ASSERT_EQ(std::count(keys.begin(), keys.end(), key), 0) << "row " << row << ", key " << key;
      keys.push_back(key);
    }
  }
}

template <class T>
void expect_matches(const BasicAttendResult<T>& got, const Matrices& all, const Composition& c) {
  const Observe asked = everything(c);
  const auto& q_start = c.options.q_start;
  const auto add = [](double a, double b) { return a + b; };
  const auto larger = [](double a, double b) { return std::max(a, b); };
  expect_close("row_max", got.row_max, all.row_max());
  expect_close("distance", got.distance, all.distance(q_start));
  expect_close("key_mass", got.key_mass, all.key_mass(0, all.rows()));
  expect_close("pooled_sum", got.pooled_sum, all.pooled(*asked.pooled_sum, add));
  expect_close("pooled_max", got.pooled_max, all.pooled(*asked.pooled_max, larger));
  expect_close("segment_sum", got.segment_sum, all.segments(*asked.segment_sum));
  expect_close("diagonal_mass", got.diagonal_mass, all.diagonals(q_start, got.first_offset, got.diagonal_mass.size(2)));
  expect_close("weights", got.weights, all.weights);
  expect_top_keys(got, all, std::is_same_v<T, float> ? 4e-6 : 1e-12);
}

inline void expect_observed(const Composition& c) {
  const Matrices all = matrices_of(c);
  DoubleInputs wide(c);
  wide.options.observe = everything(c);
  {
    SCOPED_TRACE(c.name + ", reference");
    expect_matches(reference::attend(wide.q, wide.k, wide.v, wide.options), all, c);
  }
  on_each_instruction_set([&] {
    SCOPED_TRACE(c.name + ", " + instruction_set());
    AttendOptions options = c.float_options();
    const auto bare = attend(c.q, c.k, c.v, options);
    options.observe = everything(c);
    const auto got = attend(c.q, c.k, c.v, options);
    EXPECT_TRUE(same_bits(got.out, bare.out));
    expect_matches(got, all, c);
  });
}

struct Shapes {
  Index batch = 1, q_heads = 2, kv_heads = 2, q_len = 1, kv_len = 1, head_dim = 8, value_dim = 8;
};

inline Composition sized(std::string name, const Shapes& s) {
  return {std::move(name),
          normal({s.batch, s.q_heads, s.q_len, s.head_dim}, 1),
          normal({s.batch, s.kv_heads, s.kv_len, s.head_dim}, 2),
          normal({s.batch, s.kv_heads, s.kv_len, s.value_dim}, 3),
          {},
          {},
          {},
          {}};
}

constexpr Shapes grouped{.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 130, .kv_len = 217, .head_dim = 20};

}  // namespace regard::testing
