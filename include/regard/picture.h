// Grey pictures from and to PNG files: [height, width], 0 (black) to 1 (white).
#pragma once

#include <string>

#include "regard/tensor.h"

namespace regard {

// Any PNG: grey, colour or palette; colours by their luma (Rec. 601), what is
// transparent over white. Throws FileError for a file that can't be read, is no PNG,
// is damaged or cut off, or has more than 100 million pixels.
Tensor<float> read_picture(const std::string& path);

// The same picture at this height, its width in proportion, at least 1. Throws
// ArgumentError for a picture without pixels or with one that is not a finite number,
// heights below 1, and more than 32767 pixels a side.
Tensor<float> scaled_to_height(const Tensor<float>& picture, Index height);

// As the bytes of a PNG file, 8 bits a pixel; values outside 0 to 1 are clamped. Throws
// ArgumentError as scaled_to_height does.
std::string picture_png(const Tensor<float>& picture);

}  // namespace regard
