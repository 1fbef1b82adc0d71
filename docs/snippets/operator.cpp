// The operator as README.md and CONTRIBUTING.md show it.
#include <cstdio>

#include "regard/attend.h"

using namespace regard;

struct Recency {
  float rate;
  float operator()(float score, const regard::Position& at) const { return score - rate * float(at.distance()); }
  float derivative(float, const regard::Position&) const { return 1.0f; }
};

int main() {
  // With v all 1 every output is the sum of the weights.
  const Tensor<float> q({1, 2, 3, 4}, 0.5f), k = q, v({1, 2, 3, 1}, 1.0f);
  const std::vector<float> slopes = alibi_slopes(2);
  auto result = regard::attend(q, k, v, {.mask = causal() & window(255, 0), .score = softcap(30) + alibi(slopes)});
  std::printf("sum of the weights: %.4f\n", result.out[5]);

  // Equal scores, and a rate of ln 2: every token of distance halves the weight.
  const Tensor<float> values({1, 2, 3, 1}, {0, 0, 7, 0, 0, 7});
  const auto recent = attend(q, k, values, {.mask = causal(), .score = Recency{0.6931472f}});
  std::printf("weight of the token itself: %.4f\n", recent.out[2] / 7);
}
