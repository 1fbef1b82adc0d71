#include "picture_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "commands.h"
#include "model_folder.h"
#include "regard/digest.h"
#include "regard/file.h"
#include "regard/picture.h"

namespace regard::cli {
namespace {

// Everything but the strings, which are the examples, that a picture depends on.
std::string origin_of(const StringPlan& plan) {
  return fmt::format("strings drawn {} high, distortion {}, seed {}: {}", plan.height, plan.distortion, plan.seed,
                     fmt::join(plan.fonts, ", "));
}

}  // namespace

bool names_picture(const std::string& source) {
  const std::string ending = ".png";
  return source.size() > ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), source.rbegin(),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

std::string folder_for(const std::string& given, const std::vector<std::string>& sources) {
  const bool pictures = !sources.empty() && std::all_of(sources.begin(), sources.end(), names_picture);
  return model_folder(given, pictures ? "glyphs" : "phonemes");
}

Model model_for(const std::string& given, const std::vector<std::string>& sources) {
  const std::string folder = folder_for(given, sources);
  Model model = load_model(folder);
  for (const std::string& source : sources)
    if (!model.reads_pictures() && names_picture(source) && std::filesystem::exists(source))
      throw UsageError(source + " is a picture, but the model in " + folder +
                       " reads text: give --model of one that reads pictures");
  return model;
}

Tensor<float> picture_for(const Model& model, const std::string& path) {
  try {
    const Tensor<float> picture = scaled_to_height(read_picture(path), model.config.patches.height);
    model.patches(picture);  // refuses what is too wide
    return picture;
  } catch (const ArgumentError& error) {
    throw FileError(path + ": " + error.what());
  } catch (const FileError& error) {
    if (names_picture(path)) throw;
    throw FileError(std::string(error.what()) + "; the model reads pictures: give PNG files");
  }
}

std::string beside(const std::string& list, const std::string& path) {
  return (std::filesystem::path(list).parent_path() / path).string();
}

Dataset read_picture_list(const std::string& path, const TsvOptions& options, Index height) {
  Dataset data = read_tsv(path, options);
  std::vector<std::string> files;
  for (const Example& example : data.examples) files.push_back(beside(path, example.text));
  data.picture = [files = std::move(files), height](Index example, std::uint64_t) {
    return scaled_to_height(read_picture(files[static_cast<std::size_t>(example)]), height);
  };
  data.origin = "pictures";
  return data;
}

Dataset read_checked_pictures(const std::string& path, TsvOptions options, const PatchSizes& sizes) {
  std::uint64_t contents = fnv1a("");
  const Index widest = widest_picture(sizes, options.longest.source);
  options.check = [&](const Example& example) {
    const std::string file = beside(path, example.text);
    const Tensor<float> picture = scaled_to_height(read_picture(file), sizes.height);
    if (picture.size(1) > widest)
      throw ArgumentError(file + " is " + std::to_string(picture.size(1)) + " pixels wide at the model's height of " +
                          std::to_string(sizes.height) + "; it reads up to " + std::to_string(widest));
    contents = fnv1a(read_file(file), contents);
  };
  Dataset data = read_picture_list(path, options, sizes.height);
  data.contents = std::to_string(contents);
  return data;
}

Dataset drawn_dataset(const std::shared_ptr<const DrawnStrings>& strings) {
  Dataset data;
  for (const std::string& text : strings->texts()) data.examples.push_back({text, {}, characters(text)});
  data.picture = [strings](Index example, std::uint64_t epoch) { return strings->draw(example, epoch).picture; };
  data.origin = origin_of(strings->plan());
  return data;
}

Dataset drawn_dataset(const StringPlan& plan, Part part, Index widest) {
  return drawn_dataset(std::make_shared<const DrawnStrings>(plan, part, widest));
}

}  // namespace regard::cli
