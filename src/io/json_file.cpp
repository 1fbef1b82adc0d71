#include "io/json_file.h"

#include "regard/error.h"
#include "regard/file.h"

namespace regard::detail {

nlohmann::json read_json(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw FileError(path + ": not valid JSON, or cut off, at byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception& error) {  // a number out of all ranges
    throw FileError(path + ": not valid JSON (" + json_reason(error) + ")");
  }
}

std::string json_reason(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const auto end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

std::string json_text(const nlohmann::json& json) {
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace regard::detail
