// What is background and what is ink in a grey picture: one rule for what models read
// of it and for what views show of it.
#pragma once

#include "regard/tensor.h"

namespace regard {

struct Ink {
  double background = 0;  // its grey
  int direction = 0;      // of ink: 1 lighter than the background, -1 darker; 0: the picture has one grey
  double deviation = 0;   // root of the mean square of (grey - background)

  // Of a grey: 0 on the background, positive for ink.
  double above(float grey) const { return direction * (static_cast<double>(grey) - background); }
};

// The background is the median grey, ink the side of it that is rare and far: the sign of
// the third moment. Where no median lies between two different greys, the background is
// the one of them away from the ink. Where both sides weigh the same, as with exactly half
// black and half white, the first pixel that is on a side is background. Hence contrast,
// brightness and negation change nothing in which pixels are ink (a picture and its negative
// have the same). picture [height, width], rank 2. Throws ArgumentError for a picture without
// pixels, and for one that is not a finite number.
Ink ink_of(const Tensor<float>& picture);

}  // namespace regard
