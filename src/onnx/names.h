// Lists of names for messages, and the check that a name is one of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "regard/error.h"

namespace regard::onnx {

inline std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

inline bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// `what` such as "input"; the message lists what there is.
inline void check_known(const std::string& op, const std::string& what, const std::string& name,
                        const std::vector<std::string>& known) {
  if (!contains(known, name)) throw ArgumentError(op + " has no " + what + " '" + name + "'; it has " + joined(known));
}

}  // namespace regard::onnx
