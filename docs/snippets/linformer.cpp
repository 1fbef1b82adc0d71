// The code of docs/linformer.md.
#include <cstdio>

#include "regard/linformer.h"

using namespace regard;

namespace {

void print(const char* name, const Tensor<float>& out) {
  std::printf("%s:", name);
  for (float number : out.values()) std::printf(" %.4f", number);
  std::printf("\n");
}

void slots() {
  // Four tokens, each of which stands twice: slots that average neighbours lose nothing.
  const Tensor<float> q({1, 1, 2, 1}, {0, 1}), k({1, 1, 4, 1}, {0, 0, 1, 1}), v({1, 1, 4, 1}, {0, 0, 1, 1});
  const Tensor<float> halves({1, 2, 4}, {0.5f, 0.5f, 0, 0, 0, 0, 0.5f, 0.5f});  // [heads or 1, slots, length]
  print("exact", attend(q, k, v, {.scale = 1.0f}).out);
  print("two slots", linformer_attend({q, k, v, {.keys = halves}, {.scale = 1.0f}}).out);
}

void backward() {
  const Tensor<float> q({1, 1, 1, 1}), k({1, 1, 2, 1}), v({1, 1, 2, 1}, {3, 5});
  const Tensor<float> projection({1, 1, 2}, {0.5f, 0.25f}), dout({1, 1, 1, 1}, 1.0f);
  // With one slot the output is 0.5 * 3 + 0.25 * 5, whatever the query.
  const LinformerInputs<float> inputs{q, k, v, {.keys = projection}};
  const auto forward = linformer_attend(inputs);
  const auto gradients = linformer_attend_backward(dout, inputs, forward);
  print("one slot", forward.out);
  print("gradient of the projection", gradients.dkeys);
}

}  // namespace

int main() {
  slots();
  backward();
}
