// regard bench: the operator against this machine's own peak and bandwidth.
#include <fmt/core.h>
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "regard/bench.h"
#include "regard/file.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string filter = "*";
  std::string compare;
  double seconds = 0.5;
  bool json = false, list = false;
};

using Milliseconds = std::map<std::string, double>;

// Case times of an earlier `--json`.
Milliseconds read_times(const std::string& path) {
  try {
    Milliseconds times;
    const auto old = nlohmann::json::parse(read_file(path));
    for (const auto& entry : old.at("cases")) times[entry.at("name").get<std::string>()] = entry.at("ms").get<double>();
    return times;
  } catch (const nlohmann::json::exception&) {
    throw Error(path + " is not what `regard bench --json` writes");
  }
}

std::vector<BenchCase> chosen_cases(const std::string& filter) {
  std::vector<BenchCase> chosen;
  for (const BenchCase& c : bench_cases())
    if (fnmatch(filter.c_str(), c.name.c_str(), 0) == 0) chosen.push_back(c);
  if (chosen.empty()) throw UsageError("no case matches '" + filter + "'; `regard bench --list` names them");
  return chosen;
}

nlohmann::ordered_json as_json(const BenchResult& r) {
  return {{"name", r.name},
          {"ms", r.ms},
          {"gflops", r.gflops},
          {"percent_of_peak", r.percent_of_peak},
          {"percent_of_bandwidth", r.percent_of_bandwidth},
          {"workspace_bytes", r.workspace_bytes},
          {"skipped_blocks", r.skipped_blocks},
          {"kernel", r.kernel}};
}

void print_row(const BenchResult& r, const std::optional<double>& before) {
  fmt::print("{:<34}{:>11.4f}{:>10.1f}{:>8.1f}{:>8.1f}{:>12}{:>9}", r.name, r.ms, r.gflops, r.percent_of_peak,
             r.percent_of_bandwidth, r.workspace_bytes, r.skipped_blocks);
  if (before) fmt::print("{:>9.3f}", *before / r.ms);
  fmt::print("  {}\n", r.kernel);
  std::fflush(stdout);
}

void print_head(const BenchMachine& machine, bool compares) {
  fmt::print("{}, {}, {} thread(s): FMA peak {:.1f} GFLOP/s, read bandwidth {:.1f} GB/s\n", machine.cpu, machine.isa,
             machine.threads, machine.peak_gflops, machine.read_gbs);
  fmt::print("{:<34}{:>11}{:>10}{:>8}{:>8}{:>12}{:>9}{}  kernel\n", "case", "ms", "GFLOP/s", "% peak", "% read",
             "workspace", "skipped", compares ? " old/new" : "");
}

// What moved while the cases ran makes their percentages doubtful.
std::string drift(const BenchMachine& before, const BenchMachine& after) {
  const auto moved = [](const char* what, double a, double b) {
    return std::abs(b / a - 1) <= 0.05 ? ""
                                       : fmt::format("{} moved from {:.1f} to {:.1f} while this ran. ", what, a, b);
  };
  return moved("The peak", before.peak_gflops, after.peak_gflops) +
         moved("The bandwidth", before.read_gbs, after.read_gbs);
}

void bench(const Arguments& arguments) {
  const auto cases = chosen_cases(arguments.filter);
  if (arguments.list) {
    for (const BenchCase& c : cases) fmt::print("{}\n", c.name);
    return;
  }
  const Milliseconds old = arguments.compare.empty() ? Milliseconds{} : read_times(arguments.compare);
  const BenchMachine machine = measure_machine();
  if (!arguments.json) print_head(machine, !arguments.compare.empty());
  nlohmann::ordered_json all{{"cpu", machine.cpu},           {"isa", machine.isa},
                             {"threads", machine.threads},   {"peak_gflops", machine.peak_gflops},
                             {"read_gbs", machine.read_gbs}, {"cases", nlohmann::ordered_json::array()}};
  for (const BenchCase& c : cases) {
    const BenchResult result = measure_case(c, machine, arguments.seconds);
    const auto before = old.find(c.name);
    if (!arguments.json) print_row(result, before == old.end() ? std::nullopt : std::optional(before->second));
    all["cases"].push_back(as_json(result));
    if (before != old.end()) all["cases"].back()["old_ms"] = before->second;
  }
  const std::string doubt = drift(machine, measure_machine());
  if (arguments.json) {
    all["doubt"] = doubt;
    fmt::print("{}\n", all.dump(2));
  } else if (!doubt.empty()) {
    fmt::print("{}Run it again on a quieter machine.\n", doubt);
  }
}

}  // namespace

void add_bench(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("bench", "The operator against this machine's peak and bandwidth");
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("--filter", arguments->filter, "Cases whose name matches (* and ?)")->type_name("GLOB");
  command.add_option("--compare", arguments->compare, "An earlier --json: adds old time over new time")
      ->type_name("FILE");
  command.add_option("--seconds", arguments->seconds, "Time for each case")
      ->type_name("S")
      ->check(between(0.01, 3600))
      ->capture_default_str();
  command.add_flag("--list", arguments->list, "Only name the cases");
  command.add_flag("--json", arguments->json, "Print a JSON object");
  add_threads_option(command);
  set_example(command, "  regard bench --filter 'full/*' --threads 1\n  regard bench --json > before.json");
  command.callback([arguments] { bench(*arguments); });
}

}  // namespace regard::cli
