#include "regard/vocabulary.h"

#include <algorithm>

#include "regard/error.h"

namespace regard {

const std::vector<std::string>& Vocabulary::specials() {
  static const std::vector<std::string> names{"<pad>", "<s>", "</s>", "<unk>"};
  return names;
}

Vocabulary::Vocabulary(const std::vector<std::string>& symbols) : symbols_(specials()) {
  std::vector<std::string> sorted = symbols;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (const std::string& special : specials()) std::erase(sorted, special);
  symbols_.insert(symbols_.end(), sorted.begin(), sorted.end());
  // A special spelled out in the data is text like any other, so it is not
  // looked up here and comes out as unknown.
  for (std::size_t i = specials().size(); i < symbols_.size(); ++i) ids_[symbols_[i]] = static_cast<std::int64_t>(i);
}

std::int64_t Vocabulary::id(const std::string& symbol) const {
  const auto found = ids_.find(symbol);
  return found == ids_.end() ? unknown : found->second;
}

const std::string& Vocabulary::symbol(std::int64_t id) const {
  if (id < 0 || id >= size())
    throw ArgumentError("vocabulary: id " + std::to_string(id) + " is outside 0 to " + std::to_string(size() - 1));
  return symbols_[static_cast<std::size_t>(id)];
}

std::vector<std::string> Vocabulary::own_symbols() const {
  return {symbols_.begin() + static_cast<std::ptrdiff_t>(specials().size()), symbols_.end()};
}

std::vector<std::string> split_spaces(const std::string& text) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t stop = std::min(text.find(' ', at), text.size());
    if (stop > at) result.push_back(text.substr(at, stop - at));
    at = stop + 1;
  }
  return result;
}

std::vector<std::string> source_symbols(const std::string& text, bool words) {
  if (!words || text.find(' ') == std::string::npos) return characters(text);
  characters(text);  // refuses invalid UTF-8
  return split_spaces(text);
}

}  // namespace regard
