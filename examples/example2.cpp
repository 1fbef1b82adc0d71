// Example 2: "Life is short, eat dessert first". The second word attends to the
// sentence with one head, then with three; then a second sequence attends to it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "regard/multi_head.h"

using regard::Index, regard::Shape, regard::Tensor;

// The 32-bit Mersenne Twister; a uniform in [0, 1) is its low 24 bits.
struct Generator {
  std::mt19937 twister{123};
  Tensor<float> uniform(Shape shape) {
    Tensor<float> numbers(std::move(shape));
    for (float& number : numbers.values()) number = static_cast<float>(twister() & 0xFFFFFF) / 16777216.0f;
    return numbers;
  }
  // Box-Muller on blocks of 16 uniforms, the first 8 with the second 8.
  Tensor<float> normal(Shape shape) {
    Tensor<float> numbers = uniform(std::move(shape));
    for (Index i = 0; i < numbers.count(); i += i % 16 == 7 ? 9 : 1) {
      const float radius = std::sqrt(-2.0f * std::log(1.0f - numbers[i])), angle = 6.2831853f * numbers[i + 8];
      numbers[i] = radius * std::cos(angle);
      numbers[i + 8] = radius * std::sin(angle);
    }
    return numbers;
  }
};

void print(const std::string& what, const float* numbers, Index count) {
  std::printf("%s:", what.c_str());
  for (Index i = 0; i < count; ++i) std::printf(" %.4f", static_cast<double>(numbers[i]));
  std::printf("\n");
}

// The projections of one or several heads; drawn in the order q, k, v.
struct Weights {
  Tensor<float> q, k, v;  // [heads, 24, 16], [heads, 24, 16], [heads, 28, 16]
};
Weights draw(Generator& from, Index heads) {
  return {from.uniform({heads, 24, 16}), from.uniform({heads, 24, 16}), from.uniform({heads, 28, 16})};
}

// The second word of `from` attends to all of `to`.
regard::AttendResult second_word(const Tensor<float>& from, const Tensor<float>& to, const Weights& w,
                                 const regard::AttendOptions& options) {
  const auto q = project_heads(from, w.q), k = project_heads(to, w.k), v = project_heads(to, w.v);
  return attend(std::as_const(q).view<4>().slice(2, 1, 2), k, v, options);
}

int main() {
  // Vocabulary by code point: Life 0, dessert 1, eat 2, first 3, is 4, short 5.
  const Tensor<float> table = Generator().normal({6, 16});
  Tensor<float> words({6, 16});
  float* row = words.data();
  for (Index id : {0, 4, 5, 2, 1, 3}) row = std::copy_n(table.data() + id * 16, 16, row);

  Generator generator;  // seeded again, and from here on it only goes on
  const Weights one = draw(generator, 1), three = draw(generator, 3);
  const Tensor<float> target = generator.uniform({8, 16});
  // q.k before the scale; then the usual attention with its weights
  const regard::Rectangle all_scores{.rows = 1, .keys = 6, .stage = regard::Stage::scaled};
  const regard::AttendOptions unscaled{.scale = 1.0f, .observe = {.rectangles = {all_scores}}};
  const regard::AttendOptions usual{.observe = {.weights = true}};
  print("scores", second_word(words, words, one, unscaled).rectangles[0].data(), 6);
  const auto single = second_word(words, words, one, usual);
  print("weights", single.weights.data(), 6);
  print("context", single.out.data(), 28);
  const auto heads = second_word(words, words, three, usual);
  for (Index h : {0, 1, 2}) print("weights of head " + std::to_string(h), heads.weights.data() + h * 6, 6);
  print("contexts of three heads", concatenate_heads(heads.out).data(), 84);
  print("cross-attention scores", second_word(target, words, one, unscaled).rectangles[0].data(), 6);
  const auto cross = second_word(target, words, one, usual);
  print("cross-attention weights", cross.weights.data(), 6);
  print("cross-attention context", cross.out.data(), 28);
}
