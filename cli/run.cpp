// regard run: what a model answers to a text.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "model_folder.h"
#include "regard/model.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> texts;
  Index beam = 1;
  bool json = false;
};

std::string joined(const std::vector<std::string>& symbols) {
  std::string text;
  for (const std::string& symbol : symbols) text += (text.empty() ? "" : " ") + symbol;
  return text;
}

void run(const Arguments& a) {
  const Model model = load_model(model_folder(a.model));
  std::vector<std::vector<std::int64_t>> sources;
  std::vector<std::vector<std::string>> strangers(a.texts.size());
  for (std::size_t i = 0; i < a.texts.size(); ++i) {
    sources.push_back(model.source_ids(a.texts[i], &strangers[i]));
    if (sources.back().empty()) throw UsageError("text number " + std::to_string(i + 1) + " is empty");
  }
  const auto answers = answer(model, sources, {.beam = a.beam});
  auto report = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < a.texts.size(); ++i) {
    const auto symbols = model.target_symbols(answers[i].symbols);
    report.push_back({{"text", a.texts[i]},
                      {"output", symbols},
                      {"log_probability", answers[i].log_probability},
                      {"unknown", strangers[i]}});
    if (a.json) continue;
    fmt::print("{}\t{}\n", a.texts[i], joined(symbols));
    if (!strangers[i].empty())
      fmt::print(stderr, "regard run: the model does not know {} in \"{}\"; read as {}\n", joined(strangers[i]),
                 a.texts[i], Vocabulary::specials()[Vocabulary::unknown]);
  }
  if (a.json) fmt::print("{}\n", report.dump(2));
}

}  // namespace

void add_run(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("run", "Print a model's output for texts");
  const auto a = std::make_shared<Arguments>();
  command.add_option("TEXT", a->texts, "Texts, one argument each")->required();
  command.add_option("--model", a->model, "Folder of the model (default: the shipped one)")->type_name("DIR");
  command.add_option("--beam", a->beam, "Hypotheses kept (1: greedy)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_flag("--json", a->json, "Print a JSON array");
  add_threads_option(command);
  set_example(command, "  regard run phonemes attention --beam 5");
  command.callback([a] { run(*a); });
}

}  // namespace regard::cli
