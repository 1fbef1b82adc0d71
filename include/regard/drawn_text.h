// Lines of text drawn as small grey pictures, with the place of every character:
// what a picture-to-text model is trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "regard/pixel_span.h"
#include "regard/random.h"
#include "regard/tensor.h"

namespace regard {

// Lengths in pixels of the picture.
struct TextStyle {
  std::string font = "DejaVu Sans";  // family and style: "DejaVu Serif Bold Italic"
  Index height = 32;                 // of the picture; its width follows from the text
  double size = 20;                  // of the font's em
  double left = 4, right = 4;        // margins beside the text
  double shift = 0;                  // of the line below the middle
  double spacing = 0;                // between characters, besides their own; up to four times the size
  double stretch = 1;                // of widths
  double slant = 0;                  // pixels to the right for each pixel up
  double angle = 0;                  // degrees, anticlockwise
  double ink = 0, ground = 1;        // greys of text and background
  double blur = 0;                   // standard deviation of a Gaussian
  double noise = 0;                  // standard deviation of each pixel's grey
  std::uint64_t seed = 0;            // of the noise
};

// A style with everything but font and height at random: distortion 0 leaves all as it
// is by default, 1 is as bad as training knows it (size 16 to 24, slant and stretch
// 0.15, angle 2 degrees, contrast down to 0.3, blur 0.8, noise 0.1). Throws
// ArgumentError for a distortion outside 0 to 1.
TextStyle random_style(const std::string& font, double distortion, Random& random);

struct DrawnText {
  Tensor<float> picture;  // [height, width], greys of 8 bits: a PNG holds the same
  // One a code point, from where to where it reaches: its advance, at half the height
  // of the line.
  std::vector<PixelSpan> characters;
};

class TextDrawer {
 public:
  TextDrawer();
  ~TextDrawer();
  TextDrawer(TextDrawer&&) noexcept;

  // Throws ArgumentError for a family that is not installed: another would be drawn.
  void require(const std::string& font) const;

  // No ligatures: each character keeps a shape of its own. Throws ArgumentError for
  // an empty text, one that is no UTF-8 or has more than 10,000 bytes, and sizes out of
  // range.
  DrawnText draw(const std::string& text, const TextStyle& style) const;

 private:
  struct Layouts;
  std::unique_ptr<Layouts> layouts_;
};

}  // namespace regard
