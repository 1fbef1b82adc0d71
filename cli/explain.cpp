// regard explain: do the weights reflect the decision?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "model_folder.h"
#include "notes.h"
#include "picture_data.h"
#include "regard/explain.h"
#include "regard/model.h"
#include "regard/terminal.h"
#include "regard/text_width.h"
#include "screen.h"

namespace regard::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

struct Arguments {
  std::string text, model, data, strings;
  Index draws = 5;
  std::uint64_t seed = 1;
  int width = 0;
  bool skip_bad = false, json = false;
};

const std::string& file_of(const Arguments& a) { return a.data.empty() ? a.strings : a.data; }

// Texts with the answers that ended.
struct Answered {
  std::vector<AnsweredText> texts;
  Index left_out = 0;
};

constexpr Attribution attributions[] = {Attribution::weights, Attribution::norms, Attribution::rollout,
                                        Attribution::gradient, Attribution::ablation};

std::string number(double value, int digits = 3) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

double mean(double sum, Index count) { return count > 0 ? sum / static_cast<double>(count) : 0; }

// text(i, answer) for each answer that ended.
template <class F>
Answered those_that_ended(const std::vector<Hypothesis>& answers, F text) {
  Answered all;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].truncated)
      ++all.left_out;
    else
      all.texts.push_back(text(i, answers[i].symbols));
  }
  return all;
}

Answered answers_to(const Model& model, const std::vector<std::vector<std::int64_t>>& sources) {
  return those_that_ended(answer(model, sources, {}), [&](std::size_t i, const std::vector<std::int64_t>& symbols) {
    return AnsweredText{sources[i], symbols};
  });
}

Answered answers_to_pictures(const Model& model, std::vector<Tensor<float>> patches) {
  std::vector<const Tensor<float>*> pictures;
  for (const Tensor<float>& one : patches) pictures.push_back(&one);
  return those_that_ended(
      answer_pictures(model, pictures, {}),
      [&](std::size_t i, const std::vector<std::int64_t>& symbols) { return answered_picture(patches[i], symbols); });
}

std::vector<std::int64_t> source_ids(const Arguments& a, const Model& model) {
  std::vector<std::string> strangers;
  const auto ids = model.source_ids(a.text, &strangers);
  if (ids.empty()) throw UsageError("the text is empty");
  note_unknown("explain", a.text, strangers);
  return ids;
}

Answered answered_text(const Arguments& a, const Model& model) {
  Answered all = model.reads_pictures() ? answers_to_pictures(model, {model.patches(picture_for(model, a.text))})
                                        : answers_to(model, {source_ids(a, model)});
  if (all.texts.empty())
    throw Error(fmt::format("the model's answer to this {} does not end: there is nothing to explain",
                            model.reads_pictures() ? "picture" : "text"));
  return all;
}

Answered answers_to_texts_of(const Arguments& a, const Model& model, const TsvOptions& options) {
  std::vector<std::vector<std::int64_t>> sources;
  for (const Question& question : group_references(read_tsv(a.data, options))) {
    sources.emplace_back();
    for (const std::string& symbol : question.source) sources.back().push_back(model.source.id(symbol));
  }
  return answers_to(model, sources);
}

Answered answers_to_pictures_of(const Arguments& a, const Model& model, const TsvOptions& options) {
  const Dataset data = a.strings.empty()
                           ? read_checked_pictures(a.data, options, model.config.patches)
                           : drawn_dataset(read_string_plan(a.strings), Part::test, model.widest_picture());
  std::vector<Tensor<float>> patches;
  for (Question& question : picture_questions(model, data)) patches.push_back(std::move(question.patches));
  return answers_to_pictures(model, std::move(patches));
}

Answered answered_data(const Arguments& a, const Model& model) {
  if (!a.strings.empty() && !model.reads_pictures())
    throw UsageError("--strings are drawn as pictures, but this model reads text");
  const TsvOptions options{.words = model.words,
                           .skip_bad = a.skip_bad,
                           .pictures = model.reads_pictures(),
                           .longest = {.source = model.config.max_length}};
  Answered all =
      model.reads_pictures() ? answers_to_pictures_of(a, model, options) : answers_to_texts_of(a, model, options);
  if (all.texts.empty()) throw Error(file_of(a) + ": nothing in it has an answer that ends");
  return all;
}

// Per answered symbol and method: the source symbol with the highest score.
Rows symbol_rows(const SymbolScores& scores, const std::vector<std::string>& source,
                 const std::vector<std::string>& symbols) {
  Rows rows{{"symbol", "p"}};
  for (Attribution method : attributions) rows[0].emplace_back(attribution_name(method));
  const auto length = static_cast<Index>(source.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    rows.push_back({symbols[i], number(scores.probabilities[static_cast<Index>(i)])});
    for (Attribution method : attributions) {
      const double* row = scores.of(method).data() + static_cast<Index>(i) * length;
      const Index top = std::max_element(row, row + length) - row;
      rows.back().push_back(
          fmt::format("{} at {} {}", source[static_cast<std::size_t>(top)], top, number(row[top], 2)));
    }
  }
  return rows;
}

Rows agreement_rows(const Explanation& found) {
  Rows rows{{"Kendall's tau"}};
  for (Attribution method : attributions) rows[0].emplace_back(attribution_name(method));
  rows[0].emplace_back("same first as ablation");
  for (std::size_t a = 0; a < attribution_count; ++a) {
    rows.push_back({attribution_name(attributions[a])});
    for (std::size_t b = 0; b < attribution_count; ++b) {
      const OrderAgreement& both = found.agreement[a][b];
      rows.back().push_back(both.symbols > 0 ? number(mean(both.tau, both.symbols), 2) : "-");
    }
    const OrderAgreement& with = found.agreement[a][static_cast<std::size_t>(Attribution::ablation)];
    rows.back().push_back(with.symbols > 0 ? percent(mean(static_cast<double>(with.same_top), with.symbols)) : "-");
  }
  return rows;
}

using ByShare = std::array<double, erased_shares.size()>;

Rows erasing_rows(const Explanation& found, const std::string& name, ByShare Faithfulness::*numbers) {
  Rows rows{{name}};
  for (double share : erased_shares) rows[0].push_back(fmt::format("{:.0f} %", 100 * share));
  rows[0].emplace_back("mean");
  const auto add = [&](const std::string& method, const Faithfulness& of) {
    rows.push_back({method});
    double sum = 0;
    for (double value : of.*numbers) {
      sum += mean(value, of.symbols) / erased_shares.size();
      rows.back().push_back(number(mean(value, of.symbols)));
    }
    rows.back().push_back(number(sum));
  };
  for (std::size_t a = 0; a < attribution_count; ++a) add(attribution_name(attributions[a]), found.faithfulness[a]);
  add("random order", found.random_ranking);
  return rows;
}

std::string change_text(const OutputChange& change) {
  return fmt::format("{}, {}, {}", number(change.mean_total_variation()), percent(change.changed_symbol_share()),
                     percent(change.changed_text_share()));
}

Rows test_rows(const Explanation& found) {
  Rows rows{{"weights of", "uniform", "permuted", "random"}};
  for (const WeightTest& test : found.tests)
    rows.push_back({test.layer ? fmt::format("{}, layer {}", kind_name(test.kind), *test.layer)
                               : fmt::format("{}, all layers", kind_name(test.kind)),
                    change_text(test.uniform), change_text(test.permuted), change_text(test.random)});
  return rows;
}

constexpr std::size_t shown_heads = 10;

Rows head_rows(const Explanation& found) {
  Rows rows{{"head", "zero", "mean", "confidence", "contribution"}};
  std::vector<const HeadEffect*> order;
  for (const HeadEffect& head : found.heads) order.push_back(&head);
  std::stable_sort(order.begin(), order.end(), [](const HeadEffect* a, const HeadEffect* b) {
    return a->mean.mean_total_variation() > b->mean.mean_total_variation();
  });
  for (std::size_t i = 0; i < std::min(order.size(), shown_heads); ++i) {
    const HeadEffect& head = *order[i];
    rows.push_back({fmt::format("{} L{}H{}", kind_name(head.place.kind), head.place.layer, head.head),
                    change_text(head.zero), change_text(head.mean), number(head.confidence, 2),
                    number(head.contribution, 2)});
  }
  return rows;
}

void print_part(const std::string& title, const Rows& rows, int width) {
  fmt::print("{}{}\n", terminal_wrapped(title, width), terminal_table(rows, width));
}

void print_report(const Explanation& found, const Arguments& a, int width) {
  print_part("Do methods order the source symbols alike? Mean over answered symbols; 1 same, 0 unrelated, -1 reversed.",
             agreement_rows(found), width);
  print_part(
      "Comprehensiveness: how far the symbol's probability falls without the share of the source that a method "
      "ranks highest (high: it mattered).",
      erasing_rows(found, "taken away", &Faithfulness::comprehensiveness), width);
  print_part("Sufficiency: how far it falls with nothing but that share (low: it suffices).",
             erasing_rows(found, "left", &Faithfulness::sufficiency), width);
  print_part(
      fmt::format("Other weights in all heads of a layer: total variation of the output, share of symbols and of "
                  "answers that change. Permuted and random (the null): mean of {} draws, seed {}.",
                  a.draws, a.seed),
      test_rows(found), width);
  const std::size_t shown = std::min(found.heads.size(), shown_heads);
  print_part(
      fmt::format(
          "Heads put out of action, the {} of {} that move the output most: total variation, share of "
          "symbols and of answers that change, by zero and by the head's mean over these texts; beside them the mean "
          "largest weight and the size of what the head gives over its residual.",
          shown, found.heads.size()),
      head_rows(found), width);
  fmt::print("{}", terminal_wrapped(fmt::format("Rank correlation over {} heads with mean ablation: confidence {}, "
                                                "contribution {}.",
                                                found.heads.size(), number(found.confidence_agreement(), 2),
                                                number(found.contribution_agreement(), 2)),
                                    width));
}

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const OutputChange& change) {
  return {{"total_variation", change.mean_total_variation()},
          {"probability_drop", change.mean_probability_drop()},
          {"changed_symbols", change.changed_symbol_share()},
          {"changed_texts", change.changed_text_share()}};
}

Json json_of(const Faithfulness& of) {
  Json both{{"comprehensiveness", Json::array()}, {"sufficiency", Json::array()}};
  for (std::size_t s = 0; s < erased_shares.size(); ++s) {
    both["comprehensiveness"].push_back(mean(of.comprehensiveness[s], of.symbols));
    both["sufficiency"].push_back(mean(of.sufficiency[s], of.symbols));
  }
  return both;
}

Json json_of(const Explanation& found) {
  Json agreement = Json::object(), faithful = Json::object(), tests = Json::array(), heads = Json::array();
  for (std::size_t a = 0; a < attribution_count; ++a) {
    faithful[attribution_name(attributions[a])] = json_of(found.faithfulness[a]);
    for (std::size_t b = 0; b < attribution_count; ++b) {
      const OrderAgreement& both = found.agreement[a][b];
      agreement[attribution_name(attributions[a])][attribution_name(attributions[b])] = {
          {"tau", both.symbols > 0 ? Json(mean(both.tau, both.symbols)) : Json()},
          {"same_first", both.symbols > 0 ? Json(mean(static_cast<double>(both.same_top), both.symbols)) : Json()}};
    }
  }
  faithful["random"] = json_of(found.random_ranking);
  for (const WeightTest& test : found.tests)
    tests.push_back({{"kind", kind_name(test.kind)},
                     {"layer", test.layer ? Json(*test.layer) : Json("all")},
                     {"uniform", json_of(test.uniform)},
                     {"permuted", json_of(test.permuted)},
                     {"random", json_of(test.random)}});
  for (const HeadEffect& head : found.heads)
    heads.push_back({{"kind", kind_name(head.place.kind)},
                     {"layer", head.place.layer},
                     {"head", head.head},
                     {"zero", json_of(head.zero)},
                     {"mean", json_of(head.mean)},
                     {"confidence", head.confidence},
                     {"contribution", head.contribution}});
  return {{"texts", found.texts},
          {"symbols", found.symbols},
          {"agreement", agreement},
          {"shares", erased_shares},
          {"faithfulness", faithful},
          {"weights_replaced", tests},
          {"heads", heads},
          {"rank_correlation_with_mean_ablation",
           {{"confidence", json_number(found.confidence_agreement())},
            {"contribution", json_number(found.contribution_agreement())}}}};
}

Json json_of(const SymbolScores& scores) {
  Json all{{"probabilities", scores.probabilities.values()}};
  const Index source = scores.of(Attribution::weights).size(1);
  for (Attribution method : attributions) {
    Json rows = Json::array();
    const Tensor<double>& of = scores.of(method);
    for (Index i = 0; i < of.size(0); ++i)
      rows.push_back(std::vector<double>(of.data() + i * source, of.data() + (i + 1) * source));
    all[attribution_name(method)] = std::move(rows);
  }
  return all;
}

struct TextWords {
  std::vector<std::string> source, symbols;
};

TextWords words_of(const Arguments& a, const Model& model, const AnsweredText& text) {
  TextWords words;
  if (model.reads_pictures())
    words.source = patch_labels(model.config.patches, static_cast<Index>(text.source.size()));
  else
    for (const std::string& symbol : source_symbols(a.text, model.words)) words.source.push_back(printable(symbol));
  std::vector<std::int64_t> produced = text.answer;
  produced.push_back(Vocabulary::end);
  words.symbols = model.target_symbols(produced);
  return words;
}

void explain_text(const Arguments& a, Model& model, const Answered& answered, const Explanation& found) {
  const SymbolScores scores = attribute(*model.network, answered.texts.front());
  const TextWords words = words_of(a, model, answered.texts.front());
  if (a.json) {
    Json report{{"text", a.text}, {"source", words.source}, {"answer", words.symbols}};
    report["scores"] = json_of(scores);
    report.update(json_of(found));
    fmt::print("{}\n", report.dump(2));
    return;
  }
  const int width = terminal_width(a.width);
  const std::string source = model.reads_pictures() ? fmt::format("{}, {} patches", a.text, words.source.size())
                                                    : fmt::format("{}", fmt::join(words.source, " "));
  fmt::print("{}\n", terminal_wrapped(fmt::format("{}  ->  {}", source,
                                                  fmt::join(words.symbols.begin(), words.symbols.end() - 1, " ")),
                                      width));
  print_part(
      fmt::format("What each symbol was read from: the {} that a method puts first, where it stands, its score. ",
                  model.reads_pictures() ? "patch (by its left edge in pixels)" : "source symbol") +
          "weights and norms: shares of the cross-attention, mean over decoder layers and heads. rollout: weights "
          "followed through all layers. gradient: weight times gradient of log p, summed over layers and heads. "
          "ablation: how far p falls with it hidden.",
      symbol_rows(scores, words.source, words.symbols), width);
  print_report(found, a, width);
}

void explain_data(const Arguments& a, const Answered& answered, const Explanation& found) {
  if (a.json) {
    Json report{{"data", file_of(a)}, {"left_out", answered.left_out}};
    report.update(json_of(found));
    fmt::print("{}\n", report.dump(2));
    return;
  }
  const int width = terminal_width(a.width);
  std::string first =
      fmt::format("{} texts, {} answered symbols (ends included), greedy answers", found.texts, found.symbols);
  if (answered.left_out > 0) first += fmt::format("; {} texts left out, whose answers did not end", answered.left_out);
  fmt::print("{}\n", terminal_wrapped(first, width));
  print_report(found, a, width);
}

void run(const Arguments& a) {
  if (!a.text.empty() + !a.data.empty() + !a.strings.empty() != 1)
    throw UsageError("give a TEXT or --data FILE or --strings FILE, one of them");
  const bool single = !a.text.empty();
  Model model = model_for(a.model, single ? std::vector{a.text} : std::vector<std::string>{});
  const Answered answered = single ? answered_text(a, model) : answered_data(a, model);
  const Explanation found = explain(*model.network, answered.texts, {.seed = a.seed, .draws = a.draws});
  single ? explain_text(a, model, answered, found) : explain_data(a, answered, found);
}

}  // namespace

void add_explain(CLI::App& program) {
  CLI::App& command = *program.add_subcommand(
      "explain",
      "Whether a model's attention reflects what decides its answers: what methods say was read, beside what "
      "changes the answer");
  const auto a = std::make_shared<Arguments>();
  command.add_option("TEXT", a->text, "Text whose answer is explained; a PNG file for a model of pictures");
  command
      .add_option("--model", a->model,
                  "Folder of the model (default: the shipped one, for a PNG file that of pictures)")
      ->type_name("DIR");
  command
      .add_option("--data", a->data,
                  "Instead of a TEXT: all sources of a TSV file (texts or names of PNG files), each with the model's "
                  "own answer")
      ->type_name("FILE");
  command.add_option("--strings", a->strings, "Instead: pictures of the test strings that this JSON file plans")
      ->type_name("FILE");
  command.add_flag("--skip-bad", a->skip_bad, "Pass over bad lines of the file");
  command.add_option("--draws", a->draws, "Draws of permuted weights, random weights and random orders")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--seed", a->seed, "Of these draws")->check(unsigned_number())->capture_default_str();
  command.add_option("--width", a->width, "Columns to use (default: the terminal's, 100 in a pipe)")
      ->check(CLI::Range(narrowest_terminal, 10000));
  command.add_flag("--json", a->json, "Print a JSON object, with every head and layer");
  add_threads_option(command);
  set_example(command,
              "  regard explain thought\n"
              "  regard explain regard7.png  # after `regard picture regard7 -o regard7.png`\n"
              "  regard explain --data data/cmudict/test.tsv  # after `make data`");
  command.callback([a, &command] {
    if (a->json && command.count("--width") > 0) throw UsageError("--width does not go with --json");
    if (a->data.empty() && a->skip_bad) throw UsageError("--skip-bad goes with --data");
    run(*a);
  });
}

}  // namespace regard::cli
