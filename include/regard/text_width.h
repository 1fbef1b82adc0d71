// How much room UTF-8 text takes in a terminal, and text that is safe to show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regard {

// Text that any terminal, SVG or JSON can hold: control characters and
// direction overrides are escaped ("\n", "\x1b", "\u202e"), bytes that are not
// UTF-8 become U+FFFD.
std::string printable(std::string_view text);

// What a reader sees as one character: a base with its combining marks, a flag,
// an emoji joined of several.
struct Grapheme {
  std::string text;
  int columns = 0;  // 0, 1 or 2
};

// The characters of printable(text), in order.
std::vector<Grapheme> graphemes(std::string_view text);

// Terminal columns of printable(text).
int text_columns(std::string_view text);

// printable(text) where it fits, else its beginning and "…"; never more than
// `columns` columns (one less where a wide character would stick out).
std::string cut_text(std::string_view text, int columns);

enum class Align { left, right, centre };

// Exactly `columns` columns (0 or more): cut or padded with spaces.
std::string fit_text(std::string_view text, int columns, Align align = Align::left);

}  // namespace regard
