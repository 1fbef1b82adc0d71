#include "regard/mask.h"

#include <algorithm>
#include <deque>

#include "regard/error.h"

namespace regard {
namespace {

using Rule = std::shared_ptr<const MaskRule>;

// A copy of a tile in memory that the thread keeps: rules within rules take one
// each, in the order of a stack.
class TileCopy {
 public:
  TileCopy(const MaskBlock& block, const std::uint8_t* visible, Index stride) : rows_(block.rows), keys_(block.keys) {
    Stack& stack = Stack::of_this_thread();
    if (stack.depth == stack.tiles.size()) stack.tiles.emplace_back();
    auto& tile = stack.tiles[stack.depth++];
    if (static_cast<Index>(tile.size()) < rows_ * keys_) tile.resize(static_cast<std::size_t>(rows_ * keys_));
    data_ = tile.data();
    for (Index r = 0; r < rows_; ++r) std::copy_n(visible + r * stride, keys_, data_ + r * keys_);
  }
  ~TileCopy() { --Stack::of_this_thread().depth; }
  TileCopy(const TileCopy&) = delete;
  TileCopy& operator=(const TileCopy&) = delete;

  std::uint8_t* data() { return data_; }
  Index stride() const { return keys_; }
  // to = combine(to, copy), pair by pair.
  template <class F>
  void merge_into(std::uint8_t* to, Index stride, F combine) const {
    for (Index r = 0; r < rows_; ++r)
      for (Index j = 0; j < keys_; ++j) to[r * stride + j] = combine(to[r * stride + j], data_[r * keys_ + j]);
  }

 private:
  struct Stack {
    std::deque<std::vector<std::uint8_t>> tiles;  // a deque: tiles in use stay where they are
    std::size_t depth = 0;
    static Stack& of_this_thread() {
      thread_local Stack stack;
      return stack;
    }
  };
  Index rows_, keys_;
  std::uint8_t* data_;
};

void hide_all(const MaskBlock& block, std::uint8_t* visible, Index stride) {
  for (Index r = 0; r < block.rows; ++r) std::fill_n(visible + r * stride, block.keys, std::uint8_t{0});
}

// Asks a rule pair by pair only where its answer for the block is neither none nor all.
void intersect_if_needed(const MaskRule& rule, const MaskBlock& block, std::uint8_t* visible, Index stride) {
  const Coverage coverage = rule.coverage(block);
  if (coverage == Coverage::none) hide_all(block, visible, stride);
  if (coverage == Coverage::some) rule.intersect(block, visible, stride);
}

// Both, where `a` may be null for a rule that lets everything through.
Rule both(const Rule& a, const Rule& b);

// A regrouping of which a further rule lets only some pairs through.
Regrouping narrowed(Regrouping regular, const Rule& rule) {
  regular.also = both(regular.also, rule);
  if (regular.apart) regular.apart = both(regular.apart, rule);
  return regular;
}

class AndRule final : public MaskRule {
 public:
  AndRule(Rule a, Rule b) : a_(std::move(a)), b_(std::move(b)) {}
  Coverage coverage(const MaskBlock& block) const override {
    const Coverage a = a_->coverage(block);
    if (a == Coverage::none) return a;
    const Coverage b = b_->coverage(block);
    if (b == Coverage::none) return b;
    return a == Coverage::all && b == Coverage::all ? Coverage::all : Coverage::some;
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    intersect_if_needed(*a_, block, visible, stride);
    intersect_if_needed(*b_, block, visible, stride);
  }
  void check(const MaskShape& shape) const override {
    a_->check(shape);
    b_->check(shape);
  }
  std::optional<Regrouping> regrouping() const override {
    auto regular = a_->regrouping();
    const Rule& other = regular ? b_ : a_;
    if (!regular) regular = b_->regrouping();
    return regular ? narrowed(*regular, other) : regular;
  }

 private:
  Rule a_, b_;
};

class NotRule final : public MaskRule {
 public:
  explicit NotRule(Rule a) : a_(std::move(a)) {}
  Coverage coverage(const MaskBlock& block) const override {
    const Coverage a = a_->coverage(block);
    return a == Coverage::all ? Coverage::none : a == Coverage::none ? Coverage::all : a;
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    TileCopy seen(block, visible, stride);
    a_->intersect(block, seen.data(), seen.stride());
    seen.merge_into(visible, stride, [](std::uint8_t x, std::uint8_t y) -> std::uint8_t { return x ^ y; });
  }
  void check(const MaskShape& shape) const override { a_->check(shape); }

 private:
  Rule a_;
};

class OrRule final : public MaskRule {
 public:
  OrRule(Rule a, Rule b) : a_(std::move(a)), b_(std::move(b)) {}
  Coverage coverage(const MaskBlock& block) const override {
    const Coverage a = a_->coverage(block);
    if (a == Coverage::all) return a;
    const Coverage b = b_->coverage(block);
    if (b == Coverage::all) return b;
    return a == Coverage::none && b == Coverage::none ? Coverage::none : Coverage::some;
  }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    const Coverage a = a_->coverage(block), b = b_->coverage(block);
    if (a == Coverage::all || b == Coverage::all) return;
    if (a == Coverage::none) return intersect_if_needed(*b_, block, visible, stride);
    if (b == Coverage::none) return a_->intersect(block, visible, stride);
    TileCopy other(block, visible, stride);
    a_->intersect(block, other.data(), other.stride());
    b_->intersect(block, visible, stride);
    other.merge_into(visible, stride, [](std::uint8_t x, std::uint8_t y) -> std::uint8_t { return x | y; });
  }
  void check(const MaskShape& shape) const override {
    a_->check(shape);
    b_->check(shape);
  }
  // One side's regular pairs; what the other shows is taken out of them, so that
  // no pair counts twice.
  std::optional<Regrouping> regrouping() const override {
    auto regular = a_->regrouping();
    const Rule& other = regular ? b_ : a_;
    if (!regular) regular = b_->regrouping();
    if (!regular) return regular;
    regular->also = both(regular->also, std::make_shared<NotRule>(other));
    regular->apart = regular->apart ? std::make_shared<OrRule>(regular->apart, other) : other;
    return regular;
  }

 private:
  Rule a_, b_;
};

Rule both(const Rule& a, const Rule& b) { return a ? std::make_shared<AndRule>(a, b) : b; }

class EverythingRule final : public MaskRule {
 public:
  Coverage coverage(const MaskBlock&) const override { return Coverage::all; }
  void intersect(const MaskBlock&, std::uint8_t*, Index) const override {}
};

Rule rule_or_everything(const Rule& rule) { return rule ? rule : std::make_shared<EverythingRule>(); }

using PaddingList = std::vector<Rule>;
PaddingList joined(PaddingList a, const PaddingList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

Coverage Mask::coverage(const MaskBlock& block) const {
  Coverage result = rule_ ? rule_->coverage(block) : Coverage::all;
  for (const Rule& rule : padding_) {
    if (result == Coverage::none) return result;
    const Coverage one = rule->coverage(block);
    if (one != Coverage::all) result = one;
  }
  return result;
}

void Mask::fill(const MaskBlock& block, std::uint8_t* visible, Index stride) const {
  for (Index r = 0; r < block.rows; ++r) std::fill_n(visible + r * stride, block.keys, std::uint8_t{1});
  if (rule_) rule_->intersect(block, visible, stride);
  for (const Rule& rule : padding_) rule->intersect(block, visible, stride);
}

std::optional<Regrouping> Mask::regrouping() const {
  auto regular = rule_ ? rule_->regrouping() : std::nullopt;
  for (const Rule& rule : padding_)
    if (regular) regular = narrowed(*regular, rule);
  return regular;
}

void Mask::check(const MaskShape& shape) const {
  if (rule_) rule_->check(shape);
  for (const Rule& rule : padding_) rule->check(shape);
}

std::string Mask::picture(Index q_len, Index kv_len, Index batch, Index head) const {
  if (q_len < 0 || kv_len < 0 || batch < 0 || head < 0)
    throw ArgumentError("Mask::picture: q_len " + std::to_string(q_len) + ", kv_len " + std::to_string(kv_len) +
                        ", batch " + std::to_string(batch) + " and head " + std::to_string(head) +
                        " must not be negative");
  check({batch + 1, head + 1, q_len, kv_len, true});
  const MaskBlock block{batch, head, 0, q_len, 0, kv_len, kv_len - q_len};
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(q_len * kv_len));
  fill(block, visible.data(), kv_len);
  std::string text;
  for (Index r = 0; r < q_len; ++r) {
    for (Index j = 0; j < kv_len; ++j) text += visible[static_cast<std::size_t>(r * kv_len + j)] ? '1' : '0';
    text += '\n';
  }
  return text;
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask both;
  if (a.rule_ && b.rule_)
    both.rule_ = std::make_shared<AndRule>(a.rule_, b.rule_);
  else
    both.rule_ = a.rule_ ? a.rule_ : b.rule_;
  both.padding_ = joined(a.padding_, b.padding_);
  return both;
}

Mask operator|(const Mask& a, const Mask& b) {
  Mask either;
  if (a.rule_ && b.rule_) either.rule_ = std::make_shared<OrRule>(a.rule_, b.rule_);
  either.padding_ = joined(a.padding_, b.padding_);
  return either;
}

Mask operator!(const Mask& a) {
  Mask inverse;
  inverse.rule_ = std::make_shared<NotRule>(rule_or_everything(a.rule_));
  inverse.padding_ = a.padding_;
  return inverse;
}

Mask padding_mask(std::shared_ptr<const MaskRule> rule) {
  Mask mask;
  mask.padding_.push_back(std::move(rule));
  return mask;
}

Mask all_visible() { return {}; }

}  // namespace regard
