#include "attention/observers/observer.h"
#include "attention/observers/totals.h"

namespace regard::detail {
namespace {

class Distance final : public Observer {
 public:
  Distance(const Call& call, Tensor<float>& result) : call_(call), result_(result), sums_(call, call.sizes.q_len) {}

  void see(const Sight& sight) override {
    const Spot& at = sight.tile;
    const Index first = call_.q_start(at.b) + at.row - at.key;
    call_.kernels.distance_sums(sight.weights, static_cast<float>(first), sight.scratch);
    double* sums = sums_.of(at) + at.row;
    for (Index i = 0; i < at.rows; ++i) sums[i] += static_cast<double>(sight.scratch[i]);
  }
  void end() override { result_ = sums_.rounded(); }

 private:
  const Call& call_;
  Tensor<float>& result_;
  Totals sums_;
};

}  // namespace

std::unique_ptr<Observer> observe_distance(const Call& call, AttendResult& result) {
  return std::make_unique<Distance>(call, result.distance);
}

}  // namespace regard::detail
