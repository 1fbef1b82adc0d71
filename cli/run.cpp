// regard run: what a model answers to a text, or reads in a picture.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "model_folder.h"
#include "notes.h"
#include "picture_data.h"
#include "regard/model.h"
#include "regard/text_width.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> texts;
  Index beam = 1;
  bool json = false;
};

// The ids of text `number`, counted from 0; what is wrong with it names it.
std::vector<std::int64_t> source_ids(const Model& model, const Arguments& a, std::size_t number,
                                     std::vector<std::string>& strangers) {
  const std::string name = "text number " + std::to_string(number + 1);
  std::vector<std::int64_t> ids;
  try {
    ids = model.source_ids(a.texts[number], &strangers);
  } catch (const ArgumentError& error) {
    throw ArgumentError(name + ": " + error.what());
  }
  if (ids.empty()) throw UsageError(name + " is empty");
  return ids;
}

std::vector<Hypothesis> answers_to_texts(const Model& model, const Arguments& a,
                                         std::vector<std::vector<std::string>>& strangers) {
  std::vector<std::vector<std::int64_t>> sources;
  for (std::size_t i = 0; i < a.texts.size(); ++i) sources.push_back(source_ids(model, a, i, strangers[i]));
  return answer(model, sources, {.beam = a.beam});
}

std::vector<Hypothesis> answers_to_pictures(const Model& model, const Arguments& a) {
  std::vector<Tensor<float>> patches;
  std::vector<const Tensor<float>*> pictures;
  for (const std::string& path : a.texts) patches.push_back(model.patches(picture_for(model, path)));
  for (const Tensor<float>& one : patches) pictures.push_back(&one);
  return answer_pictures(model, pictures, {.beam = a.beam});
}

void run(const Arguments& a) {
  const Model model = model_for(a.model, a.texts);
  std::vector<std::vector<std::string>> strangers(a.texts.size());
  const auto answers = model.reads_pictures() ? answers_to_pictures(model, a) : answers_to_texts(model, a, strangers);
  auto report = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < a.texts.size(); ++i) {
    const auto symbols = model.target_symbols(answers[i].symbols);
    report.push_back({{"text", a.texts[i]},
                      {"output", symbols},
                      {"log_probability", answers[i].log_probability},
                      {"truncated", answers[i].truncated},
                      {"unknown", strangers[i]}});
    if (a.json) continue;
    // The line's own tab and newline are the only ones.
    fmt::print("{}\t{}\n", printable(a.texts[i]), printable(model.answer_text(symbols)));
    note_unknown("run", a.texts[i], strangers[i]);
    note_truncated("run", a.texts[i], answers[i]);
  }
  if (a.json) fmt::print("{}\n", report.dump(2));
}

}  // namespace

void add_run(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("run", "Print a model's output for texts or pictures, a line of text<TAB>output each");
  const auto a = std::make_shared<Arguments>();
  command.add_option("TEXT", a->texts, "Texts, one argument each; PNG files for a model of pictures")->required();
  command
      .add_option("--model", a->model, "Folder of the model (default: the shipped one, for PNG files that of pictures)")
      ->type_name("DIR");
  command.add_option("--beam", a->beam, "Hypotheses kept (1: greedy)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_flag("--json", a->json, "Print a JSON array");
  add_threads_option(command);
  set_example(command,
              "  regard run phonemes attention --beam 5\n"
              "  regard run regard7.png");
  command.callback([a] { run(*a); });
}

}  // namespace regard::cli
