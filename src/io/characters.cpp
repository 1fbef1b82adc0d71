#include "regard/characters.h"

#include <utf8proc.h>

#include "regard/error.h"

namespace regard {

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> result;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    const auto length = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (length <= 0) throw ArgumentError("text is not valid UTF-8 at byte " + std::to_string(at));
    result.push_back(text.substr(at, static_cast<std::size_t>(length)));
    at += static_cast<std::size_t>(length);
  }
  return result;
}

}  // namespace regard
