#include "regard/tree.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "refusal.h"
#include "regard/error.h"
#include "regard/random.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

std::vector<std::int32_t> numbers(const Tensor<std::int32_t>& x) { return {x.values().begin(), x.values().end()}; }

// "The cat sat on mats": The <- cat <- sat -> mats -> on.
TEST(Tree, distances_count_edges) {
  const std::vector<Index> heads{1, 2, -1, 4, 2};
  EXPECT_EQ(numbers(tree_distances(heads)), (std::vector<std::int32_t>{0, 1, 2, 4, 3,  //
                                                                       1, 0, 1, 3, 2,  //
                                                                       2, 1, 0, 2, 1,  //
                                                                       4, 3, 2, 0, 1,  //
                                                                       3, 2, 1, 1, 0}));
}

TEST(Tree, words_of_other_trees_are_minus_one_apart) {
  const std::vector<Index> heads{-1, 0, -1};
  EXPECT_EQ(numbers(tree_distances(heads)), (std::vector<std::int32_t>{0, 1, -1, 1, 0, -1, -1, -1, 0}));
  EXPECT_EQ(tree_distances({}).count(), 0);
}

// Floyd and Warshall's shortest paths know nothing of trees.
TEST(Tree, distances_are_shortest_paths_of_random_trees) {
  Random random(3);
  for (int round = 0; round < 20; ++round) {
    const Index n = 2 + round;
    std::vector<Index> heads(static_cast<std::size_t>(n), -1);
    for (Index word = 1; word < n; ++word)
      heads[static_cast<std::size_t>(word)] = static_cast<Index>(random.uniform() * static_cast<double>(word));
    // Any order of the words: the root need not come first.
    for (Index& head : heads) head = head < 0 ? head : n - 1 - head;
    std::reverse(heads.begin(), heads.end());
    constexpr std::int32_t far = 1000;
    std::vector<std::int32_t> wanted(static_cast<std::size_t>(n * n), far);
    const auto at = [&](Index i, Index j) -> std::int32_t& { return wanted[static_cast<std::size_t>(i * n + j)]; };
    for (Index i = 0; i < n; ++i) {
      at(i, i) = 0;
      if (const Index head = heads[static_cast<std::size_t>(i)]; head >= 0) at(i, head) = at(head, i) = 1;
    }
    for (Index k = 0; k < n; ++k)
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) at(i, j) = std::min(at(i, j), at(i, k) + at(k, j));
    EXPECT_EQ(numbers(tree_distances(heads)), wanted) << n;
  }
}

TEST(Tree, a_batch_is_padded_with_minus_one) {
  const auto distances = tree_distances_of_each({{-1}, {1, -1}});
  ASSERT_EQ(distances.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(numbers(distances), (std::vector<std::int32_t>{0, -1, -1, -1, 0, 1, 1, 0}));
}

TEST(Tree, neighbours_are_within_the_radius) {
  const std::vector<Index> heads{-1, 0, 1};
  const auto near = tree_neighbours(tree_distances(heads), 1);
  EXPECT_EQ((std::vector<int>(near.values().begin(), near.values().end())),
            (std::vector<int>{1, 1, 0, 1, 1, 1, 0, 1, 1}));
  EXPECT_THROW(tree_neighbours(tree_distances(heads), -1), ArgumentError);
}

TEST(Tree, what_is_no_tree_is_refused) {
  const auto refusal = [](std::vector<Index> heads) {
    return message_of<ArgumentError>([&] { tree_distances(heads); });
  };
  expect_contains(refusal({-1, 2}), "parent of word 1 is 2");
  expect_contains(refusal({1, 0}), "circle");
  expect_contains(refusal({-1, 1}), "circle");
}

}  // namespace
}  // namespace regard
