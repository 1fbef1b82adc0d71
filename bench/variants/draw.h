// The committed figures, drawn from the committed tables.
#pragma once

#include <string>

namespace regard::bench {

// Reads FOLDER/*.tsv and writes FOLDER/*.svg and crossover.tsv. Throws FileError.
void draw_curves(const std::string& folder);

}  // namespace regard::bench
