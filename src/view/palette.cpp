#include "regard/palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>

namespace regard {
namespace {

double to_linear(std::uint8_t channel) {
  const double c = channel / 255.0;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

std::uint8_t from_linear(double c) {
  c = std::clamp(c, 0.0, 1.0);
  const double encoded = c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255 * encoded));
}

double luminance(Colour colour) {
  return 0.2126 * to_linear(colour.red) + 0.7152 * to_linear(colour.green) + 0.0722 * to_linear(colour.blue);
}

// Oklab (Ottosson 2020) in polar form: equal steps of `light` look equal, which
// mixing red, green and blue would not give.
Colour from_oklch(double light, double chroma, double hue_degrees) {
  const double hue = hue_degrees * std::numbers::pi / 180;
  const double a = chroma * std::cos(hue), b = chroma * std::sin(hue);
  const double l = std::pow(light + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(light - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(light - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {from_linear(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          from_linear(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          from_linear(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

constexpr double lightest = 0.985;

int squared_distance(Colour a, Colour b) {
  const int red = a.red - b.red, green = a.green - b.green, blue = a.blue - b.blue;
  return red * red + green * green + blue * blue;
}

}  // namespace

Colour sequential_colour(double value) {
  if (std::isnan(value)) return invalid_colour();
  const double t = std::clamp(value, 0.0, 1.0);
  // As much chroma as sRGB has at every one of these lightnesses.
  const double chroma = 0.008 + 0.095 * std::sin(std::numbers::pi * t) + 0.09 * t;
  return from_oklch(lightest - 0.70 * t, chroma, 235 + 30 * t);
}

Colour diverging_colour(double value) {
  if (std::isnan(value)) return invalid_colour();
  const double t = std::min(std::abs(value), 1.0);
  return from_oklch(lightest - 0.50 * t, 0.13 * std::pow(t, 0.8), value < 0 ? 255 : 55);
}

Colour hidden_colour() { return {214, 214, 214}; }

Colour hatch_colour() { return {150, 150, 150}; }

Colour invalid_colour() { return {214, 0, 60}; }

Colour curve_colour(int index) {
  constexpr std::array<Colour, curve_colours> colours = {{{0, 114, 178},
                                                          {213, 94, 0},
                                                          {0, 158, 115},
                                                          {204, 121, 167},
                                                          {0, 0, 0},
                                                          {230, 159, 0},
                                                          {86, 180, 233},
                                                          {125, 125, 125}}};
  return colours[static_cast<std::size_t>(index % curve_colours)];
}

double lightness(Colour colour) {
  const double y = luminance(colour);
  return y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
}

Colour text_colour_on(Colour ground) {
  // Black on saturated blue reads worse than contrast formulas say (they would
  // switch at 0.18); white has 3.5 to 1 from here on.
  return luminance(ground) > 0.25 ? Colour{0, 0, 0} : Colour{255, 255, 255};
}

int nearest_256(Colour colour) {
  constexpr std::array<int, 6> levels = {0, 95, 135, 175, 215, 255};
  int best = 16, best_distance = std::numeric_limits<int>::max();
  const auto consider = [&](int index, int red, int green, int blue) {
    const Colour candidate{static_cast<std::uint8_t>(red), static_cast<std::uint8_t>(green),
                           static_cast<std::uint8_t>(blue)};
    const int distance = squared_distance(colour, candidate);
    if (distance < best_distance) best = index, best_distance = distance;
  };
  for (int i = 0; i < 216; ++i) consider(16 + i, levels[i / 36], levels[i / 6 % 6], levels[i % 6]);
  for (int i = 0; i < 24; ++i) consider(232 + i, 8 + 10 * i, 8 + 10 * i, 8 + 10 * i);
  return best;
}

int sequential_16(double value) {
  constexpr std::array<int, 5> steps = {15, 14, 6, 12, 4};
  if (std::isnan(value)) return 1;
  return steps[std::min(4, static_cast<int>(5 * std::clamp(value, 0.0, 1.0)))];
}

int diverging_16(double value) {
  constexpr std::array<int, 5> steps = {4, 12, 15, 11, 3};
  if (std::isnan(value)) return 1;
  return steps[2 + static_cast<int>(std::lround(2 * std::clamp(value, -1.0, 1.0)))];
}

char ascii_ramp(double value) {
  if (std::isnan(value)) return '?';
  return " .:-=+*#%@"[std::min(9, static_cast<int>(10 * std::clamp(value, 0.0, 1.0)))];
}

}  // namespace regard
