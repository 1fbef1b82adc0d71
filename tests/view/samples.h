// Small traces with weights whose statistics are known.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "regard/trace.h"

namespace regard::samples {

// "knot" to N AA T: one layer, two heads. Head 0 looks at one key a row (n, o,
// t, t); head 1 spreads evenly.
inline Trace knot() {
  Trace trace;
  trace.model = "toy";
  trace.source = {"k", "n", "o", "t"};
  trace.target = {"<s>", "N", "AA", "T"};
  trace.produced = {"N", "AA", "T", "</s>"};
  AttentionMap cross;
  cross.kind = AttentionKind::cross;
  cross.weights = Tensor<float>({2, 4, 4}, 0.25f);
  for (Index cell = 0; cell < 16; ++cell) cross.weights[cell] = 0;
  const Index keys[] = {1, 2, 3, 3};
  for (Index row = 0; row < 4; ++row) cross.weights[row * 4 + keys[row]] = 1;
  trace.maps.push_back(cross);
  AttentionMap decoder;
  decoder.kind = AttentionKind::decoder;
  decoder.weights = Tensor<float>({1, 4, 4});
  decoder.visible = Tensor<std::uint8_t>({4, 4});
  for (Index row = 0; row < 4; ++row)
    for (Index key = 0; key <= row; ++key) {
      decoder.weights[row * 4 + key] = 1.0f / static_cast<float>(row + 1);
      decoder.visible[row * 4 + key] = 1;
    }
  trace.maps.push_back(decoder);
  return trace;
}

// One encoder head of n tokens with uniform rows, but the last row all on key 0.
inline Trace uniform(Index n, const std::string& token = "w", Index layers = 1, Index heads = 1) {
  Trace trace;
  trace.model = "toy";
  for (Index i = 0; i < n; ++i) trace.source.push_back(token + std::to_string(i));
  for (Index layer = 0; layer < layers; ++layer) {
    AttentionMap map;
    map.layer = layer;
    map.weights = Tensor<float>({heads, n, n}, 1.0f / static_cast<float>(n));
    for (Index head = 0; head < heads; ++head)
      for (Index key = 0; key < n; ++key) map.weights[(head * n + n - 1) * n + key] = key == 0;
    trace.maps.push_back(map);
  }
  return trace;
}

}  // namespace regard::samples
