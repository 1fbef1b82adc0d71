#include "regard/mask.h"

#include <algorithm>

#include "regard/error.h"

namespace regard {
namespace {

using Rule = std::shared_ptr<const MaskRule>;

// Answers of a rule for one block as a fresh tile of 1 and 0.
std::vector<std::uint8_t> tile_of(const MaskRule& rule, const MaskBlock& block) {
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(block.rows * block.keys), 1);
  rule.intersect(block, visible.data(), block.keys);
  return visible;
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
    a_->intersect(block, visible, stride);
    b_->intersect(block, visible, stride);
  }
  void check(const MaskShape& shape) const override {
    a_->check(shape);
    b_->check(shape);
  }

 private:
  Rule a_, b_;
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
    const auto a = tile_of(*a_, block), b = tile_of(*b_, block);
    for (Index r = 0; r < block.rows; ++r)
      for (Index j = 0; j < block.keys; ++j) {
        const auto at = static_cast<std::size_t>(r * block.keys + j);
        visible[r * stride + j] &= a[at] | b[at];
      }
  }
  void check(const MaskShape& shape) const override {
    a_->check(shape);
    b_->check(shape);
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
    const auto a = tile_of(*a_, block);
    for (Index r = 0; r < block.rows; ++r)
      for (Index j = 0; j < block.keys; ++j)
        visible[r * stride + j] &= 1 ^ a[static_cast<std::size_t>(r * block.keys + j)];
  }
  void check(const MaskShape& shape) const override { a_->check(shape); }

 private:
  Rule a_;
};

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
