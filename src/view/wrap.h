// Text in lines, whatever a line's room is measured in.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace regard {

// Broken at spaces, and inside words that are no line by themselves; `fits` says
// whether a line is short enough. A line holds one character at least.
std::vector<std::string> wrap_text(const std::string& text, const std::function<bool(const std::string&)>& fits);

}  // namespace regard
