// What is said on stderr, in one line, about a text that was not read or not
// answered in full.
#pragma once

#include <string>
#include <vector>

#include "regard/decoding.h"

namespace regard::cli {

// `command` is as typed, such as "run"; nothing is said where nothing is unknown.
void note_unknown(const char* command, const std::string& text, const std::vector<std::string>& symbols);
// Nothing is said of a whole answer.
void note_truncated(const char* command, const std::string& text, const Hypothesis& answer);

}  // namespace regard::cli
