#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "attention/observers/observer.h"

namespace regard::detail {
namespace {

// A weight and its key in one number that sorts as they rank: weights are not
// negative, so their bits are in order; of equal weights the lower key is the
// larger number. 0 stands for no key at all.
using Ranked = std::int64_t;
constexpr std::uint32_t last_key = std::numeric_limits<std::uint32_t>::max();

Ranked ranked(float weight, Index key) {
  return static_cast<Ranked>(std::bit_cast<std::uint32_t>(weight)) << 32 | (last_key - static_cast<std::uint32_t>(key));
}
float weight_of(Ranked one) { return std::bit_cast<float>(static_cast<std::uint32_t>(one >> 32)); }
Index key_of(Ranked one) { return one == 0 ? -1 : static_cast<Index>(last_key - static_cast<std::uint32_t>(one)); }

// Up to here a sorted list beats a heap: no branch to guess wrong.
constexpr Index short_list = 16;

// Puts `one`, which is larger, in place of the lowest of a heap, which lies
// first. A short heap is sorted.
void replace_lowest(Ranked* heap, Index count, Ranked one) {
  if (count <= short_list) {
    for (Index n = 0; n + 1 < count; ++n) heap[n] = std::min(heap[n + 1], std::max(heap[n], one));
    heap[count - 1] = std::max(heap[count - 1], one);
    return;
  }
  Index at = 0;
  for (Index child = 1; child < count; child = 2 * at + 1) {
    child += child + 1 < count && heap[child + 1] < heap[child];
    if (one <= heap[child]) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = one;
}

// While rows pass, the memory of their top keys holds heaps of ranked weights.
class TopKeys final : public Observer {
 public:
  TopKeys(const Call& call, const RowStatistics& rows, AttendResult& result)
      : call_(call),
        rows_(rows),
        count_(call.options.observe.top_k),
        keys_(result.top_keys),
        weights_(result.top_weights) {
    const Shape shape{call.sizes.batch, call.sizes.q_heads, call.sizes.q_len, count_};
    keys_ = Tensor<Index>(shape);
    weights_ = Tensor<float>::uninitialised(shape);
  }

  void see(const Sight& sight) override {
    const kernels::Tile& tile = sight.weights;
    auto* found = reinterpret_cast<std::int32_t*>(sight.scratch);
    for (Index i = 0; i < tile.rows; ++i) {
      if (!is_number(call_.row_index(sight.tile.b, sight.tile.h, sight.tile.row + i))) continue;
      float* row = tile.data + i * tile.stride;
      Ranked* heap = heap_of(sight.tile, i);
      const float limit = heap[0] != 0 ? weight_of(heap[0]) : limit_of(row, tile.keys, sight.scratch);
      const Index above = call_.kernels.find_above(row, tile.keys, limit, found);
      for (Index n = 0; n < above; ++n)
        if (row[found[n]] > weight_of(heap[0]))
          replace_lowest(heap, count_, ranked(row[found[n]], sight.tile.key + found[n]));
    }
  }

  void end_block(const Spot& block, const double*) override {
    for (Index i = 0; i < block.rows; ++i) {
      Ranked* heap = heap_of(block, i);
      std::sort(heap, heap + count_, std::greater<>());
      const Index row = call_.row_index(block.b, block.h, block.row + i);
      for (Index n = 0; n < count_; ++n) {
        weights_[row * count_ + n] = is_number(row) ? weight_of(heap[n]) : rows_.sum[row];
        keys_[row * count_ + n] = key_of(heap[n]);
      }
    }
  }

 private:
  bool is_number(Index row) const { return !std::isnan(rows_.sum[row]); }

  // A weight that at least `count_` keys of a row exceed, 0 where none is known.
  // It spares a row's first tile most of its detours: cut in `count_` columns, of
  // whose largest weights it is just below the smallest.
  float limit_of(float* row, Index keys, float* scratch) const {
    if (2 * count_ > keys) return 0.0f;
    call_.kernels.column_maxima({row, count_, keys / count_, count_}, scratch);
    const float reached = *std::min_element(scratch, scratch + count_);
    return reached > 0.0f ? std::nextafter(reached, 0.0f) : 0.0f;
  }

  Ranked* heap_of(const Spot& spot, Index i) {
    return keys_.data() + call_.row_index(spot.b, spot.h, spot.row + i) * count_;
  }

  const Call& call_;
  const RowStatistics& rows_;
  Index count_;
  Tensor<Index>& keys_;
  Tensor<float>& weights_;
};

}  // namespace

std::unique_ptr<Observer> observe_top_keys(const Call& call, const RowStatistics& rows, AttendResult& result) {
  return std::make_unique<TopKeys>(call, rows, result);
}

}  // namespace regard::detail
