// regard eval: error rates of a model on a TSV file, or on pictures drawn by plan.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "picture_data.h"
#include "regard/model.h"
#include "regard/terminal.h"

namespace regard::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string model, data, strings;
  Index beam = 1;
  bool skip_bad = false, json = false, places = false;
};

struct Results {
  Index skipped = 0;
  ErrorCounts counts;
  ReadingPlaces places;  // with --places
};

ErrorCounts counts_of(const Model& model, const Dataset& data, const Arguments& a) {
  const auto questions = model.reads_pictures() ? picture_questions(model, data) : group_references(data);
  return evaluate_answers(model, questions, {.beam = a.beam});
}

Results results_of_file(const Model& model, const Arguments& a) {
  // A right answer may be longer than any the model can give.
  const TsvOptions options{.words = model.words,
                           .skip_bad = a.skip_bad,
                           .pictures = model.reads_pictures(),
                           .longest = {.source = model.config.max_length}};
  const Dataset data =
      options.pictures ? read_checked_pictures(a.data, options, model.config.patches) : read_tsv(a.data, options);
  return {data.skipped, counts_of(model, data, a), {}};
}

Results results_of_strings(const Model& model, const Arguments& a) {
  if (!model.reads_pictures())
    throw UsageError("--strings are drawn as pictures, but the model in " + a.model + " reads text");
  const auto strings =
      std::make_shared<const DrawnStrings>(read_string_plan(a.strings), Part::test, model.widest_picture());
  Results results{0, counts_of(model, drawn_dataset(strings), a), {}};
  for (Index i = 0; a.places && i < static_cast<Index>(strings->texts().size()); ++i) {
    const DrawnText drawn = strings->draw(i, 0);
    add_reading_places(model, drawn.picture, characters(strings->texts()[static_cast<std::size_t>(i)]),
                       drawn.characters, results.places);
  }
  return results;
}

double share(double part, Index whole) { return whole == 0 ? 0 : part / static_cast<double>(whole); }

Json json_of(const ReadingPlaces& places) {
  Json layers = Json::array();
  for (const auto& heads : places.layers) {
    Json row = Json::array();
    for (const HeadPlaces& head : heads)
      row.push_back({{"peaks_inside", head.peaks_inside}, {"means_inside", head.means_inside}});
    layers.push_back(std::move(row));
  }
  return {{"characters", places.characters},
          {"by_chance", share(places.by_chance, places.characters)},
          {"layers", std::move(layers)}};
}

void print_json(const Arguments& a, const Results& results) {
  const ErrorCounts& counts = results.counts;
  Json report{{"model", a.model},
              {"data", a.strings.empty() ? a.data : a.strings},
              {"beam", a.beam},
              {"sequences", counts.sequences},
              {"wrong_sequences", counts.wrong_sequences},
              {"symbols", counts.symbols},
              {"symbol_errors", counts.symbol_errors},
              {"symbol_error_rate", counts.symbol_error_rate()},
              {"sequence_error_rate", counts.sequence_error_rate()},
              {"skipped_lines", results.skipped}};
  if (a.places) report["places"] = json_of(results.places);
  fmt::print("{}\n", report.dump(2));
}

// Per cent of the characters, a line for each layer.
std::string places_table(const ReadingPlaces& places, Index HeadPlaces::*count) {
  std::vector<std::vector<std::string>> rows{{"layer"}};
  for (std::size_t layer = 0; layer < places.layers.size(); ++layer) {
    const auto& heads = places.layers[layer];
    rows.push_back({std::to_string(layer)});
    for (std::size_t head = 0; head < heads.size(); ++head) {
      if (layer == 0) rows[0].push_back(head + 1 < heads.size() ? fmt::format("head {}", head) : "mean of heads");
      rows.back().push_back(
          fmt::format("{:.1f} %", 100 * share(static_cast<double>(heads[head].*count), places.characters)));
    }
  }
  return terminal_table(rows, 100);
}

void print_places(const ReadingPlaces& places) {
  fmt::print("\nWhere cross-attention looks while each of {} characters is written, by chance {:.1f} % on it:\n",
             places.characters, 100 * share(places.by_chance, places.characters));
  fmt::print("the largest weight is on the character\n{}", places_table(places, &HeadPlaces::peaks_inside));
  fmt::print("the mean position is on the character\n{}", places_table(places, &HeadPlaces::means_inside));
}

void evaluate(const Arguments& a) {
  if (a.data.empty() == a.strings.empty()) throw UsageError("give --data or --strings, one of them");
  if (a.strings.empty() && a.places)
    throw UsageError("--places goes with --strings: files don't say where characters are");
  if (!a.strings.empty() && a.skip_bad) throw UsageError("--skip-bad goes with --data");
  const Model model = load_model(a.model);
  const Results results = a.strings.empty() ? results_of_file(model, a) : results_of_strings(model, a);
  if (a.json) return print_json(a, results);
  const ErrorCounts& counts = results.counts;
  fmt::print("{} sequences, {}\n", counts.sequences, a.beam == 1 ? "greedy" : fmt::format("beam {}", a.beam));
  fmt::print("symbol error rate    {:6.2f} %  ({} of {})\n", 100 * counts.symbol_error_rate(), counts.symbol_errors,
             counts.symbols);
  fmt::print("sequence error rate  {:6.2f} %  ({} of {})\n", 100 * counts.sequence_error_rate(), counts.wrong_sequences,
             counts.sequences);
  if (results.skipped > 0) fmt::print("skipped {} bad lines\n", results.skipped);
  if (a.places) print_places(results.places);
}

}  // namespace

void add_eval(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("eval", "Symbol and sequence error rates of a model");
  const auto a = std::make_shared<Arguments>();
  command.add_option("--model", a->model, "Folder of the model")->required()->type_name("DIR");
  command
      .add_option("--data", a->data,
                  "source<TAB>target symbols; several lines of one source are all right answers. For a model of "
                  "pictures, sources are PNG files, seen from the TSV's folder")
      ->type_name("FILE");
  command.add_option("--strings", a->strings, "Instead: pictures of the test strings that this JSON file plans")
      ->type_name("FILE");
  command.add_flag("--places", a->places,
                   "Also count, for every head, how often its cross-attention is on the character being written");
  command.add_option("--beam", a->beam, "Hypotheses kept (1: greedy)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_flag("--skip-bad", a->skip_bad, "Pass over bad lines and sources too long for the model, and count them");
  command.add_flag("--json", a->json, "Print a JSON object");
  add_threads_option(command);
  set_example(command,
              "  regard eval --model models/phonemes --data data/cmudict/test.tsv --beam 5\n"
              "  regard eval --model models/glyphs --strings models/glyphs/unseen-fonts.json --places");
  command.callback([a] { evaluate(*a); });
}

}  // namespace regard::cli
