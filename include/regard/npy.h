// NumPy's .npy files: one tensor each.
#pragma once

#include <string>

#include "regard/dtype.h"

namespace regard {

// Formats 1, 2 and 3; little-endian bool, int, uint and float types; C and
// Fortran order (the result is always row-major). Throws FileError, before any
// allocation it can't trust, for a file that is missing, truncated, longer than
// its header says, big-endian, or of a type that is no plain number.
AnyTensor read_npy(const std::string& path);

// Format 1, C order; whole or not at all (see file.h). Throws FileError for
// bf16, which NumPy has no name for, and for a shape that contradicts its bytes.
void write_npy(const std::string& path, const AnyTensor& tensor);

}  // namespace regard
