// Whole files: reading, and writes that can't lose the old file.
#pragma once

#include <string>
#include <string_view>

namespace regard {

// Throws FileError naming the path and the system's reason.
std::string read_file(const std::string& path);

// Writes a temporary file beside `path`, flushes it to disk and renames it over
// `path`: after a full disk or a crash the old file is still whole. Throws
// FileError naming the path and the reason; the temporary file is removed.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace regard
