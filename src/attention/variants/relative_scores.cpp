#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call.h"
#include "attention/variants/relative.h"
#include "attention/variants/row_loops.h"
#include "regard/error.h"

namespace regard::detail {
namespace {

constexpr float hidden = -std::numeric_limits<float>::infinity();

template <class T, int Rank>
void check_table(const char* call, const char* name, const View<const T, Rank>& table, const Shape& wanted) {
  if (!table.given()) return;
  bool fits = table.size(0) == 1 || table.size(0) == wanted[0];
  for (int axis = 1; axis < Rank; ++axis) fits &= table.size(axis) == wanted[static_cast<std::size_t>(axis)];
  if (!fits)
    throw ArgumentError(std::string(call) + ": " + name + " " + table.text() +
                        " needs [heads or 1,...] = " + shape_text(wanted));
}

// Row `row` of q plus the head's bias, scaled; with a bias only where one is given.
void fill_rows(const RelativeCall& call, const RelativeSpot& spot, const View<const float, 2>& bias, Scratch& to) {
  const kernels::Matrix q = rows_of(call.in.q, spot.b, spot.h, spot.row, spot.rows);
  to.resize(spot.rows, call.sizes.head_dim);
  for (Index i = 0; i < spot.rows; ++i) {
    float* row = to.row(i);
    copy_row(q, i, row);
    for (Index d = 0; d < call.sizes.head_dim; ++d) {
      const float add = bias.given() ? bias(table_head(bias, spot.h), d) : 0.0f;
      row[d] = (row[d] + add) * call.scale;
    }
  }
}

}  // namespace

template <class T>
Sizes check_relative(const char* call, const Sizes4& q, const Sizes4& k, const Sizes4& v, const RelativeTerms<T>& terms,
                     const RelativeOptions<T>& options) {
  const Sizes sizes = check_shapes(call, q, k, v);
  BasicAttendOptions<T> known;
  known.mask = options.mask;
  known.q_start = options.q_start;
  known.scale = options.scale;
  check_options(call, sizes, known);
  if (terms.keys.size(1) == 0)
    throw ArgumentError(std::string(call) + ": terms.keys " + terms.keys.text() + " has no distances");
  const Index distances = terms.keys.size(1);
  check_table(call, "terms.keys", terms.keys, {sizes.q_heads, distances, sizes.head_dim});
  check_table(call, "terms.values", terms.values, {sizes.q_heads, distances, sizes.value_dim});
  check_table(call, "terms.content_bias", terms.content_bias, {sizes.q_heads, sizes.head_dim});
  check_table(call, "terms.position_bias", terms.position_bias, {sizes.q_heads, sizes.head_dim});
  return sizes;
}
template Sizes check_relative(const char*, const Sizes4&, const Sizes4&, const Sizes4&, const RelativeTerms<float>&,
                              const RelativeOptions<float>&);
template Sizes check_relative(const char*, const Sizes4&, const Sizes4&, const Sizes4&, const RelativeTerms<double>&,
                              const RelativeOptions<double>&);

RelativeCall make_relative_call(const char* name, const RelativeInputs& in) {
  const Sizes sizes = check_relative(name, in.q.sizes(), in.k.sizes(), in.v.sizes(), in.terms, in.options);
  const double scale =
      in.options.scale ? static_cast<double>(*in.options.scale) : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  return {sizes, in, static_cast<float>(scale)};
}

void RelativeScores::compute(const RelativeSpot& spot) {
  spot_ = spot;
  fill_rows(call_, spot_, call_.in.terms.content_bias, content_);
  fill_rows(call_, spot_, call_.in.terms.position_bias, position_);
  find_keys();
  find_range();
  scores_.resize(spot_.rows, columns());
  if (columns() == 0) return;
  content_scores();
  position_scores();
  for (const KeyRange& keys : key_ranges_) hide(keys);
}

void RelativeScores::find_keys() {
  key_ranges_.clear();
  for (Index key = 0; key < call_.sizes.kv_len; key += relative_keys) {
    const Index keys = std::min(relative_keys, call_.sizes.kv_len - key);
    const Coverage coverage = call_.in.options.mask.coverage(mask_block(key, keys));
    if (coverage == Coverage::none && key_ranges_.empty()) continue;
    key_ranges_.push_back({key, keys, 0, coverage});
  }
  while (!key_ranges_.empty() && key_ranges_.back().coverage == Coverage::none) key_ranges_.pop_back();
  first_key_ = key_ranges_.empty() ? 0 : key_ranges_.front().key;
  end_key_ = key_ranges_.empty() ? 0 : key_ranges_.back().key + key_ranges_.back().keys;
  for (KeyRange& keys : key_ranges_) keys.column = keys.key - first_key_;
}

void RelativeScores::find_range() {
  range_ = {};
  if (columns() == 0) return;
  const Index last = call_.distances() - 1, start = call_.q_start(spot_.b) + spot_.row;
  const auto row_of = [&](Index distance) { return std::clamp(distance - call_.in.terms.first, Index{0}, last); };
  range_.first = row_of(first_key_ - (start + spot_.rows - 1));
  range_.count = row_of(end_key_ - 1 - start) - range_.first + 1;
}

void RelativeScores::content_scores() {
  const kernels::Kernels& kernels = kernels::active();
  for (const auto& [key, keys, column, coverage] : key_ranges_) {
    if (coverage == Coverage::none) continue;
    panels_.pack(transposed(rows_of(call_.in.k, spot_.b, spot_.h / call_.sizes.group(), key, keys)));
    kernels.product({content_.row(0), content_.stride(), 1, panels_.data(), kernels.column_tile * panels_.depth(),
                     kernels.column_tile, scores_.row(0) + column, scores_.stride(), spot_.rows, keys, panels_.depth(),
                     false});
  }
}

void RelativeScores::position_scores() {
  const auto& keys = call_.in.terms.keys;
  const float* table = keys.data() + table_head(keys, spot_.h) * keys.stride(0) + range_.first * keys.stride(1);
  panels_.pack(transposed({table, range_.count, call_.sizes.head_dim, keys.stride(1), keys.stride(2)}));
  by_distance_.resize(spot_.rows, range_.count);
  multiply(by_distance_, position_.matrix(), panels_);
  spread(scores_, by_distance_);
}

void RelativeScores::hide(const KeyRange& range) {
  if (range.coverage == Coverage::all) return;
  if (range.coverage == Coverage::none) {
    for (Index i = 0; i < spot_.rows; ++i) std::fill_n(scores_.row(i) + range.column, range.keys, hidden);
    return;
  }
  visible_.resize(static_cast<std::size_t>(spot_.rows * range.keys));
  call_.in.options.mask.fill(mask_block(range.key, range.keys), visible_.data(), range.keys);
  kernels::active().hide({scores_.row(0) + range.column, scores_.stride(), spot_.rows, range.keys}, visible_.data(),
                         range.keys);
}

RelativeScores::Split RelativeScores::split(Index i) const {
  const Index query = call_.q_start(spot_.b) + spot_.row + i, first = call_.in.terms.first;
  // Key j reads table row j - query - first where that is inside [0, distances).
  const Index begin = std::clamp(query + first, first_key_, end_key_);
  const Index end = std::clamp(query + first + call_.distances(), begin, end_key_);
  return {begin - first_key_, end - first_key_, begin == end ? 0 : begin - query - first - range_.first};
}

void RelativeScores::spread(Scratch& scores, const Scratch& by_distance) const {
  for (Index i = 0; i < spot_.rows; ++i) {
    const auto [begin, end, at] = split(i);
    float* row = scores.row(i);
    const float* from = by_distance.row(i);
    add_to_row(row, from[0], begin);
    add_row(row + begin, from + at, end - begin);
    add_to_row(row + end, from[range_.count - 1], columns() - end);
  }
}

void RelativeScores::gather(Scratch& by_distance, const Scratch& scores) const {
  by_distance.resize(spot_.rows, range_.count);
  by_distance.zero();
  for (Index i = 0; i < spot_.rows; ++i) {
    const auto [begin, end, at] = split(i);
    const float* row = scores.row(i);
    float* to = by_distance.row(i);
    add_row(to + at, row + begin, end - begin);
    to[0] += sum_row(row, begin);
    to[range_.count - 1] += sum_row(row + end, columns() - end);
  }
}

}  // namespace regard::detail
