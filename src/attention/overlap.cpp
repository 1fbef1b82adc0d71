#include "attention/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

namespace regard::detail {
namespace {

// One axis: `stride` bytes times any of 0 ... last.
struct Term {
  Index stride, last;
};

// The first bytes of the first and the last element.
struct Span {
  const char *first, *last;
};

Span span_of(const Window& x) {
  Span span{x.start, x.start};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const Index reach = x.strides[axis] * (x.sizes[axis] - 1) * x.bytes;
    (reach < 0 ? span.first : span.last) += reach;
  }
  return span;
}

// Axes of one stride become one: the sums they reach are the same.
void add_term(std::vector<Term>& terms, const Term& term) {
  if (term.last == 0 || term.stride == 0) return;
  const auto same = std::find_if(terms.begin(), terms.end(), [&](const Term& t) { return t.stride == term.stride; });
  if (same == terms.end())
    terms.push_back(term);
  else
    same->last += term.last;
}

// Elements that can only be the same or apart, never overlap in part.
bool in_step(const Window& a, const Window& b) { return a.bytes == b.bytes && (a.start - b.start) % a.bytes == 0; }

// Axes of both views, largest stride first; where elements may overlap in part,
// their bytes are one axis more.
std::vector<Term> terms_of(const Window& a, const Window& b) {
  std::vector<Term> terms;
  for (const Window* x : {&a, &b}) {
    for (std::size_t axis = 0; axis < 4; ++axis)
      add_term(terms, {std::abs(x->strides[axis]) * x->bytes, x->sizes[axis] - 1});
    if (!in_step(a, b)) add_term(terms, {1, x->bytes - 1});
  }
  std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
  return terms;
}

// Whether the terms from `at` on can add up to `sum`. What all smaller terms
// reach together bounds how often the largest is taken, to one to three choices
// in regular layouts.
class Search {
 public:
  explicit Search(std::vector<Term> terms) : terms_(std::move(terms)), reach_(terms_.size() + 1), divisor_(reach_) {
    for (std::size_t i = terms_.size(); i-- > 0;) {
      reach_[i] = reach_[i + 1] + terms_[i].stride * terms_[i].last;
      divisor_[i] = std::gcd(divisor_[i + 1], terms_[i].stride);
    }
  }
  bool reaches(Index sum, std::size_t at = 0) {
    if (sum < 0 || sum > reach_[at]) return false;
    if (sum == 0 || --steps_left_ < 0) return true;
    if (sum % divisor_[at] != 0) return false;
    const auto [stride, last] = terms_[at];
    const Index missing = sum - reach_[at + 1];
    const Index least = missing > 0 ? (missing + stride - 1) / stride : 0;
    for (Index times = least; times <= std::min(last, sum / stride); ++times)
      if (reaches(sum - times * stride, at + 1)) return true;
    return false;
  }

 private:
  std::vector<Term> terms_;
  std::vector<Index> reach_, divisor_;
  int steps_left_ = 100'000;
};

}  // namespace

// An element of a and one of b are the same where
//   a.data + sum of a's steps = b.data + sum of b's steps.
// Counting a's steps up from its first element and b's down from its last one
// turns this into: do steps of both, all upwards, add up to the distance between
// the two?
bool share_memory(const Window& a, const Window& b) {
  if (a.empty() || b.empty()) return false;
  const Span of_a = span_of(a), of_b = span_of(b);
  const auto is_before = std::less_equal<const char*>();
  const Index rest_of_a = a.bytes - 1, rest_of_b = b.bytes - 1;
  if (!is_before(of_a.first, of_b.last + rest_of_b) || !is_before(of_b.first, of_a.last + rest_of_a)) return false;
  const Index distance = of_b.last - of_a.first + (in_step(a, b) ? 0 : rest_of_b);
  return Search(terms_of(a, b)).reaches(distance);
}

}  // namespace regard::detail
