#include "regard/cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "measure/cost_sizes.h"
#include "regard/error.h"
#include "regard/plan.h"
#include "regard/threads.h"

namespace regard {
namespace {

using detail::reformer_chunk;
using Steps = std::vector<StepCost>;

constexpr double number = 4;  // bytes of a float32

struct Sizes {
  double n, m, h, d, budget;
};

// A product of [rows, depth] and [depth, columns].
StepCost product(const char* step, double rows, double depth, double columns) {
  return {step, 2 * rows * depth * columns, number * (rows * depth + depth * columns + rows * columns), 0};
}

// Steps that share scratch memory.
void share(Steps& steps, double workspace) {
  for (StepCost& step : steps) step.workspace_bytes = std::max(step.workspace_bytes, workspace);
}

// Scratch memory of the blockwise pass, as the plan counts it. Tiles do not grow
// with length beyond a few blocks, so a shorter call stands for a long one.
double tile_bytes(const Sizes& s, double keys) {
  static const float nothing = 0;
  // Scratch memory is a thread's: more rows and heads only take longer to plan.
  const auto length = [](double x) { return static_cast<Index>(std::min(x, 4096.0)); };
  const auto heads = std::min<Index>(static_cast<Index>(s.h), 2 * threads());
  const auto view = [&](double rows) {
    return View<const float, 4>(&nothing, {1, heads, length(rows), static_cast<Index>(s.d)}, {});
  };
  return static_cast<double>(plan_attend(view(s.n), view(keys), view(keys)).workspace_bytes);
}

// Softmax over `pairs` pairs of each head, among `keys` keys, blockwise.
Steps softmax_steps(const Sizes& s, double pairs, double keys) {
  Steps steps = {{"scores", 2 * pairs * s.m, number * (s.n + keys) * s.m},
                 {"softmax", 5 * pairs * s.h, 0},
                 {"sum", 2 * pairs * s.m + s.n * s.m, number * (keys + s.n) * s.m}};
  share(steps, tile_bytes(s, keys) + number * 2 * s.n * s.h);  // and each row's maximum and sum
  return steps;
}

Steps exact(const Sizes& s) { return softmax_steps(s, s.n * s.n, s.n); }
Steps causal_steps(const Sizes& s) { return softmax_steps(s, s.n * (s.n + 1) / 2, s.n); }

Steps window_steps(const Sizes& s) {
  const double w = std::min(s.budget, s.n);
  return softmax_steps(s, w * s.n - w * (w - 1) / 2, s.n);
}

// The divisions come before the sum here: n of them a row instead of d.
Steps stored(const Sizes& s) {
  const double weights = s.h * s.n * s.n, rows = s.n * s.m;
  Steps steps = {{"scores", 2 * s.n * rows, number * (2 * rows + weights)},
                 {"softmax", 6 * weights, number * 2 * weights},
                 {"sum", 2 * s.n * rows, number * (2 * rows + weights)}};
  share(steps, number * weights);
  return steps;
}

Steps linformer(const Sizes& s) {
  const double slots = s.budget;
  Steps steps = {{"slots", 4 * s.n * slots * s.m, number * 2 * (s.n * s.m + slots * s.n + slots * s.m)}};
  const Steps rest = softmax_steps(s, s.n * slots, slots);
  steps.insert(steps.end(), rest.begin(), rest.end());
  share(steps, number * 2 * slots * s.m + rest[0].workspace_bytes);
  return steps;
}

// Sums over keys in a state of [features, head_dim + 1] a head, after `mapping`
// operations for the features of one token's query or key, all heads.
Steps feature_steps(const Sizes& s, double features, double mapping) {
  const double state = features * (s.d + 1), block = detail::feature_rows;
  Steps steps = {{"features", 2 * s.n * mapping, number * 2 * s.n * s.m},
                 {"state", s.n * s.h * features * (2 * s.d + 1), number * s.n * s.m},
                 {"answers", s.n * s.h * (features * (2 * s.d + 2) + s.d), number * s.n * s.m}};
  // The state, packed once more for the answers, and a block of rows with their features.
  share(steps, number * threads() * (2 * state + block * (2 * features + 3 * (s.d + 1))));
  return steps;
}

// Each feature: a product with the row, half the row's squared length off, exp.
Steps performer(const Sizes& s) { return feature_steps(s, s.budget, s.h * (s.budget * (2 * s.d + 2) + 2 * s.d + 1)); }
// elu(x) + 1: an exponential or an addition an element.
Steps linear(const Sizes& s) { return feature_steps(s, s.d, s.m); }

// Pairs in which tokens of a chunk meet those of their own and the chunk before.
double chunk_pairs(double n, double chunk) {
  double pairs = 0;
  for (double first = 0; first < n; first += chunk) {
    const double rows = std::min(chunk, n - first);
    pairs += rows * (std::min(first, chunk) + rows);
  }
  return pairs;
}

Steps reformer(const Sizes& s) {
  const auto n = static_cast<Index>(s.n);
  const double rounds = static_cast<double>(detail::reformer_rounds(static_cast<Index>(s.budget)));
  const double buckets = static_cast<double>(detail::reformer_buckets_of(n)), rows = s.n * s.m;
  const double pairs = rounds * chunk_pairs(s.n, std::min(s.n, double{reformer_chunk}));
  Steps steps = {// Half the buckets are directions, the others their opposites.
                 {"hash", rounds * s.n * (s.m * buckets + s.h * buckets), number * (rows + rounds * s.n * s.h)},
                 // Tokens in the order of their buckets: queries, keys of length 1, values.
                 {"sort", rounds * 2 * rows + 2 * rows, number * rounds * (5 * rows + 3 * s.n * s.h)},
                 {"scores", 2 * pairs * s.m, number * rounds * 2 * rows},
                 {"softmax", 5 * pairs * s.h, 0},
                 {"sum", 2 * pairs * s.m + rounds * 3 * rows + rows, number * rounds * 3 * rows}};
  const double head = s.n * (4 * s.d + 3 * rounds + 3);
  share(steps, number * (threads() * head + rounds * s.n * s.h));
  return steps;
}

// How a method's steps stand in a layer.
struct MethodShape {
  std::string method;
  Steps (*steps)(const Sizes&);
  double projections;  // into the heads: q, k and v, or two where queries are keys
};

const std::vector<MethodShape>& attention_methods() {
  static const std::vector<MethodShape> all = {{"exact", exact, 3},         {"stored", stored, 3},
                                               {"causal", causal_steps, 3}, {"window", window_steps, 3},
                                               {"linformer", linformer, 3}, {"performer", performer, 3},
                                               {"linear", linear, 3},       {"reformer", reformer, 2}};
  return all;
}

// The sum of all steps so far, with the largest workspace.
StepCost sum_of(const char* name, const Steps& steps) {
  StepCost sum{name};
  for (const StepCost& step : steps) {
    sum.flops += step.flops;
    sum.bytes += step.bytes;
    sum.workspace_bytes = std::max(sum.workspace_bytes, step.workspace_bytes);
  }
  return sum;
}

MethodCost attention_cost(const MethodShape& shape, const Sizes& s) {
  const Steps inner = shape.steps(s);
  Steps steps{product("project", s.n, s.m, shape.projections * s.m)};
  steps.insert(steps.end(), inner.begin(), inner.end());
  steps.push_back(product("output", s.n, s.m, s.m));
  StepCost layer = sum_of("layer", steps);
  layer.workspace_bytes += number * (shape.projections + 1) * s.n * s.m;
  steps.insert(steps.end() - 1, sum_of("attention", inner));
  steps.push_back(layer);
  return {shape.method, steps, (shape.projections + 1) * s.m * s.m, 1, 1.0};
}

// `gates` of tanh and sigmoid, each a row of weights for input and state, and
// `mixing` operations besides on each of the state's numbers.
MethodCost recurrent_cost(const std::string& method, double gates, double mixing, const Sizes& s) {
  const double rows = s.n * s.m, width = gates * s.m;
  const double kept = method == "lstm" ? 2 * rows : rows;  // h, and the cell
  // h U is added to what the input gave; U is read at every position.
  Steps steps{product("input", s.n, s.m, width),
              {"recurrence", 2 * rows * width, number * s.n * (s.m + s.m * width + 2 * width)},
              {"gates", rows * (gates + mixing), number * (gates * rows + kept)}};
  StepCost layer = sum_of("layer", steps);
  layer.workspace_bytes = number * (gates * rows + (method == "lstm" ? rows : 0));
  steps.push_back(layer);
  return {method, steps, 2 * s.m * width, s.n, s.n - 1};
}

void check(const CostProblem& problem) {
  constexpr Index most = Index{1} << 24;
  for (const auto& [name, value] : {std::pair{"n", problem.n},
                                    {"model_dim", problem.model_dim},
                                    {"heads", problem.heads},
                                    {"budget", problem.budget}})
    if (value < 1 || value > most)
      throw ArgumentError("cost: " + std::string(name) + " is " + std::to_string(value) + ", must be 1 to 2^24");
  if (problem.model_dim % problem.heads != 0)
    throw ArgumentError("cost: model_dim " + std::to_string(problem.model_dim) + " is no multiple of heads " +
                        std::to_string(problem.heads));
}

}  // namespace

const StepCost& MethodCost::step(const std::string& name) const {
  const auto at = std::find_if(steps.begin(), steps.end(), [&](const StepCost& one) { return one.step == name; });
  if (at == steps.end()) throw ArgumentError("cost: " + method + " has no step '" + name + "'");
  return *at;
}

const std::vector<std::string>& cost_methods() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const MethodShape& shape : attention_methods()) all.push_back(shape.method);
    all.insert(all.end(), {"rnn", "lstm"});
    return all;
  }();
  return names;
}

MethodCost method_cost(const std::string& method, const CostProblem& problem) {
  check(problem);
  const auto as = [](Index value) { return static_cast<double>(value); };
  const Sizes s{as(problem.n), as(problem.model_dim), as(problem.heads), as(problem.head_dim()), as(problem.budget)};
  if (method == "rnn") return recurrent_cost(method, 1, 0, s);
  // Besides three sigmoids and a tanh: c = f c + i g, h = o tanh(c).
  if (method == "lstm") return recurrent_cost(method, 4, 5, s);
  for (const MethodShape& shape : attention_methods()) {
    if (shape.method != method) continue;
    MethodCost cost = attention_cost(shape, s);
    if (method == "linformer") cost.weights += 2 * s.budget * s.n;
    if (method == "reformer") cost.path_length.reset();
    // Each layer carries a token's news over the rest of the window.
    const double reach = s.budget - 1;
    if (method == "window") cost.path_length = std::max(1.0, s.n == 1 ? 1.0 : std::ceil((s.n - 1) / reach));
    return cost;
  }
  std::string known;
  for (const std::string& name : cost_methods()) known += " " + name;
  throw ArgumentError("cost: no method '" + method + "'; there are" + known);
}

std::optional<double> fitted_exponent(const std::vector<double>& lengths, const std::vector<double>& numbers) {
  if (lengths.size() != numbers.size())
    throw ArgumentError("fitted_exponent: " + std::to_string(lengths.size()) + " lengths and " +
                        std::to_string(numbers.size()) + " numbers");
  const auto count = static_cast<double>(lengths.size());
  double mean_x = 0, mean_y = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (!(lengths[i] > 0) || !(numbers[i] > 0))
      throw ArgumentError("fitted_exponent: " + std::to_string(numbers[i]) + " at length " +
                          std::to_string(lengths[i]) + " has no logarithm");
    mean_x += std::log(lengths[i]) / count;
    mean_y += std::log(numbers[i]) / count;
  }
  double squares = 0, products = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const double x = std::log(lengths[i]) - mean_x;
    squares += x * x;
    products += x * (std::log(numbers[i]) - mean_y);
  }
  // Equal lengths differ by rounding at most.
  return squares > 1e-18 ? std::optional(products / squares) : std::nullopt;
}

}  // namespace regard
