#include "attention/plain_observe.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "attention/observers/ranges.h"

namespace regard::detail {
namespace {

template <class T>
constexpr T infinite = std::numeric_limits<T>::infinity();

// NaN where a visible score is NaN or +inf, as the row's weights are.
template <class T>
T largest_score(const std::vector<T>& masked) {
  T largest = -infinite<T>;
  for (const T score : masked) {
    if (std::isnan(score) || score == infinite<T>) return std::numeric_limits<T>::quiet_NaN();
    largest = std::max(largest, score);
  }
  return largest;
}

template <class T>
T larger(T a, T b) {
  return b > a || std::isnan(b) ? b : a;
}

template <class T>
void rank_keys(const PlainRow<T>& row, Index at, Index count, BasicObservations<T>& result) {
  const auto& weights = row.weights;
  const bool is_number = std::none_of(weights.begin(), weights.end(), [](T w) { return std::isnan(w); });
  std::vector<Index> keys;
  for (std::size_t j = 0; j < weights.size() && is_number; ++j)
    if (weights[j] > 0) keys.push_back(static_cast<Index>(j));
  std::stable_sort(keys.begin(), keys.end(), [&](Index a, Index b) {
    return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
  });
  for (Index n = 0; n < count; ++n) {
    const bool there = n < static_cast<Index>(keys.size());
    const Index key = there ? keys[static_cast<std::size_t>(n)] : -1;
    result.top_keys[at * count + n] = key;
    result.top_weights[at * count + n] = there       ? weights[static_cast<std::size_t>(key)]
                                         : is_number ? T{0}
                                                     : std::numeric_limits<T>::quiet_NaN();
  }
}

template <class T, class Join>
void pool_row(const PlainRow<T>& row, const Sizes& sizes, const SegmentBounds& bounds, Tensor<T>& map, Join join) {
  const auto rows = static_cast<Index>(bounds.rows.size()) - 1, columns = static_cast<Index>(bounds.keys.size()) - 1;
  const Index head = row.b * sizes.q_heads + row.h, cell_row = cell_that_holds(bounds.rows, row.i);
  for (Index c = 0; c < columns; ++c) {
    T& cell = map[(head * rows + cell_row) * columns + c];
    const auto at = static_cast<std::size_t>(c);
    for (Index j = bounds.keys[at]; j < bounds.keys[at + 1]; ++j)
      cell = join(cell, row.weights[static_cast<std::size_t>(j)]);
  }
}

// What sums over queries, key by key.
template <class T>
void add_to_keys(const BasicAttendOptions<T>& options, const Sizes& sizes, const PlainRow<T>& row,
                 BasicObservations<T>& result) {
  const Observe& observe = options.observe;
  const Index head = row.b * sizes.q_heads + row.h;
  const Index query = options.q_start.of(row.b, sizes.q_len, sizes.kv_len) + row.i;
  const bool counts = observe.key_mass && row.i >= observe.key_mass->begin && row.i < end_of(*observe.key_mass, sizes);
  for (Index j = 0; j < sizes.kv_len; ++j) {
    const T weight = row.weights[static_cast<std::size_t>(j)];
    if (counts) result.key_mass[head * sizes.kv_len + j] += weight;
    if (!observe.diagonals) continue;
    const Index offset = query - j - result.first_offset, offsets = result.diagonal_mass.size(2);
    if (offset >= 0 && offset < offsets) result.diagonal_mass[head * offsets + offset] += weight;
  }
}

}  // namespace

template <class T>
void start_observations(const BasicAttendOptions<T>& options, const Sizes& sizes, BasicObservations<T>& result) {
  const Observe& observe = options.observe;
  const Index b = sizes.batch, h = sizes.q_heads, rows = sizes.q_len;
  if (observe.row_max) result.row_max = Tensor<T>({b, h, rows});
  if (observe.distance) result.distance = Tensor<T>({b, h, rows});
  if (observe.top_k > 0) result.top_keys = Tensor<Index>({b, h, rows, observe.top_k});
  if (observe.top_k > 0) result.top_weights = Tensor<T>({b, h, rows, observe.top_k});
  if (observe.key_mass) result.key_mass = Tensor<T>({b, h, sizes.kv_len});
  if (const auto& size = observe.pooled_sum) result.pooled_sum = Tensor<T>({b, h, size->rows, size->columns});
  if (const auto& size = observe.pooled_max) result.pooled_max = Tensor<T>({b, h, size->rows, size->columns});
  if (const auto& bounds = observe.segment_sum)
    result.segment_sum =
        Tensor<T>({b, h, static_cast<Index>(bounds->rows.size()) - 1, static_cast<Index>(bounds->keys.size()) - 1});
  if (!observe.diagonals) return;
  const Offsets offsets = offsets_of(*observe.diagonals, sizes, options.q_start);
  result.diagonal_mass = Tensor<T>({b, h, offsets.count});
  result.first_offset = offsets.first;
}

template <class T>
void observe_plain_row(const BasicAttendOptions<T>& options, const Sizes& sizes, const PlainRow<T>& row,
                       BasicObservations<T>& result) {
  const Observe& observe = options.observe;
  const Index at = (row.b * sizes.q_heads + row.h) * sizes.q_len + row.i;
  const Index query = options.q_start.of(row.b, sizes.q_len, sizes.kv_len) + row.i;
  if (observe.row_max) result.row_max[at] = largest_score(row.masked);
  for (Index j = 0; j < sizes.kv_len && observe.distance; ++j)
    result.distance[at] += row.weights[static_cast<std::size_t>(j)] * static_cast<T>(std::abs(query - j));
  if (observe.top_k > 0) rank_keys(row, at, observe.top_k, result);
  const auto add = [](T a, T b) { return a + b; };
  if (observe.pooled_sum) pool_row(row, sizes, bounds_of(*observe.pooled_sum, sizes), result.pooled_sum, add);
  if (observe.pooled_max) pool_row(row, sizes, bounds_of(*observe.pooled_max, sizes), result.pooled_max, larger<T>);
  if (observe.segment_sum) pool_row(row, sizes, *observe.segment_sum, result.segment_sum, add);
  if (observe.key_mass || observe.diagonals) add_to_keys(options, sizes, row, result);
}

template void start_observations(const BasicAttendOptions<float>&, const Sizes&, BasicObservations<float>&);
template void start_observations(const BasicAttendOptions<double>&, const Sizes&, BasicObservations<double>&);
template void observe_plain_row(const BasicAttendOptions<float>&, const Sizes&, const PlainRow<float>&,
                                BasicObservations<float>&);
template void observe_plain_row(const BasicAttendOptions<double>&, const Sizes&, const PlainRow<double>&,
                                BasicObservations<double>&);

}  // namespace regard::detail
