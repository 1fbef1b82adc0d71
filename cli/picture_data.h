// Data sets of pictures for commands that train and measure: PNG files, and strings
// that are drawn.
#pragma once

#include <memory>
#include <string>

#include "regard/dataset.h"
#include "regard/drawn_strings.h"

namespace regard::cli {

// `path` as seen from the folder of `list`.
std::string beside(const std::string& list, const std::string& path);

// A TSV of picture<TAB>symbols; pictures are read when they are needed, and scaled.
Dataset read_picture_list(const std::string& path, const TsvOptions& options, Index height);

// Targets are the strings' characters; every epoch draws them anew.
Dataset drawn_dataset(const StringPlan& plan, Part part);
Dataset drawn_dataset(const std::shared_ptr<const DrawnStrings>& strings);

}  // namespace regard::cli
