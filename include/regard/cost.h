// What one layer costs by formula: operations, bytes moved and scratch memory of
// each step, for exact attention, the methods that change it and recurrent
// layers, forward, on one sequence of float32 numbers.
//
//   flops      additions, multiplications, divisions, comparisons of a maximum, and
//              exp, tanh and sigmoid, one each; a product of [a, b] and [b, c] takes
//              2 a b c. Biases are left out.
//   bytes      what a step reads and writes when everything it needs passes through
//              memory once. Scores that a blockwise pass consumes where it makes
//              them never do. A recurrence reads its weights again at every position.
//   workspace  memory beside what a step is given and what it gives, all threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regard/view.h"

namespace regard {

struct CostProblem {
  Index n = 0;  // tokens
  Index model_dim = 512, heads = 8;
  // What the methods that look at less than everything may look at: keys of the
  // window, slots of the Linformer, features of the Performer; of the Reformer,
  // 64 for each round (at least one).
  Index budget = 256;

  Index head_dim() const { return model_dim / heads; }
};

struct StepCost {
  std::string step;
  double flops = 0, bytes = 0, workspace_bytes = 0;
};

struct MethodCost {
  std::string method;
  // In order. After the last step between projections and output stands their
  // sum, "attention" (not of recurrent layers); the last is the sum of all,
  // "layer". Steps share their workspace, so a sum has that of the largest, and
  // the layer adds what lies between its steps: q, k, v and what heads give.
  std::vector<StepCost> steps;
  double weights = 0;           // numbers that are learned, biases left out
  double sequential_steps = 1;  // that wait for one another
  // Through how many layers (or positions, of a recurrence) the last token hears
  // of the first; infinity where it never does (a window of the token itself),
  // empty where the data decides, as in hashing.
  std::optional<double> path_length = {};

  // Throws ArgumentError where the method has no such step.
  const StepCost& step(const std::string& name) const;
};

// exact       every pair, blockwise; nothing of n x n is kept
// stored      every pair, the textbook's way: scores and weights lie in memory
// causal      the pairs of the lower triangle
// window      causal, the last `budget` keys
// linformer, performer, linear, reformer (queries are keys, chunks of 64, n / 64 buckets)
// rnn, lstm   tanh(x W + h U + b), and four gates of it
const std::vector<std::string>& cost_methods();

// Throws ArgumentError naming the number for sizes below 1 or above 2^24, for
// heads that do not divide model_dim (both), and for a method there is not.
MethodCost method_cost(const std::string& method, const CostProblem& problem);

// The power of n that fits numbers at several lengths best: the slope of the
// straight line of least squares through their logarithms. Empty for fewer than
// two different lengths. Throws ArgumentError for numbers not above 0 and counts
// that differ.
std::optional<double> fitted_exponent(const std::vector<double>& lengths, const std::vector<double>& numbers);

struct MeasuredStep {
  std::string step;
  double ms = 0;  // the best of several calls, with threads() threads
  // How far resident memory rose in one call, what the step gives left out; empty
  // where the system does not tell.
  std::optional<double> peak_bytes = {};
};

// Times the steps of a method that can be told apart in its implementation: the
// projections, attention as a whole, the output, and their sum; each step of
// `stored`; the whole of a recurrent layer. Each takes about `seconds` and at
// least two calls. Nothing is measured, and the list is empty, where a method
// would take more than half of the machine's memory. To see peaks, it has malloc
// take large arrays from the system one by one from then on. Errors as method_cost.
std::vector<MeasuredStep> measure_cost(const std::string& method, const CostProblem& problem, double seconds);

}  // namespace regard
