#include "attention/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

namespace regard::detail {
namespace {

// One axis: `stride` times any of 0 ... last.
struct Term {
  Index stride, last;
};

// The first and the last element's place, counted from `data`.
struct Span {
  Index first = 0, last = 0;
};

Span span_of(const View<float, 4>& x) {
  Span span;
  for (int axis = 0; axis < 4; ++axis) {
    const Index reach = x.stride(axis) * (x.size(axis) - 1);
    (reach < 0 ? span.first : span.last) += reach;
  }
  return span;
}

// Axes of both views, largest stride first. Axes of one stride become one: the
// sums they reach are the same.
std::vector<Term> terms_of(const View<float, 4>& a, const View<float, 4>& b) {
  std::vector<Term> terms;
  for (const View<float, 4>* x : {&a, &b})
    for (int axis = 0; axis < 4; ++axis) {
      const Term term{std::abs(x->stride(axis)), x->size(axis) - 1};
      if (term.last == 0) continue;
      const auto same =
          std::find_if(terms.begin(), terms.end(), [&](const Term& t) { return t.stride == term.stride; });
      if (same == terms.end())
        terms.push_back(term);
      else
        same->last += term.last;
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
bool share_memory(const View<float, 4>& a, const View<float, 4>& b) {
  if (a.empty() || b.empty()) return false;
  const Span spans[] = {span_of(a), span_of(b)};
  const auto is_before = std::less_equal<const float*>();
  const float *a_first = a.data() + spans[0].first, *b_last = b.data() + spans[1].last;
  if (!is_before(a_first, b_last) || !is_before(b.data() + spans[1].first, a.data() + spans[0].last)) return false;
  return Search(terms_of(a, b)).reaches(b_last - a_first);
}

}  // namespace regard::detail
