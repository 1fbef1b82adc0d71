// A stretch of a picture's pixel columns.
#pragma once

namespace regard {

struct PixelSpan {
  double left = 0, right = 0;
};

}  // namespace regard
