// The rules that regard/mask.h names: bands of positions, ids, boolean tensors.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "attention/mask_blocks.h"
#include "regard/error.h"
#include "regard/mask.h"
#include "regard/tensor.h"

namespace regard {
namespace {

// query - left <= key <= query + right; -1 leaves a side open.
class BandRule final : public MaskRule {
 public:
  BandRule(Index left, Index right) : left_(left), right_(right) {}

  Coverage coverage(const MaskBlock& block) const override {
    const Index first_query = block.q_start + block.row, last_query = first_query + block.rows - 1;
    const Index first_key = block.key, last_key = block.key + block.keys - 1;
    if (left_ >= 0 && last_key < first_query - left_) return Coverage::none;
    if (right_ >= 0 && first_key > last_query + right_) return Coverage::none;
    const bool whole_left = left_ < 0 || first_key >= last_query - left_;
    const bool whole_right = right_ < 0 || last_key <= first_query + right_;
    return whole_left && whole_right ? Coverage::all : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      const Index query = block.q_start + block.row + r;
      const Index begin = left_ < 0 ? 0 : query - left_ - block.key;
      const Index end = right_ < 0 ? block.keys : query + right_ + 1 - block.key;
      detail::keep_only(visible + r * stride, block.keys, begin, end);
    }
  }

 private:
  Index left_, right_;
};

// Token or document ids of one side, [batch or 1, length].
class Ids {
 public:
  explicit Ids(View<const std::int64_t, 2> ids) : ids_(packed(ids)) {}
  const std::int64_t* row(Index batch) const { return ids_.data() + (ids_.size(0) == 1 ? 0 : batch * ids_.size(1)); }
  void check(const char* rule, const char* side, const MaskShape& shape, Index length) const {
    if (!shape.fits(ids_.size(0), shape.batch) || ids_.size(1) != length)
      throw ArgumentError(std::string(rule) + ": " + side + " ids have shape " + ids_.text() + " but the call has " +
                          shape_text(Shape{shape.batch, length}));
  }

 private:
  Tensor<std::int64_t> ids_;
};

Coverage share(Index count, Index of) {
  return count == 0 ? Coverage::none : count == of ? Coverage::all : Coverage::some;
}

class KeyPaddingRule final : public MaskRule {
 public:
  KeyPaddingRule(View<const std::int64_t, 2> ids, std::int64_t pad) : ids_(ids), pad_(pad) {}
  Coverage coverage(const MaskBlock& block) const override {
    const std::int64_t* keys = ids_.row(block.batch) + block.key;
    return share(block.keys - std::count(keys, keys + block.keys, pad_), block.keys);
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const std::int64_t* keys = ids_.row(block.batch) + block.key;
    for (Index r = 0; r < block.rows; ++r)
      for (Index j = 0; j < block.keys; ++j) visible[r * stride + j] &= keys[j] != pad_;
  }
  void check(const MaskShape& shape) const override { ids_.check("padding", "key", shape, shape.kv_len); }

 private:
  Ids ids_;
  std::int64_t pad_;
};

class QueryPaddingRule final : public MaskRule {
 public:
  QueryPaddingRule(View<const std::int64_t, 2> ids, std::int64_t pad) : ids_(ids), pad_(pad) {}
  Coverage coverage(const MaskBlock& block) const override {
    const std::int64_t* rows = ids_.row(block.batch) + block.row;
    return share(block.rows - std::count(rows, rows + block.rows, pad_), block.rows);
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const std::int64_t* rows = ids_.row(block.batch) + block.row;
    for (Index r = 0; r < block.rows; ++r)
      if (rows[r] == pad_) std::fill_n(visible + r * stride, block.keys, std::uint8_t{0});
  }
  void check(const MaskShape& shape) const override { ids_.check("padding", "query", shape, shape.q_len); }

 private:
  Ids ids_;
  std::int64_t pad_;
};

class DocumentRule final : public MaskRule {
 public:
  DocumentRule(View<const std::int64_t, 2> q_ids, View<const std::int64_t, 2> k_ids) : queries_(q_ids), keys_(k_ids) {}
  Coverage coverage(const MaskBlock& block) const override {
    const std::int64_t* rows = queries_.row(block.batch) + block.row;
    const std::int64_t* keys = keys_.row(block.batch) + block.key;
    const auto [first_row, last_row] = std::minmax_element(rows, rows + block.rows);
    const auto [first_key, last_key] = std::minmax_element(keys, keys + block.keys);
    if (*last_row < *first_key || *last_key < *first_row) return Coverage::none;
    return *first_row == *last_key && *last_row == *first_key ? Coverage::all : Coverage::some;
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const std::int64_t* rows = queries_.row(block.batch) + block.row;
    const std::int64_t* keys = keys_.row(block.batch) + block.key;
    for (Index r = 0; r < block.rows; ++r)
      for (Index j = 0; j < block.keys; ++j) visible[r * stride + j] &= rows[r] == keys[j];
  }
  void check(const MaskShape& shape) const override {
    queries_.check("documents", "query", shape, shape.q_len);
    keys_.check("documents", "key", shape, shape.kv_len);
  }

 private:
  Ids queries_, keys_;
};

struct Seen {
  bool any = false, whole = true;
};

void look_at(const std::uint8_t* row, Index count, Index step, Seen& seen) {
  for (Index j = 0; j < count; ++j) {
    seen.any |= row[j * step] != 0;
    seen.whole &= row[j * step] != 0;
  }
}

// The same for neighbours, eight at a time: the high bit of every byte of
// `nonzero` says whether that byte is not 0.
void look_at_bytes(const std::uint8_t* row, Index count, Seen& seen) {
  constexpr std::uint64_t high = 0x8080808080808080u;
  std::uint64_t any = 0, all = high;
  Index j = 0;
  for (; j + 8 <= count; j += 8) {
    std::uint64_t bytes;
    std::memcpy(&bytes, row + j, 8);
    const std::uint64_t nonzero = ((bytes & ~high) + ~high) | bytes;
    any |= nonzero;
    all &= nonzero;
  }
  seen.any |= (any & high) != 0;
  seen.whole &= (all & high) == high;
  look_at(row + j, count - j, 1, seen);
}

// A boolean tensor brought to four dimensions; axes of size 1 get stride 0.
class BooleanRule final : public MaskRule {
 public:
  explicit BooleanRule(View<const std::uint8_t, 4> allowed, std::string shape)
      : allowed_(allowed), shape_(std::move(shape)) {}

  Coverage coverage(const MaskBlock& block) const override {
    Seen seen;
    for (Index r = 0; r < block.rows; ++r) {
      stride(3) == 1 ? look_at_bytes(start(block, r), block.keys, seen)
                     : look_at(start(block, r), block.keys, stride(3), seen);
      if (seen.any && !seen.whole) return Coverage::some;
    }
    return seen.any ? Coverage::all : Coverage::none;
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index visible_stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      const std::uint8_t* row = start(block, r);
      const Index step = stride(3);
      std::uint8_t* to = visible + r * visible_stride;
      for (Index j = 0; j < block.keys; ++j) to[j] &= row[j * step] != 0;
    }
  }
  void check(const MaskShape& shape) const override {
    const std::array<Index, 4> wanted{shape.batch, shape.q_heads, shape.q_len, shape.kv_len};
    for (int axis = 0; axis < 4; ++axis) {
      const Index size = allowed_.size(axis), one = wanted[static_cast<std::size_t>(axis)];
      if (axis < 2 ? !shape.fits(size, one) : size != 1 && size != one)
        throw ArgumentError("boolean mask: shape " + shape_ +
                            " does not broadcast to [batch,q_heads,q_len,kv_len] = " + shape_text(wanted.data(), 4));
    }
  }

 private:
  Index stride(int axis) const { return allowed_.size(axis) == 1 ? 0 : allowed_.stride(axis); }
  const std::uint8_t* start(const MaskBlock& block, Index r) const {
    return allowed_.data() + block.batch * stride(0) + block.head * stride(1) + (block.row + r) * stride(2) +
           block.key * stride(3);
  }

  View<const std::uint8_t, 4> allowed_;
  std::string shape_;
};

}  // namespace

Mask causal() { return window(-1, 0); }

Mask window(Index left, Index right) {
  if (left < -1 || right < -1)
    throw ArgumentError("window: left " + std::to_string(left) + " and right " + std::to_string(right) +
                        " must be at least 0, or -1 for an open side");
  // Wider than any sequence: open, so that position + width can't overflow.
  constexpr Index widest = Index{1} << 61;
  return Mask(std::make_shared<BandRule>(left < widest ? left : -1, right < widest ? right : -1));
}

Mask sliding_window(Index keys) {
  if (keys < 1) throw ArgumentError("sliding_window: keys must be at least 1, got " + std::to_string(keys));
  return window(keys - 1, 0);
}

Mask padding(View<const std::int64_t, 2> ids, std::int64_t pad) {
  return padding_mask(std::make_shared<KeyPaddingRule>(ids, pad));
}

Mask padding(View<const std::int64_t, 2> q_ids, View<const std::int64_t, 2> k_ids, std::int64_t pad) {
  return padding_mask(std::make_shared<QueryPaddingRule>(q_ids, pad)) & padding(k_ids, pad);
}

Mask documents(View<const std::int64_t, 2> q_ids, View<const std::int64_t, 2> k_ids) {
  return Mask(std::make_shared<DocumentRule>(q_ids, k_ids));
}

Mask documents(View<const std::int64_t, 2> ids) { return documents(ids, ids); }

Mask boolean(View<const std::uint8_t, 4> allowed) {
  return Mask(std::make_shared<BooleanRule>(allowed, allowed.text()));
}

Mask boolean(View<const std::uint8_t, 3> allowed) {
  const View<const std::uint8_t, 4> wide(allowed.data(), {allowed.size(0), 1, allowed.size(1), allowed.size(2)},
                                         {allowed.stride(0), 0, allowed.stride(1), allowed.stride(2)});
  return Mask(std::make_shared<BooleanRule>(wide, allowed.text()));
}

Mask boolean(View<const std::uint8_t, 2> allowed) {
  const View<const std::uint8_t, 4> wide(allowed.data(), {1, 1, allowed.size(0), allowed.size(1)},
                                         {0, 0, allowed.stride(0), allowed.stride(1)});
  return Mask(std::make_shared<BooleanRule>(wide, allowed.text()));
}

}  // namespace regard
