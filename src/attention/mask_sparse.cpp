// Periodic patterns: dilated windows and the Sparse Transformer's two.
#include <algorithm>
#include <limits>
#include <string>

#include "attention/mask_blocks.h"
#include "regard/error.h"
#include "regard/sparse_masks.h"

namespace regard {
namespace {

using detail::floor_div;
using detail::Span;

// key - query is a multiple of `dilation` and lies in a band.
class DilatedRule final : public MaskRule {
 public:
  DilatedRule(Span band, Index dilation) : band_(band), dilation_(dilation) {}

  // Every distance between the corners' occurs in a block.
  Coverage coverage(const MaskBlock& block) const override {
    const Span queries = detail::queries_of(block), keys = detail::keys_of(block);
    const Span distances{keys.first - queries.last, keys.last - queries.first};
    const Index first = std::max(distances.first, band_.first), last = std::min(distances.last, band_.last);
    // The last multiple that is not after `last` must not be before `first`.
    if (first > last || floor_div(last, dilation_) * dilation_ < first) return Coverage::none;
    const bool whole =
        (dilation_ == 1 || distances.first == distances.last) && first == distances.first && last == distances.last;
    return whole ? Coverage::all : Coverage::some;
  }

  std::optional<Regrouping> regrouping() const override {
    if (dilation_ == 1) return {};
    return Regrouping{dilation_, -floor_div(-band_.first, dilation_), floor_div(band_.last, dilation_), {}, {}};
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      const Index query = block.q_start + block.row + r;
      std::uint8_t* row = visible + r * stride;
      const Index offset = query - block.key;
      detail::keep_only(row, block.keys, offset + band_.first, offset + band_.last + 1);
      if (dilation_ == 1) continue;
      Index phase = detail::modulo(-offset, dilation_);
      for (Index j = 0; j < block.keys; ++j) {
        row[j] &= phase == 0;
        phase = phase + 1 == dilation_ ? 0 : phase + 1;
      }
    }
  }

 private:
  Span band_;
  Index dilation_;
};

constexpr Index open_side = std::numeric_limits<Index>::max() / 4;

// Distances 0 to `stride` back, and every multiple of it farther back.
class StridedRule final : public MaskRule {
 public:
  explicit StridedRule(Index stride)
      : stride_(stride), near_({-stride, 0}, 1), far_({-open_side, -2 * stride}, stride) {}

  Coverage coverage(const MaskBlock& block) const override {
    const Coverage near = near_.coverage(block);
    if (near == Coverage::all) return near;
    const Coverage far = far_.coverage(block);
    return near == Coverage::none ? far : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index visible_stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      std::uint8_t* row = visible + r * visible_stride;
      Index back = block.q_start + block.row + r - block.key;
      Index phase = detail::modulo(back, stride_);
      for (Index j = 0; j < block.keys; ++j, --back) {
        row[j] &= back >= 0 && (phase == 0 || back <= stride_);
        phase = phase == 0 ? stride_ - 1 : phase - 1;
      }
    }
  }

  std::optional<Regrouping> regrouping() const override {
    auto far = far_.regrouping();
    if (far) far->apart = std::make_shared<DilatedRule>(near_);
    return far;
  }

 private:
  Index stride_;
  DilatedRule near_, far_;
};

// Query and key lie in blocks at most `each_side` apart.
class BlockBandRule final : public MaskRule {
 public:
  BlockBandRule(Index block, Index each_side) : block_(block), each_side_(each_side) {}

  Coverage coverage(const MaskBlock& block) const override {
    const Span queries = detail::blocks_of(detail::queries_of(block), block_);
    const Span keys = detail::blocks_of(detail::keys_of(block), block_);
    if (keys.first - queries.last > each_side_ || queries.first - keys.last > each_side_) return Coverage::none;
    const bool whole = keys.last - queries.first <= each_side_ && queries.last - keys.first <= each_side_;
    return whole ? Coverage::all : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      const Index own = floor_div(block.q_start + block.row + r, block_);
      const Index begin = (own - each_side_) * block_ - block.key, end = (own + each_side_ + 1) * block_ - block.key;
      detail::keep_only(visible + r * stride, block.keys, begin, end);
    }
  }

 private:
  Index block_, each_side_;
};

// Keys among the last `summary` of their block.
class SummaryRule final : public MaskRule {
 public:
  SummaryRule(Index block, Index summary) : block_(block), summary_(summary) {}

  Coverage coverage(const MaskBlock& block) const override {
    const Span keys = detail::keys_of(block);
    const Index seen = summaries_before(keys.last + 1) - summaries_before(keys.first);
    return seen == 0 ? Coverage::none : seen == block.keys ? Coverage::all : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    // Runs of other keys are hidden in every row.
    for (Index key = block.key, next = 0; key < block.key + block.keys; key = next) {
      const Index start = key / block_ * block_, first_summary = start + block_ - summary_;
      next = std::min(start + block_, block.key + block.keys);
      const Index count = std::min(first_summary, next) - key;
      for (Index r = 0; r < block.rows && count > 0; ++r)
        std::fill_n(visible + r * stride + (key - block.key), count, std::uint8_t{0});
    }
  }

 private:
  // Summary keys among the first `key` ones.
  Index summaries_before(Index key) const {
    return key / block_ * summary_ + std::max<Index>(0, key % block_ - (block_ - summary_));
  }
  Index block_, summary_;
};

void check_positive(const char* call, const char* name, Index value) {
  if (value < 1)
    throw ArgumentError(std::string(call) + ": " + name + " must be at least 1, got " + std::to_string(value));
  if (value > detail::longest_mask_length)
    throw ArgumentError(std::string(call) + ": " + name + " " + std::to_string(value) + " exceeds every length");
}

}  // namespace

Mask dilated_window(Index left, Index right, Index dilation) {
  check_positive("dilated_window", "dilation", dilation);
  if (left < -1 || right < -1)
    throw ArgumentError("dilated_window: left " + std::to_string(left) + " and right " + std::to_string(right) +
                        " must be at least 0, or -1 for an open side");
  const auto reach = [&](Index keys) { return keys < 0 || keys > open_side / dilation ? open_side : keys * dilation; };
  return Mask(std::make_shared<DilatedRule>(Span{-reach(left), reach(right)}, dilation));
}

Mask strided(Index stride) {
  check_positive("strided", "stride", stride);
  return Mask(std::make_shared<StridedRule>(stride));
}

Mask fixed_blocks(Index block, Index summary) {
  check_positive("fixed_blocks", "block", block);
  if (summary < 1 || summary > block)
    throw ArgumentError("fixed_blocks: summary must be 1 to the block's " + std::to_string(block) + ", got " +
                        std::to_string(summary));
  return causal() & (block_window(block, 0) | Mask(std::make_shared<SummaryRule>(block, summary)));
}

Mask block_window(Index block, Index each_side) {
  check_positive("block_window", "block", block);
  if (each_side < 0 || each_side > detail::longest_mask_length / block)
    throw ArgumentError("block_window: each_side must be 0 or a number of blocks, got " + std::to_string(each_side));
  return Mask(std::make_shared<BlockBandRule>(block, each_side));
}

}  // namespace regard
