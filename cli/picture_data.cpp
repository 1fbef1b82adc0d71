#include "picture_data.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "regard/picture.h"

namespace regard::cli {
namespace {

// Everything but the strings, which are the examples, that a picture depends on.
std::string origin_of(const StringPlan& plan) {
  return fmt::format("strings drawn {} high, distortion {}, seed {}: {}", plan.height, plan.distortion, plan.seed,
                     fmt::join(plan.fonts, ", "));
}

}  // namespace

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

Dataset drawn_dataset(const std::shared_ptr<const DrawnStrings>& strings) {
  Dataset data;
  for (const std::string& text : strings->texts()) data.examples.push_back({text, {}, characters(text)});
  data.picture = [strings](Index example, std::uint64_t epoch) { return strings->draw(example, epoch).picture; };
  data.origin = origin_of(strings->plan());
  return data;
}

Dataset drawn_dataset(const StringPlan& plan, Part part) {
  return drawn_dataset(std::make_shared<const DrawnStrings>(plan, part));
}

}  // namespace regard::cli
