#include "regard/ink.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "regard/error.h"

namespace regard {
namespace {

// The two greys in the middle; of an odd number of pixels, the one twice.
std::pair<double, double> middle_greys(const Tensor<float>& picture) {
  std::vector<float> sorted(picture.values().begin(), picture.values().end());
  const auto upper = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), upper, sorted.end());
  const float lower = sorted.size() % 2 == 1 ? *upper : *std::max_element(sorted.begin(), upper);
  return {static_cast<double>(lower), static_cast<double>(*upper)};
}

// The side of the first pixel that is not in the middle; 0: there is none.
int first_side(const Tensor<float>& picture, double middle) {
  for (float grey : picture.values())
    if (static_cast<double>(grey) != middle) return static_cast<double>(grey) < middle ? -1 : 1;
  return 0;
}

// The third moment around the middle has the sign of what is rare. Sums that cancel but
// for their rounding are 0.
int rare_side(const Tensor<float>& picture, double middle) {
  constexpr double rounding = 1e-9;
  double cubes = 0, sizes = 0;
  for (float grey : picture.values()) {
    const double difference = static_cast<double>(grey) - middle, cube = difference * difference * difference;
    cubes += cube;
    sizes += std::abs(cube);
  }
  if (std::abs(cubes) <= rounding * sizes) return -first_side(picture, middle);
  return cubes < 0 ? -1 : 1;
}

}  // namespace

Ink ink_of(const Tensor<float>& picture) {
  if (picture.rank() != 2 || picture.empty())
    throw ArgumentError("ink_of: picture is " + picture.text() + ", need [height, width]");
  for (float grey : picture.values())
    if (!std::isfinite(grey)) throw ArgumentError("ink_of: a pixel of the picture is not a finite number");
  const auto [lower, upper] = middle_greys(picture);
  Ink ink;
  ink.direction = rare_side(picture, (lower + upper) / 2);
  ink.background = ink.direction > 0 ? lower : upper;
  double squares = 0;
  for (float grey : picture.values()) {
    const double difference = static_cast<double>(grey) - ink.background;
    squares += difference * difference;
  }
  ink.deviation = std::sqrt(squares / static_cast<double>(picture.count()));
  return ink;
}

}  // namespace regard
