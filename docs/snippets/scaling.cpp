// The code of docs/scaling.md.
#include <cmath>
#include <cstdio>

#include "regard/attend.h"
#include "regard/optimizer.h"
#include "regard/random.h"

using namespace regard;

namespace {

Tensor<float> normal(Shape shape, std::uint64_t seed) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(random.normal());
  return tensor;
}

double mean_square(const Tensor<float>& x) {
  double sum = 0;
  for (float value : x.values()) sum += double{value} * double{value};
  return sum / static_cast<double>(x.count());
}

void scores() {
  const Tensor<float> q = normal({1, 1, 512, 64}, 1), k = normal({1, 1, 512, 64}, 2), v = normal({1, 1, 512, 8}, 3);
  const Observe observe{.entropy = true, .rectangles = {{.rows = 512, .keys = 512, .stage = Stage::scaled}}};
  const auto plain = attend(q, k, v, {.scale = 1.0f, .observe = observe});
  const auto divided = attend(q, k, v, {.observe = observe});  // the default: 1 / sqrt(64)
  const auto mean = [](const Tensor<float>& x) {
    double sum = 0;
    for (float value : x.values()) sum += double{value};
    return sum / static_cast<double>(x.count());
  };
  std::printf("variance, undivided: %.1f\n", mean_square(plain.rectangles[0]));
  std::printf("variance, divided: %.2f\n", mean_square(divided.rectangles[0]));
  std::printf("entropy in nats, divided: %.1f\n", mean(divided.entropy));
  std::printf("entropy in nats, undivided: %.1f\n", mean(plain.entropy));
}

void gradient() {
  // One query that scores 0 with one key and s with the other; the answer is the
  // other's weight p, whose derivative by its score is p (1 - p).
  const auto slope = [](float s) {
    const Tensor<float> q({1, 1, 1, 1}, 1.0f), k({1, 1, 2, 1}, {0, s}), v({1, 1, 2, 1}, {0, 1}), bias({1, 1, 1, 2});
    const AttendOptions options{.bias = bias.view<4>(), .scale = 1.0f, .observe = {.lse = true}};
    const auto forward = attend(q, k, v, options);
    const Tensor<float> dout({1, 1, 1, 1}, 1.0f);
    const auto back = attend_backward(dout, q, k, v, {forward.out.view<4>(), forward.lse.view<3>()}, options);
    return back.dbias[1];
  };
  // Two scores of variance 64 are sqrt(2 * 64) apart; of variance 1, sqrt(2).
  std::printf("gradient, divided: %.4f\n", slope(std::sqrt(2.0f)));
  std::printf("gradient, undivided: %.6f\n", slope(std::sqrt(128.0f)));
}

void clipping() {
  Parameter<float> weight("weight", {2}, true);
  weight.gradient = Tensor<float>({2}, {3, 4});
  const double norm = clip_gradients<float>({&weight}, 1.0);
  std::printf("clipped from %.0f: %.1f %.1f\n", norm, weight.gradient[0], weight.gradient[1]);
}

}  // namespace

int main() {
  scores();
  gradient();
  clipping();
}
