// Relative attention, forward.
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

}  // namespace regard
