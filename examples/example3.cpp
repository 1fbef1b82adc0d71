// Example 3: a multi-head layer, model_dim 512 with 8 heads; padding and causal
// masks hide exactly what they should.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "regard/multi_head.h"

using regard::Index;
using regard::Tensor;

// What the layer gives for x, and the weights of every head.
struct Seen {
  Tensor<float> out, weights;
};

Seen run(regard::MultiHeadAttention<float>& layer, const Tensor<float>& x, const regard::Mask& mask = {}) {
  regard::Tape<float> tape;
  regard::HeadWeights<float> seen;
  const auto out = layer.self(tape, tape.node(x), {.mask = mask, .seen = &seen});
  return {out->value, seen.weights};
}

Tensor<float> normal(regard::Shape shape, regard::Random& random) {
  Tensor<float> numbers(std::move(shape));
  for (float& number : numbers.values()) number = static_cast<float>(random.normal());
  return numbers;
}

// The largest weight among pairs (query i, key j) for which `chosen` holds.
template <class F>
double largest(const Tensor<float>& weights, F chosen) {
  double most = 0;
  const Index q_len = weights.size(2), kv_len = weights.size(3);
  for (Index at = 0; at < weights.count(); ++at)
    if (chosen(at / kv_len % q_len, at % kv_len)) most = std::max(most, static_cast<double>(weights[at]));
  return most;
}

double largest_error_of_row_sums(const Tensor<float>& weights) {
  double error = 0;
  for (Index row = 0; row < weights.count(); row += weights.size(3)) {
    double sum = 0;
    for (Index j = 0; j < weights.size(3); ++j) sum += static_cast<double>(weights[row + j]);
    error = std::max(error, std::abs(sum - 1));
  }
  return error;
}

void print_shape(const char* what, const Tensor<float>& tensor) {
  std::printf("shape of %s:", what);
  for (Index size : tensor.shape()) std::printf(" %d", static_cast<int>(size));
  std::printf("\n");
}

int main() {
  regard::Random random(1);
  regard::MultiHeadAttention<float> layer("layer", {.model_dim = 512, .heads = 8}, random);

  const auto [out, weights] = run(layer, normal({2, 10, 512}, random));
  print_shape("output", out);
  print_shape("weights", weights);
  std::printf("row sums differ from 1 by at most: %.1e\n", largest_error_of_row_sums(weights));

  // Token ids with two pads at the end: no query may look at them.
  const Tensor<std::int64_t> ids({1, 5}, {1, 2, 3, 0, 0});
  const auto padded = run(layer, normal({1, 5, 512}, random), regard::padding(ids, 0));
  const auto is_pad = [](Index, Index key) { return key >= 3; };
  std::printf("largest weight on a pad: %g\n", largest(padded.weights, is_pad));
  std::printf("padded, row sums differ from 1 by at most: %.1e\n", largest_error_of_row_sums(padded.weights));

  const auto ordered = run(layer, normal({2, 10, 512}, random), regard::causal());
  const auto is_future = [](Index query, Index key) { return key > query; };
  std::printf("largest weight on the future: %g\n", largest(ordered.weights, is_future));
  std::printf("weight of the first token on itself: %.4f\n", static_cast<double>(ordered.weights[0]));
}
