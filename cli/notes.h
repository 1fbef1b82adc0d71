// What is said on stderr, in one line, about what was not read or not answered
// in full.
#pragma once

#include <string>
#include <vector>

#include "regard/decoding.h"

namespace regard::cli {

// `command` is as typed, such as "run"; nothing is said where nothing is unknown.
void note_unknown(const char* command, const std::string& text, const std::vector<std::string>& symbols);
// Tensors of a file that only a flag that was not given would read.
void note_unread(const char* command, const std::string& path, const std::vector<std::string>& names, const char* flag);
// Nothing is said of a whole answer.
void note_truncated(const char* command, const std::string& text, const Hypothesis& answer);

}  // namespace regard::cli
