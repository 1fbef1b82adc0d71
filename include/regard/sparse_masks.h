// Sparse patterns as masks: rules over positions that answer for whole blocks,
// so that a mask over 65,536 x 65,536 pairs is a few numbers and hidden tiles
// cost nothing. They combine with &, | and ! and print like every mask.
//
// Patterns that look both ways become causal with `& causal()`.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/mask.h"

namespace regard {

// Keys query + n * dilation for n from -left to right; -1 leaves a side open.
// dilation 1 is window(left, right). Source: Beltagy et al., "Longformer", 2020.
Mask dilated_window(Index left, Index right, Index dilation);

// Causal: the `stride` keys before the query, itself, and every stride-th key
// before it. Source: Child et al., "Generating long sequences with sparse
// Transformers", 2019 (both of a head pair's patterns in one).
Mask strided(Index stride);

// Causal: the keys of the query's own block, and the last `summary` keys of
// every earlier block. Source: the same. 0 < summary <= block.
Mask fixed_blocks(Index block, Index summary);

// Pairs whose key or query is at one of these positions: global tokens see
// everything and are seen by all. One list for the whole batch, or one per
// batch entry.
Mask global_tokens(std::vector<Index> positions);
Mask global_tokens_of_each(std::vector<std::vector<Index>> positions_per_batch);

// window(each_side, each_side) and global tokens. Source: Beltagy et al., 2020.
Mask longformer(Index each_side, std::vector<Index> global_positions);

// Pairs whose blocks of `block` positions are at most `each_side` blocks apart.
Mask block_window(Index block, Index each_side);

// Window, global and random blocks. Source: Zaheer et al., "Big Bird", 2020.
struct BigBird {
  Index length = 0;            // of the sequence; its last block may be short
  Index block = 64;            // positions in a block
  Index window_each_side = 1;  // neighbouring blocks seen on each side
  Index global_first = 1;      // blocks at the beginning and the end that see
  Index global_last = 1;       // everything and are seen by all
  Index random = 3;            // further blocks each block of queries sees
  std::uint64_t seed = 0;      // names the random blocks; other heads draw others
};
Mask big_bird(const BigBird& pattern);

// The random blocks alone: for each head and block of queries, `random` distinct
// blocks that are neither in its window nor global (all of them where fewer are
// left), drawn by Philox at (draw, block of queries, head): a function of these
// numbers, so that nothing is stored and every call draws the same.
Mask random_blocks(const BigBird& pattern);
// What `block_of_queries` of `head` draws, ascending.
std::vector<Index> random_blocks_of(const BigBird& pattern, Index head, Index block_of_queries);

// Blocks of keys that you chose: those numbered chosen(head, block of queries,
// ...). chosen [q_heads or 1, blocks of queries, count], repetitions allowed;
// blocks of queries beyond it see none; copied.
Mask chosen_blocks(View<const std::int64_t, 3> chosen, Index block);

// causal(), and the first `length` keys for every query: a prefix that sees all
// of itself. One length, or one per batch entry. Source: Raffel et al., 2020.
Mask prefix_lm(Index length);
Mask prefix_lm(std::vector<Index> length_per_batch);

// Patches of an image, row after row, from position `first` on: a patch sees
// those at most radius_y rows and radius_x columns away (cut off at the edges).
// Positions that are no patch see nothing and are seen by nobody: add them with
// `| global_tokens({0})`.
struct PatchGrid {
  Index height = 0, width = 0;
  Index first = 0;
};
Mask neighbourhood(const PatchGrid& grid, Index radius_y, Index radius_x);

}  // namespace regard
