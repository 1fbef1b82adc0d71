#include "regard/transformer_xl.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/gradient_check.h"
#include "refusal.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::message_of;
using testing::random_tensor;
using testing::shaken_parameters;

constexpr Index width = 4, heads = 2;

template <class T>
TransformerXlAttention<T> layer_of() {
  Random random(1);
  return TransformerXlAttention<T>("xl", width, heads, random);
}

TEST(TransformerXl, gradients_are_exact_with_and_without_memory) {
  for (const Index before : {0, 3}) {
    auto layer = layer_of<double>();
    const Tensor<double> memory = before == 0 ? Tensor<double>() : random_tensor<double>({2, before, width}, 3);
    expect_exact_gradients({{random_tensor<double>({2, 4, width}, 2)},
                            shaken_parameters(layer),
                            [&](auto& tape, const auto& x) { return layer.forward(tape, x[0], memory); }});
  }
}

// Equations of the paper's appendix, token by token: A = (q + u) k + (q + v) W R_(i - j).
TEST(TransformerXl, scores_are_those_of_the_paper) {
  auto layer = layer_of<double>();
  shaken_parameters(layer);
  const Index before = 2, seq = 3, dim = width / heads;
  const auto x = random_tensor<double>({1, seq, width}, 2), memory = random_tensor<double>({1, before, width}, 3);
  Tape<double> tape;
  const auto got = layer.forward(tape, tape.node(x), memory)->value;
  const auto times = [](const double* row, const Linear<double>& linear, Index column) {
    double sum = 0;
    for (Index i = 0; i < width; ++i) sum += row[i] * linear.weight.value[i * linear.out() + column];
    return sum;
  };
  const auto token = [&](Index j) { return j < before ? memory.data() + j * width : x.data() + (j - before) * width; };
  for (Index i = 0; i < seq; ++i) {
    std::vector<double> context(width);
    for (Index h = 0; h < heads; ++h) {
      std::vector<double> scores;
      for (Index j = 0; j <= before + i; ++j) {
        const double distance = static_cast<double>(before + i - j);
        const double r[] = {std::sin(distance), std::cos(distance), std::sin(distance / 100), std::cos(distance / 100)};
        double score = 0;
        for (Index d = h * dim; d < (h + 1) * dim; ++d) {
          const double q = times(x.data() + i * width, layer.query, d);
          score += (q + layer.content_bias.value[d]) * times(token(j), layer.key_value, d);
          score += (q + layer.position_bias.value[d]) * times(r, layer.position, d);
        }
        scores.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
      }
      double total = 0;
      for (double score : scores) total += score;
      for (Index d = h * dim; d < (h + 1) * dim; ++d)
        for (Index j = 0; j <= before + i; ++j)
          context[static_cast<std::size_t>(d)] +=
              scores[static_cast<std::size_t>(j)] / total * times(token(j), layer.key_value, width + d);
    }
    for (Index d = 0; d < width; ++d) EXPECT_NEAR(got[i * width + d], times(context.data(), layer.output, d), 1e-12);
  }
}

// Segments with a memory that reaches back to the first token give the whole sequence's rows.
TEST(TransformerXl, segments_with_memory_are_the_whole_sequence) {
  auto layer = layer_of<float>();
  for (Index i = 0; i < width; ++i) layer.content_bias.value[i] = 0.1f * static_cast<float>(i + 1);
  for (Index i = 0; i < width; ++i) layer.position_bias.value[i] = -0.2f * static_cast<float>(i);
  const auto x = random_tensor<float>({2, 50, width}, 2);
  Tape<float> tape;
  const auto whole = layer.forward(tape, tape.node(x))->value;
  Tensor<float> memory;
  for (Index begin = 0; begin < 50; begin += 10) {
    const auto segment = packed(x.view<3>().slice(1, begin, begin + 10));
    const auto rows = layer.forward(tape, tape.node(segment), memory)->value;
    for (Index b = 0; b < 2; ++b)
      for (Index i = 0; i < 10 * width; ++i)
        ASSERT_NEAR(rows[b * 10 * width + i], whole[(b * 50 + begin) * width + i], 2e-6) << begin;
    memory = extend_memory(memory, segment, 40);
  }
}

TEST(TransformerXl, memory_keeps_the_last_tokens) {
  const Tensor<float> first({1, 3, 1}, {1, 2, 3}), second({1, 2, 1}, {4, 5});
  const auto list = [](const Tensor<float>& x) { return std::vector<float>(x.values().begin(), x.values().end()); };
  EXPECT_EQ(list(extend_memory({}, first, 5)), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(list(extend_memory(first, second, 4)), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(list(extend_memory(first, second, 1)), (std::vector<float>{5}));
  EXPECT_EQ(extend_memory(first, second, 0).count(), 0);
}

TEST(TransformerXl, what_does_not_fit_is_refused) {
  auto layer = layer_of<float>();
  Tape<float> tape;
  const auto x = tape.node(random_tensor<float>({2, 3, width}, 1));
  EXPECT_EQ(message_of([&] {
              layer.forward(tape, x, Tensor<float>({1, 3, width}));
            }),
            "TransformerXlAttention: memory [1,3,4] does not go with x [2,3,4]");
  Random random(1);
  EXPECT_THROW(TransformerXlAttention<float>("xl", 5, 2, random), ArgumentError);
  EXPECT_THROW(extend_memory(Tensor<float>(), Tensor<float>({1, 2, 3}), -1), ArgumentError);
}

}  // namespace
}  // namespace regard
