// Example 1: five words in two dimensions, every number small enough to check
// by hand. W_Q = W_K = W_V = I, so queries, keys and values are the words.
#include <cstdio>

#include "regard/attend.h"

namespace {

void print_row(const char* what, const char* word, const float* numbers, regard::Index count) {
  std::printf("%s of %s:", what, word);
  for (regard::Index i = 0; i < count; ++i) std::printf(" %.4f", static_cast<double>(numbers[i]));
  std::printf("\n");
}

}  // namespace

int main() {
  const char* words[] = {"karina", "是", "去", "该", "商店"};
  // [batch, heads, words, dimensions]
  const regard::Tensor<float> x({1, 1, 5, 2}, {1, 0, 0, 1, 1, 1, 1, 1, 0.5f, 1});

  // scores q.k, times 1/sqrt(2), softmax over the keys, weighted sum of v
  const auto result = regard::attend(x, x, x, {.observe = {.weights = true}});

  for (regard::Index i = 0; i < 5; ++i) {
    print_row("weights", words[i], result.weights.data() + i * 5, 5);
    print_row("output", words[i], result.out.data() + i * 2, 2);
  }
}
