// Colours of attention: ramps that stay readable in grey print and for the
// colour-blind, and their nearest neighbours on poorer terminals.
#pragma once

#include <cstdint>

namespace regard {

struct Colour {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
  bool operator==(const Colour&) const = default;
};

// 0 (almost white) to 1 (dark blue); lightness falls evenly all the way. Values
// outside are clamped; not-a-number gives invalid_colour().
Colour sequential_colour(double value);
// -1 (blue) over 0 (almost white) to 1 (orange-brown); equally dark on both sides.
Colour diverging_colour(double value);
// Cells a mask hides: a neutral grey that neither ramp contains.
Colour hidden_colour();
// The darker grey of the hatching over it.
Colour hatch_colour();
// Cells that are not a number: a red that neither ramp contains.
Colour invalid_colour();

// Colours of curves in one chart, told apart by the colour-blind as well.
// Source: Okabe and Ito, "Color universal design", 2008, without the yellow that
// white paper swallows, and a grey.
constexpr int curve_colours = 8;
Colour curve_colour(int index);

// CIE lightness L*, 0 to 100: what is left of a colour in grey print.
double lightness(Colour colour);
// Black or white, whichever reads better on `ground`.
Colour text_colour_on(Colour ground);

// The nearest of the 216 + 24 fixed entries of a 256-colour terminal, 16 to 255.
int nearest_256(Colour colour);
// Steps of the sequential ramp (value 0 to 1) in the 16 terminal colours: 15
// (white), 14, 6, 12, 4 (blue).
int sequential_16(double value);
// The same for the diverging ramp (-1 to 1): 4, 12, 15, 11, 3.
int diverging_16(double value);
// Ten characters from ' ' to '@' for terminals without colour; '?' for not-a-number.
char ascii_ramp(double value);

}  // namespace regard
