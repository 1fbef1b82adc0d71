// regard tree: distances in a sentence's dependency tree, for attention to follow.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "regard/conllu.h"
#include "regard/safetensors.h"
#include "regard/terminal.h"
#include "regard/text_width.h"
#include "regard/tree.h"
#include "screen.h"

namespace regard::cli {
namespace {

struct Arguments {
  std::string in, out, sentence = "1";
  Index radius = 1;
  int width = 0;
  bool json = false;
};

// By number from 1, or by the id of its comment.
const TreeSentence& chosen(const Arguments& a, const std::vector<TreeSentence>& sentences) {
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(a.sentence.data(), a.sentence.data() + a.sentence.size(), number);
  const bool is_number = failure == std::errc() && end == a.sentence.data() + a.sentence.size();
  if (is_number && number >= 1 && number <= sentences.size()) return sentences[number - 1];
  for (const TreeSentence& sentence : sentences)
    if (!sentence.id.empty() && sentence.id == a.sentence) return sentence;
  throw UsageError(
      fmt::format("--sentence: {} has sentences 1 to {} and none named '{}'", a.in, sentences.size(), a.sentence));
}

// What attend reads: a mask of pairs at most `radius` edges apart.
void write_mask(const Arguments& a, const Tensor<std::int32_t>& distances) {
  TensorFile file;
  file.tensors["mask"] = any_boolean(tree_neighbours(distances, a.radius));
  write_safetensors(a.out, file);
  for (const auto& [name, tensor] : file.tensors)
    fmt::print("{} {} {}\n", name, shape_text(tensor.shape), dtype_name(tensor.dtype));
}

void print_json(const TreeSentence& sentence, const Tensor<std::int32_t>& distances) {
  const auto words = static_cast<Index>(sentence.words.size());
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (Index i = 0; i < words; ++i)
    rows.push_back(std::vector<std::int32_t>(distances.data() + i * words, distances.data() + (i + 1) * words));
  const nlohmann::ordered_json all{{"id", sentence.id},
                                   {"text", sentence.text},
                                   {"words", sentence.forms()},
                                   {"heads", sentence.heads()},
                                   {"distances", rows}};
  fmt::print("{}\n", all.dump(2));
}

void print_table(const Arguments& a, const TreeSentence& sentence, const Tensor<std::int32_t>& distances) {
  const auto words = static_cast<Index>(sentence.words.size());
  std::vector<std::vector<std::string>> rows{{"word", "relation"}};
  for (const TreeWord& word : sentence.words) rows[0].push_back(printable(word.form));
  for (Index i = 0; i < words; ++i) {
    const TreeWord& word = sentence.words[static_cast<std::size_t>(i)];
    rows.push_back({printable(word.form), printable(word.relation)});
    for (Index j = 0; j < words; ++j) rows.back().push_back(std::to_string(distances[i * words + j]));
  }
  const int width = terminal_width(a.width);
  fmt::print("{}{}{}", terminal_wrapped(printable(sentence.text), width), terminal_table(rows, width),
             terminal_wrapped("edges of the dependency tree between two words", width));
}

void run(const Arguments& a) {
  if (!a.out.empty()) refuse_same_file(a.in, a.out);
  const auto sentences = read_conllu(a.in);
  const TreeSentence& sentence = chosen(a, sentences);
  const auto distances = tree_distances(sentence.heads());
  if (!a.out.empty()) return write_mask(a, distances);
  a.json ? print_json(sentence, distances) : print_table(a, sentence, distances);
}

}  // namespace

void add_tree(CLI::App& program) {
  CLI::App& command =
      *program.add_subcommand("tree", "Distances in a sentence's dependency tree, as a mask for attention");
  const auto a = std::make_shared<Arguments>();
  command.add_option("FILE", a->in, "CoNLL-U file")->required();
  command.add_option("--sentence", a->sentence, "Its number from 1, or its sent_id")
      ->type_name("N")
      ->capture_default_str();
  auto* out =
      command
          .add_option("-o,--out", a->out, "safetensors file to write: mask [words,words], to stand beside q, k and v")
          ->check(output_path())
          ->type_name("OUT");
  command.add_option("--radius", a->radius, "Edges that the mask lets attention cross")
      ->check(CLI::Range(Index{0}, Index{1} << 31))
      ->needs(out)
      ->type_name("R")
      ->capture_default_str();
  command.add_option("--width", a->width, "Columns to use (default: the terminal's, 100 in a pipe)")
      ->check(CLI::Range(narrowest_terminal, 10000))
      ->excludes(out);
  command.add_flag("--json", a->json, "Print a JSON object")->excludes(out);
  set_example(command,
              "  regard tree sentences.conllu\n"
              "  regard tree sentences.conllu --sentence 3 --radius 2 -o tree.safetensors");
  command.callback([a, &command] {
    if (a->json && command.count("--width") > 0) throw UsageError("--width does not go with --json");
    run(*a);
  });
}

}  // namespace regard::cli
