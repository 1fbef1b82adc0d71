// Pictures as sequences of patches: what a picture-to-text model reads in the
// place of symbols. A picture is grey, [height, width], 0 (black) to 1 (white).
// Source: Dosovitskiy et al., "An image is worth 16x16 words", 2021.
#pragma once

#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard {

struct PatchSizes {
  Index height = 0;  // of every picture, in pixels; 0: sources are symbols, not pictures
  Index patch_height = 0, patch_width = 0;

  Index size() const { return patch_height * patch_width; }  // pixels of a patch
  Index rows() const { return height / patch_height; }       // patches one over the other
  bool operator==(const PatchSizes&) const = default;
};

// Throws ArgumentError naming both when patch_height does not divide height, and
// for sizes below 1 or above 32767, the longest side of a picture. Symbols (height 0) pass.
void check_patches(const PatchSizes& sizes);

// How many patches a picture of this width has; the last column may reach beyond it.
Index patch_count(const PatchSizes& sizes, Index width);

// A name for each of `patches` patches: the pixel of its left edge, and where there are
// several rows of them, a comma and that of its upper edge.
std::vector<std::string> patch_labels(const PatchSizes& sizes, Index patches);

// Of the pictures that have at most this many patches, in pixels.
Index widest_picture(const PatchSizes& sizes, Index patches);

// picture [height, width] -> [patches, patch size], column of patches after
// column, each from top to bottom, pixels of a patch row by row. The background
// becomes 0, the mean square of (grey - background) 1, and ink is positive (ink.h):
// contrast, brightness and white on black instead of black on white leave nothing
// behind. A picture of one grey is all 0. Throws ArgumentError for another height and for a picture without pixels
// or with one that is not finite.
Tensor<float> patches_of(const Tensor<float>& picture, const PatchSizes& sizes);

}  // namespace regard
