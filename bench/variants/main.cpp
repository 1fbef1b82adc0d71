// Measured curves of the approximations and sparse patterns. `make curves` runs
// all of it; `variants` alone says how.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "draw.h"
#include "errors.h"
#include "methods.h"
#include "regard/error.h"
#include "regard/file.h"

namespace {

using namespace regard;
using namespace regard::bench;
using Words = std::vector<std::string>;

constexpr const char* usage =
    "variants speed LENGTH [METHOD...]    forward, and with the backward pass, in milliseconds;\n"
    "                                     masks: the share of pairs they show, and time beside that of `full`\n"
    "variants times LENGTH METHOD...      forward, in turn with one another: a header and a row of a table\n"
    "variants errors FOLDER MODEL WORDS   error curves into FOLDER/*.tsv, from the model and the words of a text\n"
    "variants draw FOLDER                 figures and crossover lengths from the tables in FOLDER\n"
    "Threads: REGARD_THREADS.\n";

void speed(Index length, const Words& names) {
  const Problem problem(length);
  double full = 0;
  for (const Method& method : methods_named(names)) {
    std::vector<std::function<void()>> calls{[&] { method.forward(problem); }};
    if (method.both) calls.push_back([&] { method.both(problem); });
    const auto times = best_milliseconds(calls, 5);
    fmt::print("{:6} {:18} forward {:9.2f} ms", length, method.name, times[0]);
    if (method.both) fmt::print(", with backward {:9.2f} ms", times[1]);
    if (method.name == "full") full = times[0];
    if (method.mask && full > 0) {
      const double share = visible_share(method.mask(length), length);
      fmt::print("; {:7.4f} of all pairs, forward {:5.2f} times their share", share, times[0] / full / share);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}

void times(Index length, const Words& names) {
  const Problem problem(length);
  const auto chosen = methods_named(names);
  Table table{{"length"}, {{static_cast<double>(length)}}};
  std::vector<std::function<void()>> calls;
  for (const Method& method : chosen) {
    table.columns.push_back(method.name);
    calls.push_back([&] { method.forward(problem); });
  }
  const auto best = best_milliseconds(calls, length <= 8192 ? 3 : 2);
  table.rows[0].insert(table.rows[0].end(), best.begin(), best.end());
  fmt::print("{}", table_text(table));
}

std::string facts_table(const std::vector<Sample>& samples) {
  std::string text =
      "sample\t|q|\t|k|\tdeviation of scores\tentropy in nats\tlargest entropy\terror of the mean of v\terror of "
      "linear "
      "attention\n";
  for (const Sample& sample : samples) {
    const SampleFacts facts = facts_of(sample);
    text += fmt::format("{}\t{:.2f}\t{:.2f}\t{:.2f}\t{:.2f}\t{:.2f}\t{:.3f}\t{:.3f}\n", facts.name, facts.query_norm,
                        facts.key_norm, facts.score_deviation, facts.entropy, facts.longest, facts.mean_error,
                        facts.linear_error);
  }
  return text;
}

// Each beginning of so many letters once, in the order of the text.
Words different_beginnings(const Words& words, std::size_t letters) {
  Words beginnings;
  for (const std::string& word : words) {
    const std::string beginning = word.substr(0, letters);
    if (std::find(beginnings.begin(), beginnings.end(), beginning) == beginnings.end()) beginnings.push_back(beginning);
  }
  return beginnings;
}

Table fitted_linformer(ModelHeads& model, const std::string& words_path) {
  constexpr std::size_t letters = 8;
  const Words words = different_beginnings(words_of(words_path, letters), letters);
  const auto split = words.begin() + static_cast<std::ptrdiff_t>(words.size() * 3 / 4);
  return linformer_word_errors(model.of_beginnings({words.begin(), split}, letters),
                               model.of_beginnings({split, words.end()}, letters));
}

void errors(const std::string& folder, const std::string& model_folder, const std::string& words_path) {
  ModelHeads model(model_folder);
  const Words words = words_of(words_path, 3);
  std::vector<Heads> single;
  for (std::size_t i = 0; i < 200 && i < words.size(); ++i) single.push_back(model.of_word(words[i]));
  const Sample words_sample = model_sample(model, words_path);
  const Sample two = random_sample(2), four = random_sample(4), six = random_sample(6), eight = random_sample(8),
               twelve = random_sample(12);
  const auto write = [&](const char* name, const std::string& text) { write_file(folder + name, text); };
  write("/linformer-words-error.tsv", table_text(fitted_linformer(model, words_path)));
  write("/samples.tsv", facts_table({two, four, six, eight, twelve, words_sample}));
  write("/performer-error.tsv", table_text(performer_errors({two, four, six, eight, words_sample}, single)));
  write("/reformer-error.tsv", table_text(reformer_errors({four, eight, twelve, words_sample})));
  write("/linformer-error.tsv", table_text(linformer_errors({four, eight, words_sample})));
}

int run(const Words& words) {
  const std::string command = words.empty() ? "" : words[0];
  if ((command == "speed" && words.size() >= 2) || (command == "times" && words.size() >= 3)) {
    const Index length = std::stoll(words[1]);
    const Words names(words.begin() + 2, words.end());
    command == "speed" ? speed(length, names) : times(length, names);
  } else if (command == "errors" && words.size() == 4) {
    errors(words[1], words[2], words[3]);
  } else if (command == "draw" && words.size() == 2) {
    draw_curves(words[1]);
  } else {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  // As other libraries' allocators do: no pages fresh from the system in every call.
  const regard::KeepMemory keep;
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "variants: {}\n", error.what());
    return 1;
  }
}
