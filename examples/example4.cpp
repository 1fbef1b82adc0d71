// Example 4: the old multi-head layout, in which all heads share one
// [head_dim, head_dim] matrix each for queries, keys and values. Batch 3, 10
// tokens, width 256, 8 heads of 32.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "regard/multi_head.h"

using regard::Index;
using regard::Tensor;

Tensor<float> normal(regard::Shape shape, double scale, regard::Random& random) {
  Tensor<float> numbers(std::move(shape));
  for (float& number : numbers.values()) number = static_cast<float>(scale * random.normal());
  return numbers;
}

void print_shape(const char* what, const Tensor<float>& tensor) {
  std::printf("shape of %s:", what);
  for (Index size : tensor.shape()) std::printf(" %d", static_cast<int>(size));
  std::printf("\n");
}

// Columns [32 head, 32 head + 32) of x [batch, seq, 256], packed.
Tensor<float> slice_of_head(const Tensor<float>& x, Index head) {
  return packed(x.view<3>().slice(2, 32 * head, 32 * head + 32));
}

int main() {
  const Index heads = 8, head_dim = 32;
  regard::Random random(1);
  const auto x = normal({3, 10, heads * head_dim}, 1.0, random);
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  const auto w_q = normal({head_dim, head_dim}, scale, random), w_k = normal({head_dim, head_dim}, scale, random),
             w_v = normal({head_dim, head_dim}, scale, random);
  const auto attend_with = [&](const Tensor<float>& input, Index count) {
    return attend(project_shared(input, w_q, count), project_shared(input, w_k, count),
                  project_shared(input, w_v, count), {.observe = {.weights = true}});
  };

  const auto all = attend_with(x, heads);  // [3, 8, 10, 32]
  regard::Linear<float> output("output", heads * head_dim, heads * head_dim, random);
  regard::Tape<float> tape;
  const auto y = output.forward(tape, tape.node(concatenate_heads(all.out)));
  print_shape("heads", all.out);
  print_shape("weights", all.weights);
  print_shape("output", y->value);

  double row_error = 0, difference = 0;
  for (Index row = 0; row < all.weights.count(); row += 10) {
    double sum = 0;
    for (Index j = 0; j < 10; ++j) sum += static_cast<double>(all.weights[row + j]);
    row_error = std::max(row_error, std::abs(sum - 1));
  }
  std::printf("row sums differ from 1 by at most: %.1e\n", row_error);

  // The same matrices on one head's slice at a time: nothing else is shared.
  const auto view = all.out.view<4>();
  for (Index h = 0; h < heads; ++h) {
    const auto alone = attend_with(slice_of_head(x, h), 1);
    for (Index b = 0; b < 3; ++b)
      for (Index i = 0; i < 10 * head_dim; ++i)
        difference = std::max(difference, static_cast<double>(std::abs(alone.out[b * 10 * head_dim + i] -
                                                                       view(b, h, i / head_dim, i % head_dim))));
  }
  std::printf("heads one at a time differ by at most: %.1e\n", difference);
}
