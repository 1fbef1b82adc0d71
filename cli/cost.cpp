// regard cost: what a layer costs, by formula and by measurement.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "cost_table.h"
#include "regard/chart.h"
#include "regard/cpu.h"
#include "regard/file.h"
#include "regard/instruction_set.h"
#include "regard/palette.h"
#include "regard/peak.h"
#include "regard/threads.h"
#include "screen.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::vector<Index> lengths{512, 2048, 8192};
  std::vector<std::string> methods;
  CostProblem problem;
  bool measure = false, json = false;
  double seconds = 0.3, inches = column_inches * 1.4;
  std::string out;
  int width = 0;
};

// Lengths in rising order, each once.
std::vector<Index> sorted(std::vector<Index> lengths) {
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

// What can be wrong with the sizes is wrong before anything is measured.
void check_sizes(const Arguments& a) {
  for (Index n : a.lengths) {
    CostProblem problem = a.problem;
    problem.n = n;
    try {
      method_cost(cost_methods().front(), problem);
    } catch (const ArgumentError& error) {
      throw UsageError(error.what());
    }
  }
}

// Measuring takes a while: a line on the terminal says where it is, and goes in the end.
void show_progress(const std::string& words) {
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r{:<40}{}", words, words.empty() ? "\r" : "");
}

CostTable table_of(const Arguments& a) {
  CostTable table;
  table.lengths = sorted(a.lengths);
  for (const std::string& method : a.methods.empty() ? cost_methods() : a.methods) {
    CostCurves curves;
    for (Index n : table.lengths) {
      CostProblem problem = a.problem;
      problem.n = n;
      if (a.measure) show_progress(fmt::format("measuring {} at {}", method, n));
      curves.formula.push_back(method_cost(method, problem));
      curves.measured.push_back(a.measure ? measure_cost(method, problem, a.seconds) : std::vector<MeasuredStep>{});
    }
    table.methods.push_back(std::move(curves));
  }
  if (a.measure) show_progress("");
  return table;
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json row_json(const CostTable& table, const CostCurves& curves, std::size_t at,
                                const StepCost& step) {
  const MethodCost& cost = curves.formula[at];
  const MeasuredStep* measured = curves.measured_step(at, step.step);
  nlohmann::ordered_json row{{"method", cost.method},
                             {"n", table.lengths[at]},
                             {"step", step.step},
                             {"flops", step.flops},
                             {"bytes", step.bytes},
                             {"workspace_bytes", step.workspace_bytes},
                             {"flops_exponent", or_null(flops_exponent(table, curves, step.step))},
                             {"ms", measured ? nlohmann::ordered_json(measured->ms) : nlohmann::ordered_json()},
                             {"exponent", or_null(time_exponent(table, curves, step.step))},
                             {"peak_bytes", or_null(measured ? measured->peak_bytes : std::nullopt)}};
  if (step.step != "layer") return row;
  row["weights"] = cost.weights;
  row["sequential_steps"] = cost.sequential_steps;
  // JSON has no infinity: what never arrives is null, as what the data decides.
  row["path_length"] = or_null(cost.path_length);
  return row;
}

void print_json(const Arguments& a, const CostTable& table) {
  nlohmann::ordered_json all{{"model_dim", a.problem.model_dim},
                             {"heads", a.problem.heads},
                             {"head_dim", a.problem.head_dim()},
                             {"budget", a.problem.budget},
                             {"cpu", cpu_name()},
                             {"isa", instruction_set()},
                             {"threads", threads()},
                             {"rows", nlohmann::ordered_json::array()}};
  for (const CostCurves& curves : table.methods)
    for (std::size_t at = 0; at < table.lengths.size(); ++at)
      for (const StepCost& step : curves.formula[at].steps) all["rows"].push_back(row_json(table, curves, at, step));
  fmt::print("{}\n", all.dump(2));
}

std::string layer_words(const CostProblem& p) {
  return fmt::format("width {}, {} head{} of {}, float32, one sequence, forward", p.model_dim, p.heads,
                     p.heads == 1 ? "" : "s", p.head_dim());
}

std::string machine_words() {
  return fmt::format("{}, {}, {} thread{}", cpu_name(), instruction_set(), threads(), threads() == 1 ? "" : "s");
}

// The figure, for at most as many methods as there are colours.
Chart chart_of(const Arguments& a, const CostTable& all) {
  CostTable shown;
  shown.lengths = all.lengths;
  for (const CostCurves& curves : all.methods)
    // Side by side with `exact` and `lstm`, and without a colour of their own.
    if (!a.methods.empty() || (curves.name() != "causal" && curves.name() != "rnn")) shown.methods.push_back(curves);
  if (!a.measure)
    return formula_chart(
        shown, fmt::format("Operations of one layer: {}; budget {}.", layer_words(a.problem), a.problem.budget));
  const double peak = measure_peak_gflops();
  return measured_chart(shown, peak,
                        fmt::format("One layer: {}; budget {}. Points: measured on {}. Lines: operations by formula at "
                                    "the measured FMA peak of {:.0f} GFLOP/s.",
                                    layer_words(a.problem), a.problem.budget, machine_words(), peak));
}

// "stored at 30000, 60000; ..."
std::string not_measured(const CostTable& table) {
  std::string text;
  for (const CostCurves& curves : table.methods) {
    std::vector<Index> lengths;
    for (std::size_t at = 0; at < table.lengths.size(); ++at)
      if (curves.measured[at].empty()) lengths.push_back(table.lengths[at]);
    if (!lengths.empty())
      text += fmt::format("{}{} at {}", text.empty() ? "" : "; ", curves.name(), fmt::join(lengths, ", "));
  }
  return text;
}

void print_text(const Arguments& a, const CostTable& table) {
  const int width = terminal_width(a.width);
  fmt::print("{}", terminal_wrapped(fmt::format("One layer: {}. Budget {}.", layer_words(a.problem), a.problem.budget),
                                    width));
  fmt::print("{}", terminal_wrapped("By formula: operations (flop), bytes moved, bytes of scratch memory (work). "
                                    "Growth: the power of n.",
                                    width));
  if (a.measure)
    fmt::print("{}", terminal_wrapped(
                         fmt::format("Measured on {}: milliseconds, peak of scratch memory in bytes.", machine_words()),
                         width));
  fmt::print("\n{}", cost_text(table, a.measure, width));
  if (const std::string missing = not_measured(table); a.measure && !missing.empty())
    fmt::print("{}", terminal_wrapped("Not measured, for want of memory (half of this machine's): " + missing, width));
}

void cost(const Arguments& a) {
  if (a.width > 0 && a.width < narrowest_table(a.measure))
    throw UsageError(fmt::format("--width: the table needs {} columns", narrowest_table(a.measure)));
  if (!a.out.empty()) figure_format(a.out);  // refused before anything is measured
  if (!a.out.empty() && a.methods.size() > curve_colours)
    throw UsageError(fmt::format("a figure shows at most {} methods, --method names {}",
                                 static_cast<int>(curve_colours), a.methods.size()));
  check_sizes(a);
  const CostTable table = table_of(a);
  // What took minutes is out before a figure can fail.
  a.json ? print_json(a, table) : print_text(a, table);
  std::fflush(stdout);
  if (a.out.empty()) return;
  const Chart chart = chart_of(a, table);
  if (chart.curves.empty()) throw Error(a.out + ": not drawn, no length could be measured in this machine's memory");
  write_file(a.out, figure_chart(chart, figure_format(a.out), {.width_inches = a.inches}));
}

}  // namespace

void add_cost(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("cost", "What a layer costs, by formula and by measurement");
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  command.add_option("--n", a.lengths, "Lengths of the sequence")
      ->delimiter(',')
      ->type_name("N,...")
      ->capture_default_str();
  command.add_option("--model-dim", a.problem.model_dim, "Width of the layer")->type_name("N")->capture_default_str();
  command.add_option("--heads", a.problem.heads, "Heads, which divide the width")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--budget", a.problem.budget,
                  "Keys of the window, slots of the Linformer, features of the Performer; 64 a round of the Reformer")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--method", a.methods, fmt::format("Of {} (default: all)", fmt::join(cost_methods(), ", ")))
      ->delimiter(',')
      ->type_name("NAME,...")
      ->check(CLI::IsMember(cost_methods()));
  CLI::Option* measure =
      command.add_flag("--measure", a.measure,
                       "Time and peak memory on this machine, with the power of n that fits; not of what "
                       "would take more than half of the memory");
  command.add_option("--seconds", a.seconds, "Time for each measured step")
      ->type_name("S")
      ->check(between(0.001, 3600))
      ->capture_default_str()
      ->needs(measure);
  CLI::Option* json = command.add_flag("--json", a.json, "Print a JSON object");
  CLI::Option* out =
      command
          .add_option("-o,--out", a.out,
                      "Also draw curves against n: .svg, .png or .pdf (without --method: all but causal and rnn)")
          ->check(output_path())
          ->type_name("FILE");
  command.add_option("--inches", a.inches, "Width of the figure")->check(between(1, 40))->needs(out)->type_name("X");
  command.add_option("--width", a.width, "Columns of the table (default: the terminal's, 100 in a pipe)")
      ->check(CLI::Range(40, 1000))
      ->excludes(json)
      ->type_name("N");
  add_threads_option(command);
  set_example(command,
              "  regard cost --n 512,2048,8192 --model-dim 512 --heads 8\n"
              "  regard cost --measure --threads 1 --method exact,window,lstm -o cost.svg");
  command.callback([arguments] {
    drop_repeats(arguments->methods);
    cost(*arguments);
  });
}

}  // namespace regard::cli
