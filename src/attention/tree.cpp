#include "regard/tree.h"

#include <algorithm>
#include <string>

#include "regard/error.h"

namespace regard {
namespace {

void check_heads(std::span<const Index> heads) {
  const auto count = static_cast<Index>(heads.size());
  for (Index word = 0; word < count; ++word)
    if (heads[static_cast<std::size_t>(word)] >= count)
      throw ArgumentError("tree_distances: the parent of word " + std::to_string(word) + " is " +
                          std::to_string(heads[static_cast<std::size_t>(word)]) + ", but there are " +
                          std::to_string(count) + " words");
}

// Parents before their children. A circle has no beginning, so that its words are
// missing at the end.
std::vector<Index> from_the_roots(std::span<const Index> heads) {
  std::vector<std::vector<Index>> children(heads.size());
  std::vector<Index> order;
  for (std::size_t word = 0; word < heads.size(); ++word) {
    if (heads[word] < 0)
      order.push_back(static_cast<Index>(word));
    else
      children[static_cast<std::size_t>(heads[word])].push_back(static_cast<Index>(word));
  }
  for (std::size_t at = 0; at < order.size(); ++at)
    for (Index child : children[static_cast<std::size_t>(order[at])]) order.push_back(child);
  if (order.size() < heads.size()) throw ArgumentError("tree_distances: the parents run in a circle");
  return order;
}

// Into the upper left corner of rows of `stride`. A word is one edge farther than
// its parent from every word that came before it.
void fill_distances(std::span<const Index> heads, std::int32_t* distances, Index stride) {
  check_heads(heads);
  const auto order = from_the_roots(heads);
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Index word = order[at], parent = heads[static_cast<std::size_t>(word)];
    distances[word * stride + word] = 0;
    for (std::size_t before = 0; before < at && parent >= 0; ++before) {
      const Index other = order[before];
      const std::int32_t up = distances[parent * stride + other];
      distances[word * stride + other] = distances[other * stride + word] = up < 0 ? up : up + 1;
    }
  }
}

}  // namespace

Tensor<std::int32_t> tree_distances(std::span<const Index> heads) {
  const auto count = static_cast<Index>(heads.size());
  Tensor<std::int32_t> distances({count, count}, -1);
  fill_distances(heads, distances.data(), count);
  return distances;
}

Tensor<std::int32_t> tree_distances_of_each(const std::vector<std::vector<Index>>& heads) {
  std::size_t longest = 0;
  for (const auto& sentence : heads) longest = std::max(longest, sentence.size());
  const auto batch = static_cast<Index>(heads.size()), length = static_cast<Index>(longest);
  Tensor<std::int32_t> distances({batch, length, length}, -1);
  for (Index b = 0; b < batch; ++b)
    fill_distances(heads[static_cast<std::size_t>(b)], distances.data() + b * length * length, length);
  return distances;
}

Tensor<std::uint8_t> tree_neighbours(const Tensor<std::int32_t>& distances, Index radius) {
  if (radius < 0) throw ArgumentError("tree_neighbours: radius is " + std::to_string(radius));
  Tensor<std::uint8_t> near(distances.shape());
  for (Index i = 0; i < near.count(); ++i) near[i] = distances[i] >= 0 && distances[i] <= radius;
  return near;
}

}  // namespace regard
