#include "regard/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "measure/resident.h"
#include "refusal.h"
#include "regard/bench.h"
#include "regard/plan.h"
#include "regard/threads.h"

namespace regard {
namespace {

// A number that counts what is done to it: the right number of operations is that
// of the definition's plain loops.
struct Counted {
  double value = 0;
  static inline double operations = 0;
  Counted() = default;
  Counted(double v) : value(v) {}  // NOLINT: stands for double
  friend Counted operator+(Counted a, Counted b) { return done(a.value + b.value); }
  friend Counted operator-(Counted a, Counted b) { return done(a.value - b.value); }
  friend Counted operator*(Counted a, Counted b) { return done(a.value * b.value); }
  friend Counted operator/(Counted a, Counted b) { return done(a.value / b.value); }
  void operator+=(Counted b) { *this = *this + b; }
  friend Counted exp(Counted a) { return done(std::exp(a.value)); }
  friend Counted tanh(Counted a) { return done(std::tanh(a.value)); }
  friend Counted sigmoid(Counted a) { return done(1 / (1 + std::exp(-a.value))); }
  friend Counted max(Counted a, Counted b) { return done(std::max(a.value, b.value)); }
  static Counted done(double v) {
    ++operations;
    return v;
  }
};

using Numbers = std::vector<Counted>;
struct Matrix {
  Matrix(Index r, Index c) : rows(r), cols(c), all(static_cast<std::size_t>(r * c), Counted(0.5)) {}
  Counted& operator()(Index i, Index j) { return all[static_cast<std::size_t>(i * cols + j)]; }
  Index rows, cols;
  Numbers all;
};

double operations_of(const std::function<void()>& work) {
  Counted::operations = 0;
  work();
  return Counted::operations;
}

Matrix product(Matrix& a, Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.cols; ++j) {
      Counted sum = 0;
      for (Index k = 0; k < a.cols; ++k) sum += a(i, k) * b(k, j);
      c(i, j) = sum;
    }
  return c;
}

// Small, with every size different.
constexpr CostProblem small{.n = 7, .model_dim = 6, .heads = 2, .budget = 4};
constexpr Index dim = 3;  // of its heads

double flops(const std::string& method, const std::string& step) { return method_cost(method, small).step(step).flops; }

using Visible = std::function<bool(Index, Index)>;
bool everything(Index, Index) { return true; }

// One head's softmax over `keys` keys, step by step: operations of scores, softmax and sum.
struct SoftmaxCounts {
  double scores = 0, softmax = 0, sum = 0;
};
SoftmaxCounts count_softmax(Index keys, const Visible& visible, bool divide_weights) {
  SoftmaxCounts counts;
  Matrix q(1, dim), k(dim, 1), v(1, dim);
  for (Index i = 0; i < small.n; ++i) {
    Numbers row;
    for (Index j = 0; j < keys; ++j)
      if (visible(i, j)) counts.scores += operations_of([&] { row.push_back(product(q, k)(0, 0)); });
    Counted largest = -1e9, sum = 0;
    counts.softmax += operations_of([&] {
      for (Counted& score : row) largest = max(largest, score = score * 0.7);
      for (Counted& score : row) sum += score = exp(score - largest);
      for (Counted& score : row)
        if (divide_weights) score = score / sum;
    });
    counts.sum += operations_of([&] {
      Matrix out(1, dim);
      for (Index d = 0; d < dim; ++d) {
        for (Counted weight : row) out(0, d) += weight * v(0, d);
        if (!divide_weights) out(0, d) = out(0, d) / sum;
      }
    });
  }
  return counts;
}

void expect_softmax(const std::string& method, Index keys, const Visible& visible, bool divide_weights = false) {
  const SoftmaxCounts one = count_softmax(keys, visible, divide_weights);
  const double heads = static_cast<double>(small.heads);
  EXPECT_EQ(flops(method, "scores"), heads * one.scores) << method;
  EXPECT_EQ(flops(method, "softmax"), heads * one.softmax) << method;
  EXPECT_EQ(flops(method, "sum"), heads * one.sum) << method;
}

TEST(Cost, of_softmax_attention_is_what_plain_loops_do) {
  expect_softmax("exact", small.n, everything);
  expect_softmax("stored", small.n, everything, true);
  expect_softmax("causal", small.n, [](Index i, Index j) { return j <= i; });
  expect_softmax("window", small.n, [](Index i, Index j) { return j <= i && j > i - small.budget; });
  expect_softmax("linformer", small.budget, everything);
}

TEST(Cost, of_projections_is_that_of_their_products) {
  Matrix x(small.n, small.model_dim), one(small.model_dim, small.model_dim);
  const double product_of_one = operations_of([&] { product(x, one); });
  for (const char* method : {"exact", "stored", "causal", "window", "linformer", "performer", "linear"}) {
    EXPECT_EQ(flops(method, "project"), 3 * product_of_one) << method;
    EXPECT_EQ(flops(method, "output"), product_of_one) << method;
  }
  EXPECT_EQ(flops("reformer", "project"), 2 * product_of_one);
  EXPECT_EQ(flops("rnn", "input"), product_of_one);
  EXPECT_EQ(flops("lstm", "input"), 4 * product_of_one);
}

TEST(Cost, of_the_linformers_slots_is_that_of_their_products) {
  Matrix table(small.budget, small.n), x(small.n, dim);
  EXPECT_EQ(flops("linformer", "slots"), 2 * small.heads * operations_of([&] { product(table, x); }));
}

// Sums over keys in a state, then the queries against it; `features` of them.
void expect_state(const std::string& method, Index features) {
  const double heads = static_cast<double>(small.heads);
  Matrix phi(small.n, features), v(small.n, dim), state(features, dim + 1);
  EXPECT_EQ(flops(method, "state"), heads * operations_of([&] {
                                      for (Index j = 0; j < small.n; ++j)
                                        for (Index f = 0; f < features; ++f) {
                                          for (Index d = 0; d < dim; ++d) state(f, d) += phi(j, f) * v(j, d);
                                          state(f, dim) += phi(j, f);
                                        }
                                    }))
      << method;
  EXPECT_EQ(flops(method, "answers"), heads * operations_of([&] {
                                        Matrix out = product(phi, state);
                                        for (Index i = 0; i < small.n; ++i)
                                          for (Index d = 0; d < dim; ++d) out(i, d) = out(i, d) / out(i, dim);
                                      }))
      << method;
}

TEST(Cost, of_feature_attention_is_what_plain_loops_do) {
  expect_state("performer", small.budget);
  expect_state("linear", dim);
  const double heads = static_cast<double>(small.heads);
  // Of queries and keys: exp(w . x - |x|^2 / 2).
  Matrix x(2 * small.n, dim), w(dim, small.budget);
  EXPECT_EQ(flops("performer", "features"), heads * operations_of([&] {
                                              Matrix features = product(x, w);
                                              for (Index i = 0; i < x.rows; ++i) {
                                                Counted square = 0;
                                                for (Index d = 0; d < dim; ++d) square += x(i, d) * x(i, d);
                                                const Counted half = square * 0.5;
                                                for (Index f = 0; f < small.budget; ++f)
                                                  features(i, f) = exp(features(i, f) - half);
                                              }
                                            }));
  EXPECT_EQ(flops("linear", "features"), heads * operations_of([&] {
                                           for (Counted& one : x.all) one = one + 1;
                                         }));
}

TEST(Cost, of_recurrent_layers_is_what_plain_loops_do) {
  const Index width = small.model_dim;
  for (const auto& [method, gates] : {std::pair{"rnn", Index{1}}, {"lstm", Index{4}}}) {
    Matrix u(width, gates * width), sums(1, gates * width), h(1, width), c(1, width);
    double recurrence = 0, mixing = 0;
    for (Index t = 0; t < small.n; ++t) {
      recurrence += operations_of([&] {
        for (Index g = 0; g < gates * width; ++g)
          for (Index k = 0; k < width; ++k) sums(0, g) += h(0, k) * u(k, g);
      });
      mixing += operations_of([&] {
        for (Index j = 0; j < width; ++j) {
          if (gates == 1) {
            h(0, j) = tanh(sums(0, j));
            continue;
          }
          c(0, j) = sigmoid(sums(0, width + j)) * c(0, j) + sigmoid(sums(0, j)) * tanh(sums(0, 2 * width + j));
          h(0, j) = sigmoid(sums(0, 3 * width + j)) * tanh(c(0, j));
        }
      });
    }
    EXPECT_EQ(flops(method, "recurrence"), recurrence);
    EXPECT_EQ(flops(method, "gates"), mixing);
  }
}

// Chunks of 64 meet themselves and the chunk before, in every round.
TEST(Cost, of_the_reformer_counts_chunks_and_directions) {
  // 200 tokens: chunks of 64, 64, 64 and 8; 2 rounds; 3 buckets round down to 2.
  const CostProblem problem{.n = 200, .model_dim = 6, .heads = 2, .budget = 128};
  const MethodCost cost = method_cost("reformer", problem);
  const double pairs = 2 * (64 * 64 + 64 * 128 + 64 * 128 + 8 * 72);
  EXPECT_EQ(cost.step("scores").flops, 2 * 2 * 3 * pairs);  // 2 heads of 3
  EXPECT_EQ(cost.step("softmax").flops, 2 * 5 * pairs);
  // One direction a pair of buckets: a product with [3, 1], and the largest of both signs.
  EXPECT_EQ(cost.step("hash").flops, 2 * 2 * 200 * (2 * 3 * 1 + 2));
  // A round's part: rescale, times a factor, add; in the end a division.
  EXPECT_EQ(cost.step("sum").flops, 2 * 2 * 3 * pairs + 2 * 3 * 200 * 6 + 200 * 6);
  EXPECT_FALSE(cost.path_length);
}

TEST(Cost, of_masks_agrees_with_the_benchmarks_count_of_visible_pairs) {
  for (const auto& [method, name] : {std::pair{"exact", "full/n1024/d64/f32"},
                                     {"causal", "causal/n1024/d64/f32"},
                                     {"window", "window256/n8192/d64/f32"}}) {
    const auto at = std::find_if(bench_cases().begin(), bench_cases().end(),
                                 [&](const BenchCase& one) { return one.name == name; });
    ASSERT_NE(at, bench_cases().end());
    const CostProblem problem{.n = at->q_len, .model_dim = 64 * at->q_heads, .heads = at->q_heads, .budget = 256};
    const MethodCost cost = method_cost(method, problem);
    const double divisions = static_cast<double>(problem.n * problem.model_dim);
    EXPECT_EQ(cost.step("scores").flops + cost.step("sum").flops - divisions, BenchProblem(*at).operations()) << name;
  }
}

// The terms of the tables: projections n d d_k, scores n^2 d_k, softmax n^2, sum n^2 d_v.
TEST(Cost, of_the_base_layer_is_the_textbooks) {
  const MethodCost cost = method_cost("exact", {.n = 2048});
  EXPECT_EQ(cost.step("project").flops, 2.0 * 2048 * 512 * 64 * 3 * 8);
  EXPECT_EQ(cost.step("scores").flops, 2.0 * 2048 * 2048 * 64 * 8);
  EXPECT_EQ(cost.step("softmax").flops, 5.0 * 2048 * 2048 * 8);
  EXPECT_EQ(cost.step("sum").flops, 8 * (2.0 * 2048 * 2048 * 64 + 2048.0 * 64));
  EXPECT_EQ(cost.weights, 4 * 512 * 512);
  double sum = 0;
  for (const char* step : {"project", "attention", "output"}) sum += cost.step(step).flops;
  EXPECT_EQ(cost.step("layer").flops, sum);
  EXPECT_EQ(method_cost("rnn", {.n = 2048}).step("layer").flops, 2048 * (4.0 * 512 * 512 + 512));
  EXPECT_EQ(method_cost("lstm", {.n = 2048}).weights, 8 * 512 * 512);
}

TEST(Cost, in_bytes_counts_what_passes_through_memory) {
  const double rows = 4 * 2048 * 512, matrix = 4.0 * 8 * 2048 * 2048, weights = 4 * 512 * 512;
  const MethodCost exact = method_cost("exact", {.n = 2048}), stored = method_cost("stored", {.n = 2048});
  EXPECT_EQ(exact.step("project").bytes, 4 * rows + 3 * weights);
  EXPECT_EQ(exact.step("attention").bytes, 4 * rows);  // q, k, v and what comes out
  // The weights are written, read and written again, and read.
  EXPECT_EQ(stored.step("attention").bytes, exact.step("attention").bytes + 4 * matrix);
  // The state's weights once for every position.
  EXPECT_EQ(method_cost("rnn", {.n = 2048}).step("recurrence").bytes, 2048 * weights + 3 * rows);
}

TEST(Cost, in_path_and_order_is_what_tables_give) {
  EXPECT_EQ(method_cost("exact", {.n = 1000}).sequential_steps, 1);
  EXPECT_EQ(method_cost("exact", {.n = 1000}).path_length, 1);
  EXPECT_EQ(method_cost("lstm", {.n = 1000}).sequential_steps, 1000);
  EXPECT_EQ(method_cost("lstm", {.n = 1000}).path_length, 999);
  // 255 keys further back with each layer: 3 layers reach 765, 4 reach 1020.
  EXPECT_EQ(method_cost("window", {.n = 1000}).path_length, 4);
  EXPECT_EQ(method_cost("window", {.n = 766}).path_length, 3);
  EXPECT_EQ(method_cost("window", {.n = 767}).path_length, 4);
}

// Beside its tiles a pass keeps the maximum and the sum of every row.
TEST(Cost, in_workspace_is_the_plans_and_two_numbers_a_row) {
  const Tensor<float> x({1, 8, 5000, 64});
  const double planned = static_cast<double>(plan_attend(x, x, x).workspace_bytes), rows = 4 * 2 * 8;
  EXPECT_EQ(method_cost("exact", {.n = 5000}).step("attention").workspace_bytes, planned + rows * 5000);
  EXPECT_EQ(method_cost("exact", {.n = 100'000}).step("attention").workspace_bytes, planned + rows * 100'000);
  // A layer keeps q, k, v and the heads' answers besides.
  EXPECT_EQ(method_cost("exact", {.n = 5000}).step("layer").workspace_bytes,
            planned + rows * 5000 + 4.0 * 4 * 5000 * 512);
  EXPECT_EQ(method_cost("stored", {.n = 5000}).step("attention").workspace_bytes, 4.0 * 8 * 5000 * 5000);
}

// Of what its formula says, within a few pages of 2 MiB that large arrays lie on.
TEST(Cost, in_workspace_is_what_memory_rises_by) {
  if (!detail::peak_growth([] {})) GTEST_SKIP() << "this system does not report a peak that can be reset";
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "freed memory is kept aside";
#endif
  set_threads(1);
  const CostProblem problem{.n = 2048, .model_dim = 256, .heads = 4, .budget = 128};
  for (const std::string& method : cost_methods()) {
    const char* step = method == "rnn" || method == "lstm" ? "layer" : "attention";
    const double formula = method_cost(method, problem).step(step).workspace_bytes;
    for (const MeasuredStep& measured : measure_cost(method, problem, 1e-6))
      if (measured.step == step) {
        EXPECT_LE(*measured.peak_bytes, 1.2 * formula + 3e6) << method << " " << formula;
        EXPECT_GE(*measured.peak_bytes, 0.8 * formula - 3e5) << method << " " << formula;
      }
  }
  set_threads(0);
}

TEST(Cost, is_measured_step_by_step) {
  const CostProblem problem{.n = 100, .model_dim = 32, .heads = 2, .budget = 16};
  for (const std::string& method : cost_methods()) {
    const MethodCost cost = method_cost(method, problem);
    const auto measured = measure_cost(method, problem, 1e-6);
    ASSERT_FALSE(measured.empty()) << method;
    double parts = 0;
    for (const MeasuredStep& one : measured) {
      EXPECT_NO_THROW(cost.step(one.step)) << method;
      EXPECT_GT(one.ms, 0) << method;
      if (one.step == "project" || one.step == "attention" || one.step == "output") parts += one.ms;
    }
    EXPECT_EQ(measured.back().step, "layer");
    if (measured.size() > 1) {
      EXPECT_DOUBLE_EQ(measured.back().ms, parts) << method;
    }
  }
}

TEST(Cost, beyond_half_of_the_memory_is_not_measured) {
  EXPECT_TRUE(measure_cost("stored", {.n = Index{1} << 22}, 1e-6).empty());
  // Tables of n x budget, 2^44 numbers.
  EXPECT_TRUE(measure_cost("linformer", {.n = Index{1} << 22, .budget = Index{1} << 22}, 1e-6).empty());
}

TEST(Cost, exponents_are_those_of_powers) {
  EXPECT_NEAR(*fitted_exponent({512, 2048, 8192}, {3, 48, 768}), 2, 1e-12);
  EXPECT_NEAR(*fitted_exponent({10, 1000}, {5, 5}), 0, 1e-12);
  // Through (0, 0), (1, 1) and (2, 0) in logarithms goes a level line.
  EXPECT_NEAR(*fitted_exponent({1, std::exp(1), std::exp(2)}, {1, std::exp(1), 1}), 0, 1e-12);
  EXPECT_FALSE(fitted_exponent({512, 512}, {1, 2}));
  EXPECT_FALSE(fitted_exponent({}, {}));
}

TEST(Cost, bad_sizes_are_refused_by_name) {
  const auto refused = [](const std::string& method, const CostProblem& problem) {
    return testing::message_of([&] { method_cost(method, problem); });
  };
  EXPECT_EQ(refused("exact", {.n = 0}), "cost: n is 0, must be 1 to 2^24");
  EXPECT_EQ(refused("exact", {.n = 5, .model_dim = 100, .heads = 3}), "cost: model_dim 100 is no multiple of heads 3");
  EXPECT_EQ(refused("exact", {.n = 5, .budget = Index{1} << 25}), "cost: budget is 33554432, must be 1 to 2^24");
  testing::expect_contains(refused("flash", {.n = 5}), "cost: no method 'flash'; there are exact stored");
  EXPECT_EQ(testing::message_of([] { method_cost("exact", {.n = 5}).step("gates"); }),
            "cost: exact has no step 'gates'");
  EXPECT_EQ(testing::message_of([] { fitted_exponent({1, 2}, {1}); }), "fitted_exponent: 2 lengths and 1 numbers");
  EXPECT_EQ(testing::message_of([] {
              fitted_exponent({1, 2}, {1, 0});
            }),
            "fitted_exponent: 0.000000 at length 2.000000 has no logarithm");
}

}  // namespace
}  // namespace regard
