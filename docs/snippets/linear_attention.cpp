// The code of docs/linear-attention.md.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "regard/linear_attention.h"
#include "regard/linear_recurrence.h"
#include "regard/random.h"

using namespace regard;

namespace {

Tensor<float> random_tensor(Shape shape, std::uint64_t seed) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(random.normal());
  return tensor;
}

void by_hand() {
  // elu(x) + 1 is 1 at 0 and 2 at 1, so the weights are 1/3 and 2/3.
  const Tensor<float> q({1, 1, 2, 1}), k({1, 1, 2, 1}, {0, 1}), v({1, 1, 2, 1}, {0, 3});
  const auto all = linear_attend({q, k, v}).out;
  const auto causal = linear_attend({q, k, v}, {.causal = true}).out;
  std::printf("every key: %.4f %.4f\n", all[0], all[1]);
  std::printf("causal: %.4f %.4f\n", causal[0], causal[1]);
}

void decoder() {
  const Shape shape{1, 8, 100, 64};
  const auto q = random_tensor(shape, 1), k = random_tensor(shape, 2), v = random_tensor(shape, 3);
  const auto whole = linear_attend({q, k, v}, {.causal = true}).out;
  LinearDecoder decoder;  // 8 x 64 x 65 numbers, however long the text
  float difference = 0;
  for (Index t = 0; t < 100; ++t) {
    const auto token = [&](const Tensor<float>& x) { return x.view<4>().slice(2, t, t + 1); };
    const auto out = decoder.step({token(q), token(k), token(v)});
    for (Index i = 0; i < out.count(); ++i)
      difference = std::max(difference, std::abs(out[i] - whole[(i / 64 * 100 + t) * 64 + i % 64]));
  }
  std::printf("token by token against the whole, largest difference: %.4f\n", difference);
}

void recurrence() {
  // One key, written twice: 1, then 5. What does its query read?
  const Tensor<float> q({1, 1, 2, 1}, 1.0f), k({1, 1, 2, 1}, 1.0f), v({1, 1, 2, 1}, {1, 5});
  const Tensor<float> beta({1, 1, 2}, 1.0f), decay({1, 1, 2, 1}, std::log(0.5f));
  RecurrenceInputs<float> inputs{.q = q, .k = k, .v = v, .scale = 1.0f};
  std::printf("plain, adds: %.4f\n", linear_recurrence(inputs).out[1]);
  inputs.decay = decay;
  std::printf("gated, halves what was: %.4f\n", linear_recurrence(inputs).out[1]);
  inputs.decay = {}, inputs.beta = beta;
  std::printf("delta rule, replaces: %.4f\n", linear_recurrence(inputs).out[1]);
}

}  // namespace

int main() {
  by_hand();
  decoder();
  recurrence();
}
