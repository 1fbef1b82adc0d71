// The forward pass of a regrouped call: residue by residue, and where the mask
// shows further pairs, those in a call of their own and both results merged.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/regroup.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// A residue's statistics of rows among those of all rows.
void place(const Tensor<float>& from, const Residue& residue, Tensor<float>& to) {
  if (from.empty()) return;
  const View<float, 3> rows = rows_of(to.view<3>(), residue);
  for (Index h = 0; h < rows.size(1); ++h)
    for (Index i = 0; i < rows.size(2); ++i) rows(Index{0}, h, i) = from[h * rows.size(2) + i];
}

void run_residue(const Call& call, const Regrouping& how, Index number, RowStatistics& rows, const OutputView& out) {
  const Residue residue = residue_of(call, how, number);
  ResidueCall part(call, how, residue);
  RowStatistics of_part = make_rows(part.call());
  run_tiles(part.call(), of_part, rows_of(out, residue));
  place(of_part.max, residue, rows.max);
  place(of_part.sum, residue, rows.sum);
  place(of_part.spread, residue, rows.spread);
  place(of_part.largest_score, residue, rows.largest_score);
}

void run_residues(const Call& call, const Regrouping& how, RowStatistics& rows, const OutputView& out) {
  for_each_residue(call, how, [&](Index number) { run_residue(call, how, number, rows, out); });
}

// Two results of the same rows, without a sink, and what becomes of them.
class Merge {
 public:
  Merge(RowStatistics& into, const RowStatistics& other) : into_(into), other_(other) {}

  // What the two outputs of row `at` are multiplied by; the statistics become
  // those of the whole row.
  std::pair<float, float> row(Index at, float sink) {
    const float ours = into_.max[at], theirs = other_.max[at], top = std::max({ours, theirs, sink});
    const float our_sum = into_.sum[at] * factor(ours, top), their_sum = other_.sum[at] * factor(theirs, top);
    const float sum = our_sum + their_sum + factor(sink, top);
    into_.max[at] = top;
    into_.sum[at] = sum;
    const auto share = [&](float part) { return sum == 0.0f ? 0.0f : part / sum; };
    const float mine = share(our_sum), rest = share(their_sum);
    if (!into_.spread.empty()) into_.spread[at] = entropy(mine, into_.spread[at]) + entropy(rest, other_.spread[at]);
    if (!into_.largest_score.empty())
      into_.largest_score[at] = larger(into_.largest_score[at], other_.largest_score[at]);
    return {mine, rest};
  }

 private:
  static float factor(float max, float top) { return max == -infinity ? 0.0f : std::exp(max - top); }
  static float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }
  // Of weights that sum to 1 with entropy `within`, scaled to sum to `share`.
  static float entropy(float share, float within) { return share == 0.0f ? 0.0f : share * (within - std::log(share)); }

  RowStatistics& into_;
  const RowStatistics& other_;
};

// near = near * its share + far * its share, row by row.
void merge_outputs(const Call& call, RowStatistics& rows, const RowStatistics& others, const View<float, 4>& near,
                   const Tensor<float>& far) {
  const Sizes& sizes = call.sizes;
  Merge merge(rows, others);
  parallel_ranges(sizes.batch * sizes.q_heads * sizes.q_len, 256, [&](Index begin, Index end) {
    for (Index at = begin; at < end; ++at) {
      const Index head = at / sizes.q_len, b = head / sizes.q_heads, h = head % sizes.q_heads;
      const float sink = call.options.sink.empty() ? -infinity : call.options.sink[static_cast<std::size_t>(h)];
      const auto [ours, theirs] = merge.row(at, sink);
      const float* from = far.data() + at * sizes.value_dim;
      for (Index d = 0; d < sizes.value_dim; ++d) {
        float& to = near(b, h, at % sizes.q_len, d);
        to = to * ours + from[d] * theirs;
      }
    }
  });
}

void store_all(const Call& call, Tensor<float>& from, const OutputView& out) {
  const Sizes& sizes = call.sizes;
  parallel_items(sizes.batch * sizes.q_heads, [&](Index head, int) {
    float* rows = from.data() + head * sizes.q_len * sizes.value_dim;
    store_rows(call, {rows, sizes.value_dim, sizes.q_len, sizes.value_dim}, out,
               {head / sizes.q_heads, head % sizes.q_heads, 0, sizes.q_len, 0, 0});
  });
}

}  // namespace

void run_regrouped(const Call& call, const Regrouping& how, RowStatistics& rows, const OutputView& out) {
  if (!how.apart) return run_residues(call, how, rows, out);
  // Halves are summed as floats and rounded once.
  const Shape shape = shape_of(out);
  const bool in_place = out.dtype() == DType::f32;
  Tensor<float> sums = in_place ? Tensor<float>() : Tensor<float>::uninitialised(shape);
  const View<float, 4> near =
      in_place ? View<float, 4>(static_cast<float*>(out.data()), out.sizes(), out.strides()) : sums.view<4>();
  AttendOptions options = options_apart(call, how);
  options.sink = {};
  Call apart = call_with(call, options);
  run_tiles(apart, rows, near);
  auto far = Tensor<float>::uninitialised(shape);
  RowStatistics of_residues = make_rows(call);
  run_residues(call, how, of_residues, far);
  merge_outputs(call, rows, of_residues, near, far);
  if (!in_place) store_all(call, sums, out);
}

}  // namespace regard::detail
