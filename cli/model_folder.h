// Where commands look for the model they run.
#pragma once

#include <string>

namespace regard::cli {

// `given` as it is; else REGARD_MODEL, else the shipped model of this name: beside
// the sources, or where it was installed. Throws UsageError when there is none.
std::string model_folder(const std::string& given, const std::string& shipped = "phonemes");

}  // namespace regard::cli
