#include "regard/patches.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "regard/error.h"

namespace regard {
namespace {

struct Ink {
  double background = 0;
  double scale = 0;  // of (grey - background); negative where ink is darker than the background
};

// The third moment around the background has the sign of what is rare.
Ink ink_of(const Tensor<float>& picture) {
  std::vector<float> sorted(picture.values().begin(), picture.values().end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double background = static_cast<double>(*middle);
  double squares = 0, cubes = 0;
  for (float grey : picture.values()) {
    const double difference = static_cast<double>(grey) - background;
    squares += difference * difference;
    cubes += difference * difference * difference;
  }
  if (squares == 0) return {background, 0};
  const double deviation = std::sqrt(squares / static_cast<double>(picture.count()));
  return {background, (cubes < 0 ? -1 : 1) / deviation};
}

void check_picture(const Tensor<float>& picture, const PatchSizes& sizes) {
  if (picture.rank() != 2 || picture.size(0) != sizes.height || picture.size(1) < 1)
    throw ArgumentError("patches_of: picture is " + picture.text() + ", the model reads [" +
                        std::to_string(sizes.height) + ", width]");
  for (float grey : picture.values())
    if (!std::isfinite(grey)) throw ArgumentError("patches_of: a pixel of the picture is not a finite number");
}

}  // namespace

void check_patches(const PatchSizes& sizes) {
  if (sizes.height == 0) return;
  if (sizes.height < 1 || sizes.patch_height < 1 || sizes.patch_width < 1)
    throw ArgumentError("patches: sizes must be at least 1, got height " + std::to_string(sizes.height) +
                        ", patch_height " + std::to_string(sizes.patch_height) + ", patch_width " +
                        std::to_string(sizes.patch_width));
  if (sizes.height % sizes.patch_height != 0)
    throw ArgumentError("patches: patch_height " + std::to_string(sizes.patch_height) +
                        " does not divide the pictures' height " + std::to_string(sizes.height));
}

std::vector<std::string> patch_labels(const PatchSizes& sizes, Index patches) {
  std::vector<std::string> labels;
  for (Index patch = 0; patch < patches; ++patch) {
    labels.push_back(std::to_string(patch / sizes.rows() * sizes.patch_width));
    if (sizes.rows() > 1) labels.back().append(",").append(std::to_string(patch % sizes.rows() * sizes.patch_height));
  }
  return labels;
}

Index patch_count(const PatchSizes& sizes, Index width) {
  return (width + sizes.patch_width - 1) / sizes.patch_width * sizes.rows();
}

Tensor<float> patches_of(const Tensor<float>& picture, const PatchSizes& sizes) {
  check_patches(sizes);
  check_picture(picture, sizes);
  const Ink ink = ink_of(picture);
  const Index width = picture.size(1), count = patch_count(sizes, width);
  Tensor<float> patches({count, sizes.size()});  // 0, the background, where the last column reaches beyond
  float* to = patches.data();
  for (Index patch = 0; patch < count; ++patch) {
    const Index left = patch / sizes.rows() * sizes.patch_width, top = patch % sizes.rows() * sizes.patch_height;
    for (Index y = top; y < top + sizes.patch_height; ++y)
      for (Index x = left; x < left + sizes.patch_width; ++x, ++to)
        if (x < width)
          *to = static_cast<float>((static_cast<double>(picture[y * width + x]) - ink.background) * ink.scale);
  }
  return patches;
}

}  // namespace regard
