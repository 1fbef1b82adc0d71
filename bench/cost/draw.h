// The committed figures of docs/cost and docs/scaling, drawn from their tables.
#pragma once

#include <string>

namespace regard::bench {

// Reads FOLDER/*.tsv and writes FOLDER/*.svg. Throws FileError.
void draw_scaling(const std::string& folder);
void draw_recall(const std::string& folder);

}  // namespace regard::bench
