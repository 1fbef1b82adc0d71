// What the forward and backward pass of relative attention share: checked sizes
// and the scores of a block of rows.
#pragma once

#include <string>

#include "attention/problem.h"
#include "attention/variants/products.h"
#include "regard/relative_attention.h"

namespace regard::detail {

// One call's checked sizes. Throws ArgumentError beginning with `call`.
template <class T>
Sizes check_relative(const char* call, const Sizes4& q, const Sizes4& k, const Sizes4& v, const RelativeTerms<T>& terms,
                     const RelativeOptions<T>& options);

// Tables shared by all heads have one.
template <class T, int Rank>
Index table_head(const View<const T, Rank>& table, Index h) {
  return table.size(0) == 1 ? 0 : h;
}

struct RelativeCall {
  Sizes sizes;
  RelativeInputs in;
  float scale;

  Index q_start(Index b) const { return in.options.q_start.of(b, sizes.q_len, sizes.kv_len); }
  Index distances() const { return in.terms.keys.size(1); }
};

RelativeCall make_relative_call(const char* name, const RelativeInputs& inputs);

// Rows whose scores against all keys are in flight at once.
constexpr Index relative_rows = 48;
constexpr Index relative_keys = 192;  // keys packed at a time

// Rows [row, row + rows) of one head.
struct RelativeSpot {
  Index b, h, row, rows;
};

// Keys [key, key + keys) as they are packed together, in columns from `column`
// on of a block of scores.
struct KeyRange {
  Index key, keys, column;
  Coverage coverage;
};

// The scores of a block of rows against the keys it may see, and what they were
// made of.
class RelativeScores {
 public:
  explicit RelativeScores(const RelativeCall& call) : call_(call) {}

  // Fills in scores(): -inf where hidden.
  void compute(const RelativeSpot& spot);

  Scratch& scores() { return scores_; }
  const Scratch& content_queries() const { return content_; }    // (q + content_bias) * scale
  const Scratch& position_queries() const { return position_; }  // (q + position_bias) * scale
  kernels::Tile tile() { return {scores_.row(0), scores_.stride(), spot_.rows, columns()}; }
  // From the first seen key to the last one; parts in between may be hidden.
  const std::vector<KeyRange>& key_ranges() const { return key_ranges_; }
  Index columns() const { return end_key_ - first_key_; }

  // Rows of a distance table that this block can meet: [first, first + count).
  struct Range {
    Index first, count;
  };
  Range range() const { return range_; }

  // scores[i, j] += by_distance[i, row of (i, j) - range().first].
  void spread(Scratch& scores, const Scratch& by_distance) const;
  // The way back: by_distance[i, d] = sum over the keys at d of scores[i, j].
  void gather(Scratch& by_distance, const Scratch& scores) const;

 private:
  void find_keys();
  void find_range();
  void content_scores();
  void position_scores();
  void hide(const KeyRange& keys);
  MaskBlock mask_block(Index key, Index keys) const {
    return {spot_.b, spot_.h, spot_.row, spot_.rows, key, keys, call_.q_start(spot_.b)};
  }
  // Columns of row i whose distance lies before, inside and after the table:
  // [0, begin) use its first row, [begin, end) follow one another, the rest the last.
  struct Split {
    Index begin, end, at;  // `at`: where column `begin` reads within range()
  };
  Split split(Index i) const;

  const RelativeCall& call_;
  RelativeSpot spot_{};
  Index first_key_ = 0, end_key_ = 0;
  std::vector<KeyRange> key_ranges_;
  Range range_{};
  Scratch scores_, content_, position_, by_distance_;
  PackedMatrix panels_;
  std::vector<std::uint8_t> visible_;
};

}  // namespace regard::detail
