#include "view/wrap.h"

#include <algorithm>
#include <string_view>

#include "regard/text_width.h"

namespace regard {
namespace {

using Fits = std::function<bool(const std::string&)>;

std::vector<std::string> pieces(const std::string& word, const Fits& fits) {
  if (fits(word)) return {word};
  std::vector<std::string> pieces(1);
  for (const Grapheme& character : graphemes(word)) {
    if (!pieces.back().empty() && !fits(pieces.back() + character.text)) pieces.emplace_back();
    pieces.back() += character.text;
  }
  return pieces;
}

}  // namespace

std::vector<std::string> wrap_text(const std::string& text, const Fits& fits) {
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string word(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (!lines.empty() && fits(lines.back() + " " + word)) {
      lines.back() += " " + word;
      continue;
    }
    for (std::string& piece : pieces(word, fits)) lines.push_back(std::move(piece));
  }
  return lines;
}

}  // namespace regard
