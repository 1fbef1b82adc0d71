#include "regard/patches.h"

#include "regard/error.h"
#include "regard/ink.h"

namespace regard {
namespace {

void check_picture(const Tensor<float>& picture, const PatchSizes& sizes) {
  if (picture.rank() != 2 || picture.size(0) != sizes.height || picture.size(1) < 1)
    throw ArgumentError("patches_of: picture is " + picture.text() + ", the model reads [" +
                        std::to_string(sizes.height) + ", width]");
}

}  // namespace

void check_patches(const PatchSizes& sizes) {
  if (sizes.height == 0) return;
  constexpr Index longest_side = 32767;
  for (Index side : {sizes.height, sizes.patch_height, sizes.patch_width})
    if (side > longest_side)
      throw ArgumentError("patches: " + std::to_string(side) +
                          " pixels are more than 32767, the longest side of a picture");
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

Index widest_picture(const PatchSizes& sizes, Index patches) { return patches / sizes.rows() * sizes.patch_width; }

Tensor<float> patches_of(const Tensor<float>& picture, const PatchSizes& sizes) {
  check_patches(sizes);
  check_picture(picture, sizes);
  const Ink ink = ink_of(picture);
  const double scale = ink.direction == 0 ? 0 : 1 / ink.deviation;
  const Index width = picture.size(1), count = patch_count(sizes, width);
  Tensor<float> patches({count, sizes.size()});  // 0, the background, where the last column reaches beyond
  float* to = patches.data();
  for (Index patch = 0; patch < count; ++patch) {
    const Index left = patch / sizes.rows() * sizes.patch_width, top = patch % sizes.rows() * sizes.patch_height;
    for (Index y = top; y < top + sizes.patch_height; ++y)
      for (Index x = left; x < left + sizes.patch_width; ++x, ++to)
        if (x < width) *to = static_cast<float>(ink.above(picture[y * width + x]) * scale);
  }
  return patches;
}

}  // namespace regard
