// Symbols and their ids.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "regard/characters.h"
#include "regard/view.h"

namespace regard {

// Ids 0 to 3 are pad, begin, end and unknown; then the symbols of the data,
// sorted by bytes (for UTF-8: by code point).
class Vocabulary {
 public:
  static constexpr std::int64_t pad = 0, begin = 1, end = 2, unknown = 3;
  static const std::vector<std::string>& specials();  // "<pad>", "<s>", "</s>", "<unk>"

  Vocabulary() : Vocabulary(std::vector<std::string>{}) {}
  // Duplicates count once; the symbols need not be sorted.
  explicit Vocabulary(const std::vector<std::string>& symbols);

  std::int64_t id(const std::string& symbol) const;  // `unknown` for a stranger
  bool has(const std::string& symbol) const { return ids_.contains(symbol); }
  const std::string& symbol(std::int64_t id) const;  // throws ArgumentError outside the vocabulary
  Index size() const { return static_cast<Index>(symbols_.size()); }
  // Without the specials, in order: what the constructor takes.
  std::vector<std::string> own_symbols() const;

 private:
  std::vector<std::string> symbols_;
  std::map<std::string, std::int64_t> ids_;
};

// The pieces of a text between spaces; none of them empty.
std::vector<std::string> split_spaces(const std::string& text);

// What a model reads of a text: its characters, or with `words`, where the text
// contains a space, its space-separated words.
std::vector<std::string> source_symbols(const std::string& text, bool words);

}  // namespace regard
