// Masks: which pairs (query, key) may attend. true = may attend.
//
// A mask is a rule over positions; nothing of size q_len x kv_len is ever
// built. Masks combine with &, | and !, answer for whole blocks ("none, some
// or all of it visible"), and print themselves as a picture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/view.h"

namespace regard {

enum class Coverage { none, some, all };

// A rectangle of pairs of one batch entry and one query head: rows
// [row, row + rows) of the queries, slots [key, key + keys) of the keys. Row r
// stands at position q_start + r, key slot j at position j.
struct MaskBlock {
  Index batch = 0;
  Index head = 0;
  Index row = 0;
  Index rows = 0;
  Index key = 0;
  Index keys = 0;
  Index q_start = 0;
};

// The sizes a mask is checked against when a call begins.
struct MaskShape {
  Index batch = 0;
  Index q_heads = 0;
  Index q_len = 0;
  Index kv_len = 0;
  // Of a larger batch, or of more heads, only the first are asked about: a rule
  // with entries for more than these fits as well.
  bool first_ones = false;

  // Whether a rule with this many entries for `of` (batch or q_heads) fits.
  bool fits(Index entries, Index of) const { return entries == 1 || entries == of || (first_ones && entries > of); }
};

class MaskRule;

// Pairs at regular gaps: key - query = n * gap for some n from `first` to `last`.
// Rows and keys of one residue (modulo gap) see no others, so each residue is a
// problem of its own in which the pairs lie side by side.
struct Regrouping {
  Index gap = 1;
  Index first = 0, last = 0;
  std::shared_ptr<const MaskRule> also;   // must let those pairs through as well; null: nothing more
  std::shared_ptr<const MaskRule> apart;  // shows further pairs, none of those above; null: there are none
};

// One rule. Implement it to add a mask of your own: `coverage` may answer
// `some` whenever it can't tell, `intersect` must be exact.
class MaskRule {
 public:
  virtual ~MaskRule() = default;
  virtual Coverage coverage(const MaskBlock& block) const = 0;
  // visible[r * stride + j] is 1 or 0 for every pair of the block; sets it to 0
  // where this rule hides the pair, and leaves it alone elsewhere.
  virtual void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const = 0;
  // Throws ArgumentError when the rule does not fit these sizes.
  virtual void check(const MaskShape&) const {}
  // The same pairs as a regrouping, where the rule has regular gaps.
  virtual std::optional<Regrouping> regrouping() const { return {}; }
};

// Value type; copying shares the rules. A default-constructed mask hides
// nothing. Padding is kept apart from the rest and always intersects last:
// neither | nor ! brings a padded key back.
class Mask {
 public:
  Mask() = default;
  explicit Mask(std::shared_ptr<const MaskRule> rule) : rule_(std::move(rule)) {}

  Coverage coverage(const MaskBlock& block) const;
  // Writes 1 (visible) or 0 (hidden) for every pair of the block.
  void fill(const MaskBlock& block, std::uint8_t* visible, Index stride) const;
  void check(const MaskShape& shape) const;
  bool hides_nothing() const { return !rule_ && padding_.empty(); }
  // Padding included.
  std::optional<Regrouping> regrouping() const;

  // Rows of 1 and 0, one line a query, for batch entry 0 and head 0 unless
  // told otherwise; q_start as in attend (default bottom-right). Throws
  // ArgumentError where the mask does not fit these sizes.
  std::string picture(Index q_len, Index kv_len, Index batch = 0, Index head = 0) const;

  friend Mask operator&(const Mask& a, const Mask& b);
  friend Mask operator|(const Mask& a, const Mask& b);
  friend Mask operator!(const Mask& a);
  friend Mask padding_mask(std::shared_ptr<const MaskRule> rule);

 private:
  std::shared_ptr<const MaskRule> rule_;                  // null: everything visible
  std::vector<std::shared_ptr<const MaskRule>> padding_;  // all of them intersect last
};

Mask operator&(const Mask& a, const Mask& b);
Mask operator|(const Mask& a, const Mask& b);
Mask operator!(const Mask& a);
// A mask whose rule counts as padding.
Mask padding_mask(std::shared_ptr<const MaskRule> rule);

// Everything visible: the default, named.
Mask all_visible();

// key position <= query position. 2 queries, 5 keys (bottom-right): 11110, 11111.
Mask causal();

// query - left <= key <= query + right, in positions; -1 leaves a side open.
Mask window(Index left, Index right);

// Causal, and `keys` keys counting the query itself: window(keys - 1, 0).
Mask sliding_window(Index keys);

// Hides keys whose id is `pad`. ids [batch or 1, kv_len]; copied.
Mask padding(View<const std::int64_t, 2> ids, std::int64_t pad);

// The same, and empties the rows of padded queries. q_ids [batch or 1, q_len].
Mask padding(View<const std::int64_t, 2> q_ids, View<const std::int64_t, 2> k_ids, std::int64_t pad);

// Visible where both sides carry the same document id.
// q_ids [batch or 1, q_len], k_ids [batch or 1, kv_len]; copied.
Mask documents(View<const std::int64_t, 2> q_ids, View<const std::int64_t, 2> k_ids);
Mask documents(View<const std::int64_t, 2> ids);

// Any boolean tensor (nonzero = may attend), indexed by row and slot; sizes of
// 1 broadcast. Not copied: it must outlive the mask.
//   2-D [q_len, kv_len]; 3-D [batch, q_len, kv_len]; 4-D [batch, q_heads, q_len, kv_len]
Mask boolean(View<const std::uint8_t, 2> allowed);
Mask boolean(View<const std::uint8_t, 3> allowed);
Mask boolean(View<const std::uint8_t, 4> allowed);

}  // namespace regard
