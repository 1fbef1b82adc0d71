#include "notes.h"

#include <fmt/format.h>

#include "regard/text_width.h"
#include "regard/vocabulary.h"

namespace regard::cli {

void note_unknown(const char* command, const std::string& text, const std::vector<std::string>& symbols) {
  if (symbols.empty()) return;
  // In quotes: the unknown may be a space.
  fmt::print(stderr, "regard {}: the model does not know '{}' in \"{}\"; read as {}\n", command,
             printable(fmt::format("{}", fmt::join(symbols, "' '"))), printable(text),
             Vocabulary::specials()[Vocabulary::unknown]);
}

void note_unread(const char* command, const std::string& path, const std::vector<std::string>& names,
                 const char* flag) {
  if (names.empty()) return;
  fmt::print(stderr, "regard {}: {} holds {}, which only {} reads\n", command, printable(path),
             fmt::join(names, " and "), flag);
}

void note_truncated(const char* command, const std::string& text, const Hypothesis& answer) {
  if (answer.truncated)
    fmt::print(stderr, "regard {}: the output for \"{}\" did not end: cut at {} symbols\n", command, printable(text),
               answer.symbols.size());
}

}  // namespace regard::cli
