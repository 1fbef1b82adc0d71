#include "regard/characters.h"

#include <gtest/gtest.h>

#include "regard/error.h"

namespace regard {
namespace {

using Symbols = std::vector<std::string>;

TEST(Characters, are_code_points) {
  EXPECT_EQ(characters("aé店\U0001F4A9"), (Symbols{"a", "é", "店", "\U0001F4A9"}));
  EXPECT_EQ(characters(""), Symbols{});
}

TEST(Characters, invalid_utf8_is_refused_with_its_place) {
  for (const std::string& text :
       {std::string("ab\xff"), std::string("ab\xc3"), std::string("ab\xed\xa0\x80"), std::string("ab\xc0\xaf")}) {
    try {
      characters(text);
      FAIL() << text;
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find("byte 2"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace regard
