// Text as a sequence of characters.
#pragma once

#include <string>
#include <vector>

namespace regard {

// The code points of UTF-8 text, one string each. Throws ArgumentError naming
// the byte offset where the text is not valid UTF-8.
std::vector<std::string> characters(const std::string& text);

}  // namespace regard
