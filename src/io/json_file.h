// JSON as the library keeps it in files: read, written, and complained about in one way.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace regard::detail {

// Reads and parses; throws FileError naming the path, and the byte where the JSON ends or breaks.
nlohmann::json read_json(const std::string& path);

// What an entry lacks, in nlohmann's words without its own number for them.
std::string json_reason(const nlohmann::json::exception& error);

// The text of a file. Names and labels come from command lines and models, which need
// not be UTF-8: what is none becomes U+FFFD.
std::string json_text(const nlohmann::json& json);

}  // namespace regard::detail
