// safetensors files: named tensors with an optional text dictionary.
#pragma once

#include <map>
#include <string>

#include "regard/dtype.h"

namespace regard {

struct TensorFile {
  std::map<std::string, AnyTensor> tensors;
  std::map<std::string, std::string> metadata;

  // Throws ArgumentError naming the file and the names it does hold.
  const AnyTensor& at(const std::string& name) const;
  bool has(const std::string& name) const { return tensors.contains(name); }

  std::string path;  // where it was read from, for messages
};

// Throws FileError, before any allocation it can't trust, for a file that is
// missing, truncated, not safetensors, or whose header contradicts its bytes
// (overlapping or short ranges, a name twice, an unknown dtype, a header over
// 100,000,000 bytes).
TensorFile read_safetensors(const std::string& path);

// Writes whole or not at all (see file.h); refuses what the reader would refuse.
void write_safetensors(const std::string& path, const TensorFile& file);

}  // namespace regard
