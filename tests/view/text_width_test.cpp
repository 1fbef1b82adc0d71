#include "regard/text_width.h"

#include <gtest/gtest.h>

namespace regard {
namespace {

TEST(TextWidth, plain_letters_take_one_column) {
  EXPECT_EQ(text_columns(""), 0);
  EXPECT_EQ(text_columns("abc"), 3);
  EXPECT_EQ(text_columns("é"), 1);
}

TEST(TextWidth, chinese_and_emoji_take_two_columns) {
  EXPECT_EQ(text_columns("北京"), 4);
  EXPECT_EQ(text_columns("\U0001F600"), 2);
  EXPECT_EQ(text_columns("한"), 2);
}

TEST(TextWidth, combining_marks_add_nothing) {
  EXPECT_EQ(text_columns("e\u0301"), 1);
  EXPECT_EQ(graphemes("e\u0301x").size(), 2u);
}

TEST(TextWidth, joined_emoji_and_flags_are_one_character_of_two_columns) {
  const std::string family = "\U0001F468\u200D\U0001F469\u200D\U0001F467", flag = "\U0001F1EB\U0001F1F7";
  EXPECT_EQ(text_columns(family), 2);
  EXPECT_EQ(graphemes(family).size(), 1u);
  EXPECT_EQ(text_columns(flag), 2);
  EXPECT_EQ(text_columns("\u2764\uFE0F"), 2);
}

TEST(TextWidth, control_characters_are_escaped) {
  EXPECT_EQ(printable("a\nb\t"), "a\\nb\\t");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable("\u202Ex"), "\\u202ex");
  EXPECT_EQ(text_columns("\n"), 2);
}

TEST(TextWidth, bytes_that_are_not_utf8_become_the_replacement_character) {
  EXPECT_EQ(printable("a\xf0\x9f"), "a\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xff"), "\uFFFD");
  EXPECT_EQ(printable("\xc0\x80"), "\uFFFD\uFFFD");
}

TEST(TextWidth, cutting_keeps_whole_characters_and_the_width) {
  EXPECT_EQ(cut_text("abcdef", 6), "abcdef");
  EXPECT_EQ(cut_text("abcdef", 4), "abc…");
  EXPECT_EQ(cut_text("北京大学", 5), "北京…");
  EXPECT_EQ(cut_text("北京大学", 4), "北…");
  EXPECT_EQ(cut_text("abc", 0), "");
  EXPECT_EQ(cut_text("北", 1), "…");
}

TEST(TextWidth, fitting_gives_exactly_the_columns_asked_for) {
  EXPECT_EQ(fit_text("ab", 5), "ab   ");
  EXPECT_EQ(fit_text("ab", 5, Align::right), "   ab");
  EXPECT_EQ(fit_text("ab", 5, Align::centre), " ab  ");
  for (int columns = 0; columns < 9; ++columns)
    for (const char* text : {"", "abcdefghij", "北京大学", "e\u0301北"})
      EXPECT_EQ(text_columns(fit_text(text, columns)), columns) << text;
}

}  // namespace
}  // namespace regard
