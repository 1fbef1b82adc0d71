#include "regard/bench.h"

#include <algorithm>
#include <chrono>

#include "regard/cpu.h"
#include "regard/instruction_set.h"
#include "regard/peak.h"
#include "regard/plan.h"
#include "regard/threads.h"

namespace regard {
namespace {

double seconds_of(BenchProblem& problem) {
  const auto start = std::chrono::steady_clock::now();
  problem.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The machine is never quite alone: the best run is the one least disturbed.
double best_seconds(BenchProblem& problem, double budget) {
  double best = seconds_of(problem), total = 0;
  for (int round = 0; round < 100'000 && (round < 3 || total < budget); ++round) {
    const double seconds = seconds_of(problem);
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

}  // namespace

BenchMachine measure_machine() {
  return {cpu_name(), instruction_set(), threads(), measure_peak_gflops(), measure_read_gbs()};
}

BenchResult measure_case(const BenchCase& which, const BenchMachine& machine, double seconds) {
  BenchProblem problem(which);
  const AttendPlan plan = plan_attend(problem.q(), problem.k(), problem.v(), problem.options());
  const double best = best_seconds(problem, seconds);
  BenchResult result;
  result.name = which.name;
  result.ms = best * 1e3;
  result.gflops = problem.operations() / best * 1e-9;
  result.percent_of_peak = 100 * result.gflops / machine.peak_gflops;
  result.percent_of_bandwidth = 100 * problem.bytes() / best * 1e-9 / machine.read_gbs;
  result.workspace_bytes = plan.workspace_bytes;
  result.skipped_blocks = plan.skipped_tiles;
  result.kernel = plan.kernel;
  return result;
}

}  // namespace regard
