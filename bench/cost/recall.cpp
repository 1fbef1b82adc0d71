#include "recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

namespace regard::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
double processor_seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Accuracy, steps, microseconds a token in training and forward alone.
std::vector<double> trained(bool attends, RecallTask task, Index distance, const RecallPlan& plan) {
  Random random(3, static_cast<std::uint64_t>(distance));
  Network network({.attends = attends}, random);
  AdamW<float> optimizer(network.parameters());
  const Schedule schedule{.kind = ScheduleKind::constant, .peak = 2e-3, .warmup = 50};
  const std::clock_t start = std::clock();
  double fastest = 1e300, found = 0;
  Index length = 0;
  while (optimizer.steps < plan.most_steps && processor_seconds_since(start) < RecallPlan::most_seconds(distance) &&
         found < plan.enough) {
    const Sample sample = sample_of(task, distance, random);
    const auto begin = Clock::now();
    train_step(network, optimizer, sample, schedule.at(optimizer.steps + 1), 1.0);
    fastest = std::min(fastest, seconds_since(begin));
    length = sample.input.count();
    if (optimizer.steps % 25 == 0) found = accuracy(network, task, distance, random);
  }
  Random test(4);
  const Sample sample = sample_of(task, distance, test);
  double forward = 1e300;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    Tape<float> tape;
    network.forward(tape, sample.input);
    forward = std::min(forward, seconds_since(begin));
  }
  const double each = 1e6 / static_cast<double>(length);
  return {accuracy(network, task, distance, test), static_cast<double>(optimizer.steps), fastest * each,
          forward * each};
}

}  // namespace

Table recall_table(RecallTask task, const RecallPlan& plan) {
  Table table{{"distance"}, {}};
  for (const char* model : {"attention", "lstm"})
    for (const char* what : {"accuracy", "training steps", "us a token, training", "us a token, forward"})
      table.columns.push_back(fmt::format("{}: {}", model, what));
  for (Index distance : plan.distances) {
    std::vector<double> row{static_cast<double>(distance)};
    for (bool attends : {true, false}) {
      const auto numbers = trained(attends, task, distance, plan);
      row.insert(row.end(), numbers.begin(), numbers.end());
      fmt::print(stderr, "distance {}: {} {}\n", distance, attends ? "attention" : "lstm", fmt::join(numbers, " "));
    }
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace regard::bench
