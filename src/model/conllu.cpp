#include "regard/conllu.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "regard/error.h"
#include "regard/file.h"
#include "regard/vocabulary.h"

namespace regard {
namespace {

constexpr std::size_t column_count = 10;
enum Column : std::size_t { id, form, lemma, upos, xpos, feats, head, deprel };

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<Index> whole_number(std::string_view text) {
  Index number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// "3-4", the span of a multiword token, and "5.1", an empty node.
bool is_between_words(std::string_view id) {
  const auto at = id.find_first_of("-.");
  return at != std::string_view::npos && whole_number(id.substr(0, at)) && whole_number(id.substr(at + 1));
}

// What follows "# key =", if the comment is one of that key.
std::optional<std::string> comment_value(std::string_view line, std::string_view key) {
  line = trimmed(line.substr(1));
  if (!line.starts_with(key)) return std::nullopt;
  line = trimmed(line.substr(key.size()));
  if (!line.starts_with('=')) return std::nullopt;
  return std::string(trimmed(line.substr(1)));
}

// Reads line by line; a sentence is checked as a whole when it ends.
class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  std::vector<TreeSentence> read() {
    if (rest_.starts_with("\xEF\xBB\xBF")) rest_.remove_prefix(3);
    while (!rest_.empty()) take_line(next_line());
    finish_sentence();
    if (sentences_.empty()) throw FileError(name_ + ": holds no sentences");
    return std::move(sentences_);
  }

 private:
  std::string_view next_line() {
    ++line_;
    const auto stop = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, stop);
    rest_.remove_prefix(std::min(stop + 1, rest_.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  void take_line(std::string_view line) {
    if (trimmed(line).empty()) return finish_sentence();
    check_utf8(line);
    if (line.front() == '#') return take_comment(line);
    take_word(columns_of(line));
  }

  void check_utf8(std::string_view line) const {
    try {
      characters(std::string(line));
    } catch (const ArgumentError& error) {
      refuse(error.what());
    }
  }

  void take_comment(std::string_view line) {
    if (auto value = comment_value(line, "sent_id")) sentence_.id = std::move(*value);
    if (auto value = comment_value(line, "text")) sentence_.text = std::move(*value);
  }

  std::array<std::string_view, column_count> columns_of(std::string_view line) const {
    std::array<std::string_view, column_count> columns;
    std::size_t count = 0;
    for (std::size_t at = 0; at <= line.size(); ++count) {
      const auto stop = std::min(line.find('\t', at), line.size());
      if (count < column_count) columns[count] = line.substr(at, stop - at);
      at = stop + 1;
    }
    if (count != column_count) refuse("has " + std::to_string(count) + " columns between tabs, a word has 10");
    return columns;
  }

  void take_word(const std::array<std::string_view, column_count>& columns) {
    const std::string_view number = columns[Column::id];
    if (is_between_words(number)) return;
    const auto expected = static_cast<Index>(sentence_.words.size()) + 1;
    if (whole_number(number) != expected)
      refuse("has ID '" + std::string(number) + "' where " + std::to_string(expected) + " comes next");
    const auto governor = whole_number(columns[Column::head]);
    if (!governor) refuse("has HEAD '" + std::string(columns[Column::head]) + "', which is no word's number");
    if (*governor == expected) refuse("is its own HEAD");
    if (columns[Column::form].empty()) refuse("has no FORM");
    lines_.push_back(line_);
    sentence_.words.push_back({std::string(columns[Column::form]), std::string(columns[Column::upos]), *governor - 1,
                               std::string(columns[Column::deprel])});
  }

  void finish_sentence() {
    if (!sentence_.words.empty()) {
      check_tree();
      if (sentence_.text.empty())
        for (const TreeWord& word : sentence_.words) sentence_.text += (sentence_.text.empty() ? "" : " ") + word.form;
      sentences_.push_back(std::move(sentence_));
    }
    sentence_ = {};
    lines_.clear();
  }

  void check_tree() {
    const auto& words = sentence_.words;
    std::size_t roots = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      line_of_message_ = lines_[i];
      if (words[i].head >= static_cast<Index>(words.size()))
        refuse("has HEAD " + std::to_string(words[i].head + 1) + " in a sentence of " + std::to_string(words.size()) +
               " words");
      if (words[i].head < 0 && ++roots > 1) refuse("is a second root (HEAD 0) of its sentence");
    }
    check_circles();
    line_of_message_ = 0;
  }

  // Every word is walked over once: what is known to reach the root ends a walk.
  void check_circles() {
    const auto& words = sentence_.words;
    std::vector<std::size_t> seen_from(words.size(), words.size());
    for (std::size_t start = 0; start < words.size(); ++start) {
      for (auto word = static_cast<Index>(start); word >= 0;) {
        auto& walk = seen_from[static_cast<std::size_t>(word)];
        line_of_message_ = lines_[static_cast<std::size_t>(word)];
        if (walk == start) refuse("is in a circle of HEADs that reaches no root");
        if (walk < start) break;
        walk = start;
        word = words[static_cast<std::size_t>(word)].head;
      }
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw FileError(name_ + ", line " + std::to_string(line_of_message_ > 0 ? line_of_message_ : line_) + ": " + what);
  }

  std::string_view rest_;
  const std::string& name_;
  Index line_ = 0, line_of_message_ = 0;
  TreeSentence sentence_;
  std::vector<Index> lines_;  // of the words of the sentence under way
  std::vector<TreeSentence> sentences_;
};

}  // namespace

std::vector<Index> TreeSentence::heads() const {
  std::vector<Index> all;
  for (const TreeWord& word : words) all.push_back(word.head);
  return all;
}

std::vector<std::string> TreeSentence::forms() const {
  std::vector<std::string> all;
  for (const TreeWord& word : words) all.push_back(word.form);
  return all;
}

std::vector<TreeSentence> parse_conllu(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

std::vector<TreeSentence> read_conllu(const std::string& path) { return parse_conllu(read_file(path), path); }

}  // namespace regard
