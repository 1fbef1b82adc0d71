#include <algorithm>

#include "attention/observers/observer.h"
#include "attention/observers/ranges.h"
#include "attention/observers/totals.h"

namespace regard::detail {
namespace {

class KeyMass final : public Observer {
 public:
  KeyMass(const Call& call, Tensor<float>& result)
      : call_(call),
        result_(result),
        begin_(call.options.observe.key_mass->begin),
        end_(end_of(*call.options.observe.key_mass, call.sizes)),
        sums_(call, call.sizes.kv_len) {}

  bool wants(const Spot& spot) const override { return spot.row < end_ && spot.row + spot.rows > begin_; }
  Index note_count(const Spot& block) const override { return wants(block) ? call_.sizes.kv_len : 0; }

  void see(const Sight& sight) override {
    const Index skipped = std::max<Index>(0, begin_ - sight.tile.row);
    kernels::Tile counted = sight.weights;
    counted.data += skipped * counted.stride;
    counted.rows = std::min(counted.rows, end_ - sight.tile.row) - skipped;
    call_.kernels.column_sums(counted, sight.scratch);
    double* sums = sight.notes + sight.tile.key;
    for (Index j = 0; j < counted.keys; ++j) sums[j] += static_cast<double>(sight.scratch[j]);
  }
  void end_block(const Spot& block, const double* notes) override {
    double* sums = sums_.of(block);
    for (Index j = 0; j < note_count(block); ++j) sums[j] += notes[j];
  }
  void end() override { result_ = sums_.rounded(); }

 private:
  const Call& call_;
  Tensor<float>& result_;
  Index begin_, end_;
  Totals sums_;
};

}  // namespace

std::unique_ptr<Observer> observe_key_mass(const Call& call, AttendResult& result) {
  return std::make_unique<KeyMass>(call, result.key_mass);
}

}  // namespace regard::detail
