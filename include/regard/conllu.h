// Sentences with their dependency trees, from CoNLL-U files. Format: Universal
// Dependencies, "CoNLL-U Format": one word a line, ten columns separated by tabs
// (ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC), comments from
// '#', a blank line after each sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/view.h"

namespace regard {

struct TreeWord {
  std::string form;
  std::string tag;       // UPOS, "_" where there is none
  Index head = -1;       // place of the governor in the sentence, from 0; -1: the root
  std::string relation;  // DEPREL
};

struct TreeSentence {
  std::string id;    // of "# sent_id = ...", or empty
  std::string text;  // of "# text = ...", else the forms with spaces
  std::vector<TreeWord> words;

  std::vector<Index> heads() const;
  std::vector<std::string> forms() const;
};

// Words are the syntactic ones: the spans of multiword tokens ("3-4") and empty
// nodes ("5.1") are passed over. Throws FileError naming file and line for a line
// without ten columns, an ID out of order, a HEAD that is no word of the sentence
// or the word itself, heads that run in a circle, no or several roots, and invalid
// UTF-8; and for a file without sentences.
std::vector<TreeSentence> read_conllu(const std::string& path);
// The same of a text; `name` stands in messages.
std::vector<TreeSentence> parse_conllu(std::string_view text, const std::string& name);

}  // namespace regard
