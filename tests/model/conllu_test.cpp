#include "regard/conllu.h"

#include <gtest/gtest.h>

#include "files.h"

namespace regard {
namespace {

using testing::expect_file_error;
using testing::Folder;

std::string word(const std::string& id, const std::string& form, const std::string& head,
                 const std::string& relation = "dep") {
  return id + "\t" + form + "\t_\tNOUN\t_\t_\t" + head + "\t" + relation + "\t_\t_\n";
}

// Laid out after the format's own description: a comment, a multiword token, an
// empty node, and a second sentence without a blank line at the file's end.
TEST(Conllu, reads_words_heads_and_comments) {
  const std::string text = std::string("# sent_id = first\n# text = vámonos al mar\n") +
                           word("1-2", "vámonos", "_", "_") + word("1", "vamos", "0", "root") +
                           word("2", "nos", "1", "obj") + word("3-4", "al", "_", "_") + word("3", "a", "5", "case") +
                           word("4", "el", "5", "det") + word("5", "mar", "1", "obl") + word("5.1", "nada", "_", "_") +
                           "\n" + word("1", "Sí", "0", "root");
  const auto sentences = parse_conllu(text, "here");
  ASSERT_EQ(sentences.size(), 2u);
  const TreeSentence& first = sentences[0];
  EXPECT_EQ(first.id, "first");
  EXPECT_EQ(first.text, "vámonos al mar");
  EXPECT_EQ(first.forms(), (std::vector<std::string>{"vamos", "nos", "a", "el", "mar"}));
  EXPECT_EQ(first.heads(), (std::vector<Index>{-1, 0, 4, 4, 0}));
  EXPECT_EQ(first.words[4].relation, "obl");
  EXPECT_EQ(first.words[4].tag, "NOUN");
  EXPECT_EQ(sentences[1].text, "Sí") << "the forms, where no comment says the text";
}

TEST(Conllu, windows_line_ends_and_a_byte_order_mark_are_no_part_of_words) {
  const Folder folder;
  std::string text = std::string("\xEF\xBB\xBF");
  for (char c : word("1", "a", "0") + word("2", "b", "1")) {
    if (c == '\n') text += '\r';
    text += c;
  }
  const auto sentences = read_conllu(folder.write("a.conllu", text));
  ASSERT_EQ(sentences.size(), 1u);
  EXPECT_EQ(sentences[0].heads(), (std::vector<Index>{-1, 0}));
}

TEST(Conllu, what_is_wrong_is_named_with_its_line) {
  const Folder folder;
  const std::string good = std::string("# a comment\n") + word("1", "a", "0") + "\n";
  for (const auto& [bad, says] : std::vector<std::pair<std::string, std::string>>{
           {"1\ta\t_\t_\t_\t_\t0\troot\t_\n", "line 4: has 9 columns"},
           {word("2", "a", "0"), "line 4: has ID '2' where 1 comes next"},
           {word("1", "a", "0") + word("1", "b", "1"), "line 5: has ID '1' where 2 comes next"},
           {word("x", "a", "0"), "line 4: has ID 'x'"},
           {word("1", "a", "0") + word("2.", "b", "1"), "line 5: has ID '2.' where 2 comes next"},
           {word("1", "a", "0") + word("-2", "b", "1"), "line 5: has ID '-2' where 2 comes next"},
           {word("1", "a", "_"), "line 4: has HEAD '_'"},
           {word("1", "a", "-1"), "line 4: has HEAD '-1'"},
           {word("1", "a", "99999999999999999999"), "line 4: has HEAD '99999999999999999999'"},
           {word("1", "a", "0") + word("2", "b", "3"), "line 5: has HEAD 3 in a sentence of 2 words"},
           {word("1", "a", "1"), "line 4: is its own HEAD"},
           {word("1", "a", "0") + word("2", "b", "0"), "line 5: is a second root"},
           {word("1", "a", "2") + word("2", "b", "1"), "circle"},
           {word("1", "a", "0") + word("2", "b", "3") + word("3", "c", "2"), "circle"},
           {word("1", "", "0"), "line 4: has no FORM"},
           {word("1", "\xFF", "0"), "line 4: "},
       }) {
    SCOPED_TRACE(says);
    const std::string path = folder.write("bad.conllu", good + bad);
    expect_file_error(path, says, [&] { read_conllu(path); });
  }
  for (const char* empty : {"", "\n\n", "# only a comment\n"}) {
    const std::string path = folder.write("empty.conllu", empty);
    expect_file_error(path, "holds no sentences", [&] { read_conllu(path); });
  }
}

// A walk to the root from every word would take 10^10 steps.
TEST(Conllu, a_long_chain_of_words_is_read) {
  std::string text;
  for (int n = 1; n <= 100000; ++n) text += word(std::to_string(n), "w", std::to_string(n - 1));
  EXPECT_EQ(parse_conllu(text, "long").front().words.size(), 100000u);
}

}  // namespace
}  // namespace regard
