// Forward pass and reference of relative attention.
#include "regard/relative_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call.h"
#include "attention/variants/relative.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

// Everything one block of rows works on; kept by a thread from block to block.
class RelativeForward {
 public:
  explicit RelativeForward(const RelativeCall& call) : call_(call), scores_(call) {}

  void run(const RelativeSpot& spot, RelativeResult<float>& result) {
    spot_ = spot;
    visible_.clear();
    scores_.compute(spot);
    softmax();
    if (!add_values()) {
      // Values that are not finite: once more, with note of who may meet whom.
      scores_.compute(spot);
      note_visible();
      softmax();
      add_values();
    }
    write(result);
  }

 private:
  void note_visible();
  void softmax();
  bool add_values();
  void add_distance_values();
  void write(RelativeResult<float>& result);

  const RelativeCall& call_;
  RelativeScores scores_;
  RelativeSpot spot_{};
  Scratch out_, by_distance_;
  PackedMatrix panels_;
  std::vector<float> max_, sum_;
  std::vector<std::uint8_t> visible_;  // empty until values that are not finite show up
};

void RelativeForward::note_visible() {
  const kernels::Tile tile = scores_.tile();
  visible_.resize(static_cast<std::size_t>(tile.rows * tile.stride));
  kernels::active().mark_visible(tile, visible_.data(), tile.stride);
}

// Scores become weights that are not yet divided by their sum.
void RelativeForward::softmax() {
  max_.assign(static_cast<std::size_t>(spot_.rows), -std::numeric_limits<float>::infinity());
  sum_.assign(static_cast<std::size_t>(spot_.rows), 0.0f);
  if (scores_.columns() == 0) return;
  kernels::active().softmax_step({scores_.tile(), max_.data(), sum_.data(), nullptr, nullptr, 0, 0});
}

// Returns false where values that are not finite ask for visible_.
bool RelativeForward::add_values() {
  const Sizes& sizes = call_.sizes;
  out_.resize(spot_.rows, sizes.value_dim);
  out_.zero();
  if (sizes.value_dim == 0) return true;
  const Scratch& weights = scores_.scores();
  for (const auto& [key, keys, column, coverage] : scores_.key_ranges()) {
    if (coverage == Coverage::none) continue;
    panels_.pack(rows_of(call_.in.v, spot_.b, spot_.h / sizes.group(), key, keys));
    const kernels::Matrix part{weights.row(0) + column, spot_.rows, keys, weights.stride(), 1};
    if (panels_.finite())
      multiply(out_, part, panels_, Into::sum);
    else if (visible_.empty())
      return false;
    else
      add_visible(out_, part, panels_, {visible_.data() + column, weights.stride(), 1});
  }
  add_distance_values();
  return true;
}

void RelativeForward::add_distance_values() {
  const auto& table = call_.in.terms.values;
  if (!table.given() || scores_.columns() == 0) return;
  scores_.gather(by_distance_, scores_.scores());
  const auto range = scores_.range();
  const float* first = table.data() + table_head(table, spot_.h) * table.stride(0) + range.first * table.stride(1);
  panels_.pack({first, range.count, call_.sizes.value_dim, table.stride(1), table.stride(2)});
  add_where_nonzero(out_, 0, by_distance_.matrix(), panels_);
}

void RelativeForward::write(RelativeResult<float>& result) {
  const Sizes& sizes = call_.sizes;
  const Index first = (spot_.b * sizes.q_heads + spot_.h) * sizes.q_len + spot_.row;
  for (Index i = 0; i < spot_.rows; ++i) {
    const float max = max_[static_cast<std::size_t>(i)], sum = sum_[static_cast<std::size_t>(i)];
    const bool empty = max == -std::numeric_limits<float>::infinity() && sum == 0.0f;
    result.lse[first + i] = empty ? max : max + std::log(sum);
    float* to = result.out.data() + (first + i) * sizes.value_dim;
    for (Index d = 0; d < sizes.value_dim; ++d) to[d] = empty ? 0.0f : out_.row(i)[d] / sum;
  }
}

// One row of the reference: its scores in double, -inf where hidden.
std::vector<double> plain_scores(const Sizes& sizes, const RelativeTerms<double>& terms,
                                 const RelativeOptions<double>& options, const View<const double, 4>& q,
                                 const View<const double, 4>& k, const std::array<Index, 3>& at) {
  const auto& [b, h, i] = at;
  const Index start = options.q_start.of(b, sizes.q_len, sizes.kv_len), last = terms.keys.size(1) - 1;
  const double scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(sizes.kv_len));
  options.mask.fill({b, h, i, 1, 0, sizes.kv_len, start}, visible.data(), sizes.kv_len);
  std::vector<double> scores(static_cast<std::size_t>(sizes.kv_len), -std::numeric_limits<double>::infinity());
  for (Index j = 0; j < sizes.kv_len; ++j) {
    if (!visible[static_cast<std::size_t>(j)]) continue;
    const Index row = std::clamp(j - (start + i) - terms.first, Index{0}, last);
    double score = 0;
    for (Index d = 0; d < sizes.head_dim; ++d) {
      const double u = terms.content_bias.given() ? terms.content_bias(table_head(terms.content_bias, h), d) : 0;
      const double w = terms.position_bias.given() ? terms.position_bias(table_head(terms.position_bias, h), d) : 0;
      score += (q(b, h, i, d) + u) * k(b, h / sizes.group(), j, d);
      score += (q(b, h, i, d) + w) * terms.keys(table_head(terms.keys, h), row, d);
    }
    scores[static_cast<std::size_t>(j)] = score * scale;
  }
  return scores;
}

}  // namespace
}  // namespace detail

RelativeResult<float> relative_attend(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                      const RelativeTerms<float>& terms, const RelativeOptions<float>& options) {
  const detail::RelativeCall call = detail::make_relative_call("relative_attend", {q, k, v, terms, options});
  const auto& sizes = call.sizes;
  RelativeResult<float> result{Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
                               Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len})};
  const Index blocks = (sizes.q_len + detail::relative_rows - 1) / detail::relative_rows;
  std::vector<std::optional<detail::RelativeForward>> workers(static_cast<std::size_t>(threads()));
  parallel_items(sizes.batch * sizes.q_heads * blocks, [&](Index item, int thread) {
    auto& worker = workers[static_cast<std::size_t>(thread)];
    if (!worker) worker.emplace(call);
    const Index head = item / blocks, row = item % blocks * detail::relative_rows;
    worker->run({head / sizes.q_heads, head % sizes.q_heads, row, std::min(detail::relative_rows, sizes.q_len - row)},
                result);
  });
  return result;
}

namespace reference {

RelativeResult<double> relative_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                       const RelativeTerms<double>& terms, const RelativeOptions<double>& options) {
  const auto sizes =
      detail::check_relative("reference::relative_attend", q.sizes(), k.sizes(), v.sizes(), terms, options);
  RelativeResult<double> result{Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
                                Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len})};
  const auto out = result.out.view<4>();
  for (Index row = 0; row < result.lse.count(); ++row) {
    const Index i = row % sizes.q_len, h = row / sizes.q_len % sizes.q_heads, b = row / sizes.q_len / sizes.q_heads;
    const auto scores = detail::plain_scores(sizes, terms, options, q, k, {b, h, i});
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    double top = hidden, sum = 0;
    for (double score : scores) top = std::max(top, score);
    for (double score : scores) sum += score == hidden ? 0 : std::exp(score - top);
    result.lse[row] = sum == 0 ? hidden : top + std::log(sum);
    const Index start = options.q_start.of(b, sizes.q_len, sizes.kv_len), last = terms.keys.size(1) - 1;
    for (Index j = 0; j < sizes.kv_len; ++j) {
      if (scores[static_cast<std::size_t>(j)] == hidden) continue;
      const double weight = std::exp(scores[static_cast<std::size_t>(j)] - result.lse[row]);
      const Index distance = std::clamp(j - (start + i) - terms.first, Index{0}, last);
      for (Index d = 0; d < sizes.value_dim; ++d) {
        const double add = terms.values.given() ? terms.values(detail::table_head(terms.values, h), distance, d) : 0;
        out(b, h, i, d) += weight * (v(b, h / sizes.group(), j, d) + add);
      }
    }
  }
  return result;
}

}  // namespace reference

}  // namespace regard
