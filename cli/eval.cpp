// regard eval: error rates of a model on a TSV file.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "regard/model.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string model, data;
  Index beam = 1;
  bool skip_bad = false, json = false;
};

void evaluate(const Arguments& a) {
  const Model model = load_model(a.model);
  // A right answer may be longer than any the model can give.
  const LengthLimits longest{.source = model.config.max_length};
  const Dataset data = read_tsv(a.data, {.words = model.words, .skip_bad = a.skip_bad, .longest = longest});
  const ErrorCounts counts = evaluate_answers(model, group_references(data), {.beam = a.beam});
  if (a.json) {
    const nlohmann::ordered_json report{{"model", a.model},
                                        {"data", a.data},
                                        {"beam", a.beam},
                                        {"sequences", counts.sequences},
                                        {"wrong_sequences", counts.wrong_sequences},
                                        {"symbols", counts.symbols},
                                        {"symbol_errors", counts.symbol_errors},
                                        {"symbol_error_rate", counts.symbol_error_rate()},
                                        {"sequence_error_rate", counts.sequence_error_rate()},
                                        {"skipped_lines", data.skipped}};
    fmt::print("{}\n", report.dump(2));
    return;
  }
  fmt::print("{} sequences, {}\n", counts.sequences, a.beam == 1 ? "greedy" : fmt::format("beam {}", a.beam));
  fmt::print("symbol error rate    {:6.2f} %  ({} of {})\n", 100 * counts.symbol_error_rate(), counts.symbol_errors,
             counts.symbols);
  fmt::print("sequence error rate  {:6.2f} %  ({} of {})\n", 100 * counts.sequence_error_rate(), counts.wrong_sequences,
             counts.sequences);
  if (data.skipped > 0) fmt::print("skipped {} bad lines\n", data.skipped);
}

}  // namespace

void add_eval(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("eval", "Symbol and sequence error rates of a model");
  const auto a = std::make_shared<Arguments>();
  command.add_option("--model", a->model, "Folder of the model")->required()->type_name("DIR");
  command.add_option("--data", a->data, "source<TAB>target symbols; several lines of one source are all right answers")
      ->required()
      ->type_name("FILE");
  command.add_option("--beam", a->beam, "Hypotheses kept (1: greedy)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_flag("--skip-bad", a->skip_bad, "Pass over bad lines and sources too long for the model, and count them");
  command.add_flag("--json", a->json, "Print a JSON object");
  add_threads_option(command);
  set_example(command, "  regard eval --model models/phonemes --data data/cmudict/test.tsv --beam 5");
  command.callback([a] { evaluate(*a); });
}

}  // namespace regard::cli
