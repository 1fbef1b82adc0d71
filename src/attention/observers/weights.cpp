#include <algorithm>

#include "attention/observers/observer.h"

namespace regard::detail {
namespace {

class Weights final : public Observer {
 public:
  Weights(const Call& call, Tensor<float>& result) : call_(call), result_(result) {
    const Sizes& sizes = call.sizes;
    result_ = Tensor<float>::uninitialised({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len});
  }
  void see(const Sight& sight) override {
    for (Index i = 0; i < sight.tile.rows; ++i)
      std::copy_n(sight.weights.data + i * sight.weights.stride, sight.tile.keys, row(sight.tile, i));
  }
  void skip(const Spot& spot) override {
    for (Index i = 0; i < spot.rows; ++i) std::fill_n(row(spot, i), spot.keys, 0.0f);
  }

 private:
  float* row(const Spot& spot, Index i) {
    return result_.data() + call_.row_index(spot.b, spot.h, spot.row + i) * call_.sizes.kv_len + spot.key;
  }
  const Call& call_;
  Tensor<float>& result_;
};

}  // namespace

std::unique_ptr<Observer> observe_weights(const Call& call, AttendResult& result) {
  return std::make_unique<Weights>(call, result.weights);
}

}  // namespace regard::detail
