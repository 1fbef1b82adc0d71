#include "regard/vocabulary.h"

#include <gtest/gtest.h>

#include "regard/error.h"

namespace regard {
namespace {

using Symbols = std::vector<std::string>;

TEST(Vocabulary, symbols_follow_the_specials_in_order_of_code_points) {
  const Vocabulary vocabulary(Symbols{"short", "is", "Life", "eat", "first", "dessert", "is"});
  EXPECT_EQ(vocabulary.size(), 10);
  const Symbols right{"Life", "dessert", "eat", "first", "is", "short"};
  EXPECT_EQ(vocabulary.own_symbols(), right);
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(vocabulary.id(right[i]), static_cast<std::int64_t>(i) + 4);
    EXPECT_EQ(vocabulary.symbol(static_cast<std::int64_t>(i) + 4), right[i]);
  }
}

TEST(Vocabulary, strangers_are_unknown_and_ids_outside_are_refused) {
  const Vocabulary vocabulary(Symbols{"a"});
  EXPECT_EQ(vocabulary.id("b"), Vocabulary::unknown);
  EXPECT_EQ(vocabulary.symbol(Vocabulary::unknown), "<unk>");
  EXPECT_THROW(vocabulary.symbol(5), ArgumentError);
  EXPECT_THROW(vocabulary.symbol(-1), ArgumentError);
}

// Text that spells a special must not become one: it could end a sequence.
TEST(Vocabulary, text_that_spells_a_special_is_a_stranger) {
  const Vocabulary vocabulary(Symbols{"</s>", "a"});
  EXPECT_EQ(vocabulary.size(), 5);
  EXPECT_EQ(vocabulary.id("</s>"), Vocabulary::unknown);
}

TEST(Vocabulary, rebuilt_from_its_own_symbols_it_is_the_same) {
  const Vocabulary first(Symbols{"b", "a", "é", "店"});
  const Vocabulary second(first.own_symbols());
  for (std::int64_t id = 0; id < first.size(); ++id) EXPECT_EQ(second.symbol(id), first.symbol(id));
}

TEST(SourceSymbols, are_words_only_where_asked_and_spaces_are_there) {
  EXPECT_EQ(source_symbols("ab c", false), (Symbols{"a", "b", " ", "c"}));
  EXPECT_EQ(source_symbols(" ab  c ", true), (Symbols{"ab", "c"}));
  EXPECT_EQ(source_symbols("ab", true), (Symbols{"a", "b"}));
  EXPECT_EQ(source_symbols("  ", true), Symbols{});
}

}  // namespace
}  // namespace regard
