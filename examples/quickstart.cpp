#include <cstdio>

#include "regard/attend.h"

int main() {
  const regard::Tensor<float> x({1, 1, 3, 2}, {1, 0, 0, 1, 1, 1});  // [batch, heads, tokens, head_dim]
  const auto seen = regard::attend(x, x, x, {.mask = regard::causal(), .observe = {.entropy = true, .weights = true}});
  for (int i = 0; i < 3; ++i)
    std::printf("token %d attends %.3f %.3f %.3f, entropy %.3f nats, output %.3f %.3f\n", i, seen.weights[3 * i],
                seen.weights[3 * i + 1], seen.weights[3 * i + 2], seen.entropy[i], seen.out[2 * i],
                seen.out[2 * i + 1]);
}
