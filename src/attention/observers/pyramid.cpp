#include <algorithm>
#include <string>

#include "regard/error.h"
#include "regard/observe.h"

namespace regard {
namespace {

// Each axis with its cells in pairs, or as it is.
template <class T>
Tensor<T> paired(const Tensor<T>& map, Pooling how, bool rows, bool columns) {
  const Index height = map.size(-2), width = map.size(-1), step_r = rows ? 2 : 1, step_c = columns ? 2 : 1;
  Shape shape = map.shape();
  shape[shape.size() - 2] = (height + step_r - 1) / step_r;
  shape[shape.size() - 1] = (width + step_c - 1) / step_c;
  Tensor<T> smaller(shape);
  T* to = smaller.data();
  const Index maps = height * width == 0 ? 0 : map.count() / (height * width);
  for (Index m = 0; m < maps; ++m)
    for (Index r = 0; r < height; r += step_r)
      for (Index c = 0; c < width; c += step_c, ++to)
        for (Index i = r; i < std::min(r + step_r, height); ++i)
          for (Index j = c; j < std::min(c + step_c, width); ++j) {
            const T value = map[(m * height + i) * width + j];
            // NaN wins either way.
            if (how == Pooling::sum)
              *to += value;
            else if ((i == r && j == c) || value > *to || value != value)
              *to = value;
          }
  return smaller;
}

}  // namespace

template <class T>
std::vector<Tensor<T>> pyramid(const Tensor<T>& map, Pooling how, const MapSize& smallest) {
  if (map.rank() < 2) throw ArgumentError("pyramid: map " + map.text() + " needs two axes, rows and columns");
  if (smallest.rows < 1 || smallest.columns < 1)
    throw ArgumentError("pyramid: smallest is " + std::to_string(smallest.rows) + " x " +
                        std::to_string(smallest.columns) + " but must be at least 1 x 1");
  std::vector<Tensor<T>> levels{map};
  while (levels.back().size(-2) > smallest.rows || levels.back().size(-1) > smallest.columns)
    levels.push_back(
        paired(levels.back(), how, levels.back().size(-2) > smallest.rows, levels.back().size(-1) > smallest.columns));
  return levels;
}

template std::vector<Tensor<float>> pyramid(const Tensor<float>&, Pooling, const MapSize&);
template std::vector<Tensor<double>> pyramid(const Tensor<double>&, Pooling, const MapSize&);

}  // namespace regard
