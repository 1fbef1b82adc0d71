#include "view/wrap.h"

#include <gtest/gtest.h>

#include "regard/text_width.h"

namespace regard {
namespace {

using Lines = std::vector<std::string>;

Lines wrapped(const std::string& text, int columns) {
  return wrap_text(text, [&](const std::string& line) { return text_columns(line) <= columns; });
}

TEST(Wrap, breaks_at_spaces_where_a_line_is_full) {
  EXPECT_EQ(wrapped("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped("one two three", 13), (Lines{"one two three"}));
  EXPECT_EQ(wrapped("", 5), Lines{});
}

TEST(Wrap, breaks_inside_words_that_are_too_long_for_a_line) {
  EXPECT_EQ(wrapped("a abcdefgh b", 3), (Lines{"a", "abc", "def", "gh", "b"}));
  EXPECT_EQ(wrapped("a abcdefgh b", 4), (Lines{"a", "abcd", "efgh", "b"}));
}

TEST(Wrap, keeps_characters_whole_and_puts_at_least_one_on_a_line) {
  EXPECT_EQ(wrapped("e\u0301e\u0301e\u0301", 2), (Lines{"e\u0301e\u0301", "e\u0301"}));
  EXPECT_EQ(wrapped("北京", 1), (Lines{"北", "京"}));
}

TEST(Wrap, keeps_every_space_inside_a_line) { EXPECT_EQ(wrapped("'a  b'", 10), (Lines{"'a  b'"})); }

}  // namespace
}  // namespace regard
