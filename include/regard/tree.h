// Distances in a tree, such as a sentence's dependency tree (conllu.h): as a mask
// through tree_neighbours, as a learned bias through pair_bias.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/tensor.h"

namespace regard {

// Edges between any two words: [n, n], 0 on the diagonal. heads[i] is the parent of
// word i, from 0; -1 makes it a root. Words of different trees are -1 apart. Throws
// ArgumentError for a parent that is no word and for parents that run in a circle.
Tensor<std::int32_t> tree_distances(std::span<const Index> heads);
// The same for a batch of sentences: [batch, longest, longest], -1 beyond each end.
Tensor<std::int32_t> tree_distances_of_each(const std::vector<std::vector<Index>>& heads);

// Pairs at most `radius` edges apart, 1 = may attend, for boolean() of mask.h;
// negative distances are hidden.
Tensor<std::uint8_t> tree_neighbours(const Tensor<std::int32_t>& distances, Index radius);

}  // namespace regard
