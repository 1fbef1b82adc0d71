// The code of docs/performer.md.
#include <cmath>
#include <cstdio>

#include "regard/attend.h"
#include "regard/performer.h"
#include "regard/random.h"

using namespace regard;

namespace {

Tensor<float> random_tensor(Shape shape, std::uint64_t seed, double size) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(size * random.normal());
  return tensor;
}

// |out - exact| / |exact|
double relative_error(const Tensor<float>& out, const Tensor<float>& exact) {
  double wrong = 0, right = 0;
  for (Index i = 0; i < out.count(); ++i) {
    wrong += std::pow(out[i] - exact[i], 2);
    right += std::pow(exact[i], 2);
  }
  return std::sqrt(wrong / right);
}

void features() {
  const Shape shape{1, 4, 256, 64};  // [batch, heads, tokens, head_dim]
  const auto q = random_tensor(shape, 11, 0.25), k = random_tensor(shape, 12, 0.25), v = random_tensor(shape, 13, 1);
  const auto exact = attend(q, k, v).out;
  const auto error = [&](Index features) {
    return relative_error(performer_attend({q, k, v}, performer_features(features, 64, 1)).out, exact);
  };
  std::printf("error with 256 features, percent: %.0f\n", 100 * error(256));
  std::printf("16 times as many features divide it by: %.1f\n", error(256) / error(4096));
}

void causal_and_decoding() {
  const Tensor<float> q({1, 1, 4, 2}, 1.0f), k = q, v({1, 1, 4, 1}, {0, 2, 4, 6});
  // Equal keys have equal estimates: each row is the mean of the values so far.
  const auto features = performer_features(32, 2, 7);
  const auto out = performer_attend({q, k, v}, features, {.causal = true}).out;
  std::printf("causal: %.4f %.4f %.4f %.4f\n", out[0], out[1], out[2], out[3]);
  PerformerDecoder decoder(features);
  const auto first = [](const Tensor<float>& x) { return x.view<4>().slice(2, 0, 2); };
  const auto step = decoder.step({first(q), first(k), first(v)});
  std::printf("the first two by the decoder: %.4f %.4f\n", step[0], step[1]);
}

}  // namespace

int main() {
  features();
  causal_and_decoding();
}
