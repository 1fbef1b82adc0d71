// Pictures for models: single files, lists of files, and strings that are drawn.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "regard/dataset.h"
#include "regard/drawn_strings.h"
#include "regard/model.h"

namespace regard::cli {

// A PNG file by its name.
bool names_picture(const std::string& source);

// The folder named, else of the shipped model that reads what `sources` are: pictures
// where all are names of PNG files.
std::string folder_for(const std::string& given, const std::vector<std::string>& sources);

// The model there. Throws UsageError for the file of a picture where it reads text.
Model model_for(const std::string& given, const std::vector<std::string>& sources);

// A PNG file at the height the model reads. Throws FileError for what can't be read and
// what is too wide, naming the file.
Tensor<float> picture_for(const Model& model, const std::string& path);

// `path` as seen from the folder of `list`.
std::string beside(const std::string& list, const std::string& path);

// A TSV of picture<TAB>symbols; pictures are read when they are needed, and scaled.
Dataset read_picture_list(const std::string& path, const TsvOptions& options, Index height);

// The same, with all pictures read once before: a line whose picture can't be read, or is
// too wide for a model of sequences up to `options.longest.source`, is a bad one, and
// Dataset::contents tells these pictures from others of the same names.
Dataset read_checked_pictures(const std::string& path, TsvOptions options, const PatchSizes& sizes);

// Targets are the strings' characters; every epoch draws them anew.
Dataset drawn_dataset(const std::shared_ptr<const DrawnStrings>& strings);
// Pictures are at most `widest` pixels wide (0: any width).
Dataset drawn_dataset(const StringPlan& plan, Part part, Index widest = 0);

}  // namespace regard::cli
