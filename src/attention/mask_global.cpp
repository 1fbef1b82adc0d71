// Patterns with global tokens, random blocks and prefixes.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <string>

#include "attention/mask_blocks.h"
#include "regard/error.h"
#include "regard/random.h"
#include "regard/sparse_masks.h"
#include "regard/tensor.h"

namespace regard {
namespace {

using detail::Span;

void check_entries(const char* rule, std::size_t entries, const MaskShape& shape) {
  if (!shape.fits(static_cast<Index>(entries), shape.batch))
    throw ArgumentError(std::string(rule) + ": " + std::to_string(entries) + " entries but batch is " +
                        std::to_string(shape.batch));
}

// Key or query at one of the positions of its batch entry.
class GlobalRule final : public MaskRule {
 public:
  explicit GlobalRule(std::vector<std::vector<Index>> positions) : positions_(std::move(positions)) {
    for (auto& list : positions_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  Coverage coverage(const MaskBlock& block) const override {
    const Index rows = count(block.batch, detail::queries_of(block)), keys = count(block.batch, detail::keys_of(block));
    if (rows == 0 && keys == 0) return Coverage::none;
    return rows == block.rows || keys == block.keys ? Coverage::all : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const auto& list = positions(block.batch);
    const auto first = std::lower_bound(list.begin(), list.end(), block.key);
    const auto last = std::lower_bound(first, list.end(), block.key + block.keys);
    for (Index r = 0; r < block.rows; ++r) {
      if (std::binary_search(list.begin(), list.end(), block.q_start + block.row + r)) continue;
      // Between one global key and the next everything is hidden.
      Index from = 0;
      for (auto key = first; key != last; ++key) {
        std::fill(visible + r * stride + from, visible + r * stride + (*key - block.key), std::uint8_t{0});
        from = *key - block.key + 1;
      }
      std::fill(visible + r * stride + from, visible + r * stride + block.keys, std::uint8_t{0});
    }
  }

  void check(const MaskShape& shape) const override {
    check_entries("global_tokens_of_each", positions_.size(), shape);
  }

 private:
  const std::vector<Index>& positions(Index batch) const {
    return positions_[positions_.size() == 1 ? 0 : static_cast<std::size_t>(batch)];
  }
  Index count(Index batch, const Span& span) const {
    const auto& list = positions(batch);
    return std::upper_bound(list.begin(), list.end(), span.last) -
           std::lower_bound(list.begin(), list.end(), span.first);
  }

  std::vector<std::vector<Index>> positions_;  // ascending
};

// Keys before the prefix length of their batch entry.
class PrefixRule final : public MaskRule {
 public:
  explicit PrefixRule(std::vector<Index> lengths) : lengths_(std::move(lengths)) {}
  Coverage coverage(const MaskBlock& block) const override {
    const Index length = length_of(block.batch);
    if (block.key >= length) return Coverage::none;
    return block.key + block.keys <= length ? Coverage::all : Coverage::some;
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r)
      detail::keep_only(visible + r * stride, block.keys, 0, length_of(block.batch) - block.key);
  }
  void check(const MaskShape& shape) const override { check_entries("prefix_lm", lengths_.size(), shape); }

 private:
  Index length_of(Index batch) const { return lengths_[lengths_.size() == 1 ? 0 : static_cast<std::size_t>(batch)]; }
  std::vector<Index> lengths_;
};

Index blocks_in(const BigBird& pattern) { return (pattern.length + pattern.block - 1) / pattern.block; }

// Blocks of keys that a block of queries sees without drawing, as two ranges to
// leave out of the middle [global_first, blocks - global_last).
struct Candidates {
  Index first, last;            // [first, last) without the globals
  Index hole_first, hole_last;  // [hole_first, hole_last) of it is the window
  Index count() const { return last - first - (hole_last - hole_first); }
  Index block(Index n) const { return first + n < hole_first ? first + n : first + n + (hole_last - hole_first); }
};

Candidates candidates_of(const BigBird& pattern, Index block_of_queries) {
  const Index blocks = blocks_in(pattern);
  const Index first = std::min(pattern.global_first, blocks), last = std::max(first, blocks - pattern.global_last);
  const Index hole_first = std::clamp(block_of_queries - pattern.window_each_side, first, last);
  const Index hole_last = std::clamp(block_of_queries + pattern.window_each_side + 1, hole_first, last);
  return {first, last, hole_first, hole_last};
}

void check_pattern(const BigBird& pattern) {
  const auto refuse = [](const std::string& what) { throw ArgumentError("big_bird: " + what); };
  if (pattern.block < 1 || pattern.block > detail::longest_mask_length)
    refuse("block must be at least 1 and at most " + std::to_string(detail::longest_mask_length) + ", got " +
           std::to_string(pattern.block));
  if (pattern.length < 0 || pattern.length > detail::longest_mask_length)
    refuse("length must be that of the sequence, got " + std::to_string(pattern.length));
  for (const auto& [name, value] : {std::pair{"window_each_side", pattern.window_each_side},
                                    {"global_first", pattern.global_first},
                                    {"global_last", pattern.global_last},
                                    {"random", pattern.random}})
    if (value < 0 || value > detail::longest_mask_length)
      refuse(std::string(name) + " must be a number of blocks, got " + std::to_string(value));
}

// The lists that a thread asked for last: tiles ask for those of a block of queries
// again and again, and drawing costs more than looking. A rule is known by its number, not
// by its address, which another rule may get after it.
class RecentLists {
 public:
  using List = std::vector<Index>;
  template <class F>
  static const List& of(std::uint64_t rule, Index head, Index own, F make) {
    thread_local std::array<Entry, 256> entries;
    Entry& entry = entries[(static_cast<std::size_t>(own + 31 * head) + 97 * rule) % entries.size()];
    if (entry.rule != rule || entry.head != head || entry.own != own) entry = {rule, head, own, make(head, own)};
    return entry.list;
  }
  // A number that no other rule has.
  static std::uint64_t next_rule() {
    static std::atomic<std::uint64_t> rules{0};
    return ++rules;
  }

 private:
  struct Entry {
    std::uint64_t rule = 0;
    Index head = 0, own = 0;
    List list;
  };
};

// Blocks of keys listed for each block of queries: list_of(head, block of
// queries) gives them, ascending and without repetition.
class BlockListRule final : public MaskRule {
 public:
  using ListOf = std::function<std::vector<Index>(Index head, Index own)>;
  // heads: how many there must be; 0 for any number. length: keys there may be.
  BlockListRule(Index block, Index heads, ListOf list_of, Index length = std::numeric_limits<Index>::max())
      : block_(block), heads_(heads), length_(length), list_of_(std::move(list_of)) {}

  Coverage coverage(const MaskBlock& block) const override {
    const Span queries = detail::blocks_of(detail::queries_of(block), block_);
    const Span keys = detail::blocks_of(detail::keys_of(block), block_);
    bool any = false, whole = true;
    for (Index own = queries.first; own <= queries.last; ++own) {
      const auto& list = list_of(block.head, own);
      const Index seen = std::upper_bound(list.begin(), list.end(), keys.last) -
                         std::lower_bound(list.begin(), list.end(), keys.first);
      any |= seen > 0;
      whole &= seen == keys.last - keys.first + 1;
      if (any && !whole) return Coverage::some;
    }
    return !any ? Coverage::none : whole ? Coverage::all : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      const auto& list = list_of(block.head, detail::floor_div(block.q_start + block.row + r, block_));
      // Block of keys by block of keys.
      for (Index key = block.key, next = 0; key < block.key + block.keys; key = next) {
        next = std::min((key / block_ + 1) * block_, block.key + block.keys);
        if (!std::binary_search(list.begin(), list.end(), key / block_))
          std::fill_n(visible + r * stride + (key - block.key), next - key, std::uint8_t{0});
      }
    }
  }

  void check(const MaskShape& shape) const override {
    if (heads_ != 0 && !shape.fits(heads_, shape.q_heads))
      throw ArgumentError("chosen_blocks: blocks of " + std::to_string(heads_) + " heads but q has " +
                          std::to_string(shape.q_heads));
    if (shape.kv_len > length_)
      throw ArgumentError("big_bird: length is " + std::to_string(length_) + " but kv_len is " +
                          std::to_string(shape.kv_len));
  }

 private:
  const std::vector<Index>& list_of(Index head, Index own) const {
    return RecentLists::of(number_, head, own, list_of_);
  }

  Index block_, heads_, length_;
  ListOf list_of_;
  std::uint64_t number_ = RecentLists::next_rule();
};

}  // namespace

Mask global_tokens(std::vector<Index> positions) {
  return Mask(std::make_shared<GlobalRule>(std::vector<std::vector<Index>>(1, std::move(positions))));
}

Mask global_tokens_of_each(std::vector<std::vector<Index>> positions_per_batch) {
  return Mask(std::make_shared<GlobalRule>(std::move(positions_per_batch)));
}

Mask longformer(Index each_side, std::vector<Index> global_positions) {
  return window(each_side, each_side) | global_tokens(std::move(global_positions));
}

std::vector<Index> random_blocks_of(const BigBird& pattern, Index head, Index block_of_queries) {
  check_pattern(pattern);
  const Candidates candidates = candidates_of(pattern, block_of_queries);
  const Index count = std::min(pattern.random, candidates.count());
  // Floyd's sample without repetition: the n-th draw is uniform below all but
  // count - n - 1 candidates, and takes the last of those where it repeats.
  std::vector<Index> drawn;
  for (Index n = 0; n < count; ++n) {
    const Index limit = candidates.count() - count + n + 1;
    const auto words = philox({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(block_of_queries),
                               static_cast<std::uint32_t>(head), 0},
                              pattern.seed);
    const auto pick = static_cast<Index>((std::uint64_t{words[0]} * static_cast<std::uint64_t>(limit)) >> 32);
    const bool taken = std::find(drawn.begin(), drawn.end(), pick) != drawn.end();
    drawn.push_back(taken ? limit - 1 : pick);
  }
  for (Index& pick : drawn) pick = candidates.block(pick);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

Mask random_blocks(const BigBird& pattern) {
  check_pattern(pattern);
  const auto drawn = [pattern](Index head, Index own) {
    return own < 0 || own >= blocks_in(pattern) ? std::vector<Index>{} : random_blocks_of(pattern, head, own);
  };
  return Mask(std::make_shared<BlockListRule>(pattern.block, 0, drawn, pattern.length));
}

Mask chosen_blocks(View<const std::int64_t, 3> chosen, Index block) {
  if (block < 1 || block > detail::longest_mask_length)
    throw ArgumentError("chosen_blocks: block must be at least 1, got " + std::to_string(block));
  if (chosen.size(0) < 1)
    throw ArgumentError("chosen_blocks: chosen " + chosen.text() + " needs [q_heads or 1,blocks of queries,count]");
  const auto table = std::make_shared<const Tensor<std::int64_t>>(packed(chosen));
  const Index heads = chosen.size(0) == 1 ? 0 : chosen.size(0);
  return Mask(std::make_shared<BlockListRule>(block, heads, [table, heads](Index head, Index own) {
    const Index blocks = table->size(1), count = table->size(2);
    if (own < 0 || own >= blocks) return std::vector<Index>{};
    const std::int64_t* first = table->data() + ((heads == 0 ? 0 : head) * blocks + own) * count;
    std::vector<Index> list(first, first + count);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  }));
}

Mask big_bird(const BigBird& pattern) {
  check_pattern(pattern);
  const Index blocks = blocks_in(pattern);
  const Index head = std::min(pattern.global_first * pattern.block, pattern.length);
  const Index tail = std::max(head, (blocks - pattern.global_last) * pattern.block);
  std::vector<Index> global;
  for (Index position = 0; position < head; ++position) global.push_back(position);
  for (Index position = tail; position < pattern.length; ++position) global.push_back(position);
  return block_window(pattern.block, pattern.window_each_side) | global_tokens(std::move(global)) |
         random_blocks(pattern);
}

Mask prefix_lm(Index length) { return prefix_lm(std::vector{length}); }

Mask prefix_lm(std::vector<Index> length_per_batch) {
  return causal() | Mask(std::make_shared<PrefixRule>(std::move(length_per_batch)));
}

}  // namespace regard
