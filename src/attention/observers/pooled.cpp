#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/observers/observer.h"
#include "attention/observers/ranges.h"
#include "attention/observers/totals.h"

namespace regard::detail {
namespace {

// One axis of the map: cell c covers [bounds[c], bounds[c + 1]).
struct Axis {
  std::vector<Index> bounds;
  Index cells() const { return static_cast<Index>(bounds.size()) - 1; }
  Index end(Index cell) const { return bounds[static_cast<std::size_t>(cell) + 1]; }
  Index cell_of(Index at) const { return cell_that_holds(bounds, at); }
};

struct Sum {
  static void fold_rows(const kernels::Kernels& kernels, const kernels::Tile& tile, float* to) {
    kernels.column_sums(tile, to);
  }
  // Four sums side by side: one would wait for itself.
  static double fold_keys(const float* from, Index count) {
    float sums[4] = {};
    Index j = 0;
    for (; j + 4 <= count; j += 4)
      for (Index n = 0; n < 4; ++n) sums[n] += from[j + n];
    for (; j < count; ++j) sums[0] += from[j];
    return static_cast<double>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  static double join(double a, double b) { return a + b; }
};

struct Max {
  static void fold_rows(const kernels::Kernels& kernels, const kernels::Tile& tile, float* to) {
    kernels.column_maxima(tile, to);
  }
  // By their bits, which are in order and keep NaN on top, as column_maxima does.
  static double fold_keys(const float* from, Index count) {
    std::uint32_t top = 0;
    for (Index j = 0; j < count; ++j) top = std::max(top, std::bit_cast<std::uint32_t>(from[j]));
    return static_cast<double>(std::bit_cast<float>(top));
  }
  // Keeps NaN.
  static double join(double a, double b) { return b > a || std::isnan(b) ? b : a; }
};

template <class How>
class Pooled final : public Observer {
 public:
  Pooled(const Call& call, SegmentBounds bounds, Tensor<float>& result)
      : call_(call),
        result_(result),
        rows_{std::move(bounds.rows)},
        keys_{std::move(bounds.keys)},
        cells_(call, rows_.cells() * keys_.cells()) {}

  Index note_count(const Spot& block) const override {
    if (block.keys == 0) return 0;
    return (last_row(block) - first_row(block) + 1) * keys_.cells();
  }

  void see(const Sight& sight) override {
    const Spot& at = sight.tile;
    for (Index row = at.row, end; row < at.row + at.rows; row = end) {
      const Index cell = rows_.cell_of(row);
      end = std::min(rows_.end(cell), at.row + at.rows);
      How::fold_rows(
          call_.kernels,
          {sight.weights.data + (row - at.row) * sight.weights.stride, sight.weights.stride, end - row, at.keys},
          sight.scratch);
      add_keys(at, sight.scratch, sight.notes + (cell - first_row(sight.block)) * keys_.cells());
    }
  }
  void end_block(const Spot& block, const double* notes) override {
    double* cells = cells_.of(block) + first_row(block) * keys_.cells();
    for (Index c = 0; c < note_count(block); ++c) cells[c] = How::join(cells[c], notes[c]);
  }
  void end() override {
    result_ = cells_.rounded();
    result_.reshape({call_.sizes.batch, call_.sizes.q_heads, rows_.cells(), keys_.cells()});
  }

 private:
  Index first_row(const Spot& spot) const { return rows_.cell_of(spot.row); }
  Index last_row(const Spot& spot) const { return rows_.cell_of(spot.row + spot.rows - 1); }

  void add_keys(const Spot& at, const float* folded, double* cells) const {
    for (Index key = at.key, end; key < at.key + at.keys; key = end) {
      const Index cell = keys_.cell_of(key);
      end = std::min(keys_.end(cell), at.key + at.keys);
      cells[cell] = How::join(cells[cell], How::fold_keys(folded + (key - at.key), end - key));
    }
  }

  const Call& call_;
  Tensor<float>& result_;
  Axis rows_, keys_;
  Totals cells_;
};

}  // namespace

std::unique_ptr<Observer> observe_pooled_sum(const Call& call, AttendResult& result) {
  return std::make_unique<Pooled<Sum>>(call, bounds_of(*call.options.observe.pooled_sum, call.sizes),
                                       result.pooled_sum);
}

std::unique_ptr<Observer> observe_pooled_max(const Call& call, AttendResult& result) {
  return std::make_unique<Pooled<Max>>(call, bounds_of(*call.options.observe.pooled_max, call.sizes),
                                       result.pooled_max);
}

std::unique_ptr<Observer> observe_segment_sum(const Call& call, AttendResult& result) {
  return std::make_unique<Pooled<Sum>>(call, *call.options.observe.segment_sum, result.segment_sum);
}

}  // namespace regard::detail
