#include "attention/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace regard::detail {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Of a row whose sink has not joined yet. The sum knows better than the maximum
// whether anything was visible (it is 1 or more then), and keeps a NaN that a
// maximum of vectors may lose.
float largest_score(const RowStatistics& rows, Index row) {
  const float sum = rows.sum[row];
  return std::isnan(sum) ? sum : sum == 0.0f ? -infinity : rows.max[row];
}

// The sink joins maximum and denominator once, last. Returns what the sums so
// far are to be multiplied by.
float join_sink(RowStatistics& rows, Index row, float sink) {
  float& largest = rows.max[row];
  float& sum = rows.sum[row];
  const float joined = std::max(largest, sink);
  float factor = 1.0f;
  if (joined != largest && joined != -infinity) {
    factor = largest == -infinity ? 0.0f : std::exp(largest - joined);
    if (!rows.spread.empty())
      rows.spread[row] = factor == 0.0f ? 0.0f : factor * (rows.spread[row] + sum * (largest - joined));
    largest = joined;
  }
  sum = sum * factor + (largest == -infinity ? 0.0f : std::exp(sink - largest));
  return factor;
}

}  // namespace

void start_rows(RowStatistics& rows, Index first, Index count) {
  std::fill_n(rows.max.data() + first, count, -infinity);
  std::fill_n(rows.sum.data() + first, count, 0.0f);
  if (!rows.spread.empty()) std::fill_n(rows.spread.data() + first, count, 0.0f);
}

float finish_row(const Call& call, RowStatistics& rows, Index row, Index head) {
  float keys_sum = rows.sum[row], factor = 1.0f;
  if (!rows.largest_score.empty()) rows.largest_score[row] = largest_score(rows, row);
  if (!call.options.sink.empty()) {
    factor = join_sink(rows, row, call.options.sink[static_cast<std::size_t>(head)]);
    keys_sum *= factor;
  }
  const float sum = rows.sum[row];
  if (!rows.spread.empty()) {
    // H = -sum p ln p with p = w / sum and ln p = (s - max) - ln sum.
    float& spread = rows.spread[row];
    spread = sum == 0.0f ? 0.0f : (std::log(sum) * keys_sum - spread) / sum;
  }
  return sum == 0.0f ? 0.0f : factor / sum;
}

void write_rows(const Call& call, RowStatistics& rows, const Spot& spot, const kernels::StridedRows& values,
                const OutputView& out) {
  constexpr Index at_once = 64;
  std::array<float, at_once> factors;
  for (Index begin = 0; begin < spot.rows; begin += at_once) {
    const Index count = std::min(at_once, spot.rows - begin), first = call.row_index(spot.b, spot.h, spot.row + begin);
    for (Index i = 0; i < count; ++i) factors[static_cast<std::size_t>(i)] = finish_row(call, rows, first + i, spot.h);
    if (values.cols == 0) continue;
    float* from = values.data + begin * values.stride;
    const Spot first_row{spot.b, spot.h, spot.row + begin, count, 0, 0};
    kernels::StridedRows to{from, values.stride, count, values.cols};
    if (has_float_rows(out))
      to = {static_cast<float*>(element_of(out, spot.b, spot.h, spot.row + begin)), out.stride(2), count, values.cols};
    call.kernels.scale_rows(from, values.stride, to, factors.data());
    if (!has_float_rows(out)) store_rows(call, to, out, first_row);
  }
}

float log_sum_exp(const RowStatistics& rows, Index row) {
  return rows.sum[row] == 0.0f ? -infinity : rows.max[row] + std::log(rows.sum[row]);
}

}  // namespace regard::detail
