#include <algorithm>

#include "attention/observers/observer.h"
#include "attention/observers/ranges.h"
#include "attention/observers/totals.h"

namespace regard::detail {
namespace {

// Inside, numbers run with the keys: by key - query position, so the largest
// offset comes first.
class Diagonals final : public Observer {
 public:
  Diagonals(const Call& call, AttendResult& result)
      : call_(call),
        result_(result),
        offsets_(offsets_of(*call.options.observe.diagonals, call.sizes, call.options.q_start)),
        sums_(call, offsets_.count) {}

  bool wants(const Spot& spot) const override {
    const Index largest = largest_offset(spot), smallest = largest - (spot.rows + spot.keys - 2);
    return smallest < offsets_.first + offsets_.count && largest >= offsets_.first;
  }
  Index note_count(const Spot& block) const override { return wants(block) ? block.rows + block.keys - 1 : 0; }

  void see(const Sight& sight) override {
    call_.kernels.diagonal_sums(sight.weights, sight.scratch);
    double* sums = sight.notes + (largest_offset(sight.block) - largest_offset(sight.tile));
    for (Index d = 0; d < sight.tile.rows + sight.tile.keys - 1; ++d) sums[d] += static_cast<double>(sight.scratch[d]);
  }
  void end_block(const Spot& block, const double* notes) override {
    const Index largest = largest_offset(block), count = note_count(block);
    double* sums = sums_.of(block);
    for (Index d = 0; d < count; ++d) {
      const Index at = largest - d - offsets_.first;
      if (at >= 0 && at < offsets_.count) sums[at] += notes[d];
    }
  }
  void end() override {
    result_.diagonal_mass = sums_.rounded();
    result_.first_offset = offsets_.first;
  }

 private:
  // That of a spot's last row and first key.
  Index largest_offset(const Spot& spot) const { return call_.q_start(spot.b) + spot.row + spot.rows - 1 - spot.key; }

  const Call& call_;
  AttendResult& result_;
  Offsets offsets_;
  Totals sums_;
};

}  // namespace

std::unique_ptr<Observer> observe_diagonals(const Call& call, AttendResult& result) {
  return std::make_unique<Diagonals>(call, result);
}

}  // namespace regard::detail
