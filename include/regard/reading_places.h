// Where a model of pictures reads each character: does its cross-attention point at
// the character that it is about to write?
#pragma once

#include <vector>

#include "regard/pixel_span.h"
#include "regard/trace.h"

namespace regard {

// Counts over characters, of one head or of the mean over a layer's heads.
struct HeadPlaces {
  Index peaks_inside = 0;  // the middle of the patch of the largest weight lies on the character
  Index means_inside = 0;  // the mean position of all weight does
};

struct ReadingPlaces {
  Index characters = 0;
  double by_chance = 0;                              // expected peaks inside if patches were picked at random
  std::vector<std::vector<HeadPlaces>> layers = {};  // [layers][heads + 1], the mean over heads last

  // Counts one picture whose characters were all read: row i of every cross-attention
  // map belongs to places[i]; the row of the end is left out. Throws ArgumentError for a
  // trace without a picture or of other sizes.
  void add(const Trace& trace, const std::vector<PixelSpan>& places);
};

}  // namespace regard
