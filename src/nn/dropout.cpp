#include <algorithm>
#include <memory>

#include "nn/node.h"
#include "regard/error.h"
#include "regard/layers.h"

namespace regard {
namespace {

// Which elements stay, drawn once and kept for the way back. Sixteen random
// bits an element are enough to name p to 1.5e-5, and one Philox block then
// serves eight elements.
using Kept = std::shared_ptr<AlignedVector<std::uint8_t>>;

Kept draw(Index count, double p, std::uint64_t seed) {
  dropout_threshold(p);  // refuses p outside [0, 1)
  const auto threshold = static_cast<std::uint32_t>(p * 65536.0);
  auto kept = std::make_shared<AlignedVector<std::uint8_t>>(static_cast<std::size_t>((count + 7) / 8 * 8));
  constexpr Index chunk = 4096;  // elements; their words stay in the first-level cache
  parallel_ranges(count, detail::element_grain, [&](Index begin, Index end) {
    std::uint32_t words[chunk / 2];
    for (Index i = begin; i < end; i += chunk) {
      const Index blocks = (std::min(chunk, end - i) + 7) / 8;
      philox_words(seed, static_cast<std::uint64_t>(i / 8), {words, static_cast<std::size_t>(4 * blocks)});
      detail::compare_halves(kept->data() + i, words, threshold, 4 * blocks);
    }
  });
  return kept;
}

template <class T>
detail::Dropped<T> dropped_from(const Tensor<T>& x, const Kept& kept, double p, Index begin) {
  return {x.data() + begin, kept->data() + begin, static_cast<T>(1.0 / (1.0 - p))};
}

// to = dropped(from), or to += dropped(from).
template <class T>
void drop_elements(const Tensor<T>& from, const Kept& kept, double p, detail::GradientSlot<T> to) {
  parallel_ranges(from.count(), detail::element_grain, [&](Index begin, Index end) {
    const auto dropped = dropped_from(from, kept, p, begin);
    if (to.add)
      detail::add_dropped(to.data + begin, to.data + begin, dropped, end - begin);
    else
      detail::write_dropped(to.data + begin, dropped, end - begin);
  });
}

// x + dropped(branch). Nothing drawn: everything stays.
template <class T>
Tensor<T> sum_with_dropped(const Tensor<T>& x, const Tensor<T>& branch, const Kept& kept, double p) {
  auto y = Tensor<T>::uninitialised(x.shape());
  parallel_ranges(x.count(), detail::element_grain, [&](Index begin, Index end) {
    if (kept)
      detail::add_dropped(y.data() + begin, x.data() + begin, dropped_from(branch, kept, p, begin), end - begin);
    else
      detail::sum(y.data() + begin, x.data() + begin, branch.data() + begin, end - begin);
  });
  return y;
}

}  // namespace

template <class T>
Var<T> dropout(Tape<T>& tape, const Var<T>& x, double p) {
  if (!tape.dropping() || p == 0) return x;
  const Kept kept = draw(x->value.count(), p, tape.next_seed());
  auto y = tape.node(Tensor<T>::uninitialised(x->value.shape()));
  drop_elements(x->value, kept, p, {y->value.data(), false});
  tape.record([x, y, kept, p] {
    if (!y->gradient.empty()) drop_elements(y->gradient, kept, p, detail::gradient_slot(*x));
  });
  return y;
}

template <class T>
Var<T> add_residual(Tape<T>& tape, const Var<T>& x, const Var<T>& branch, double p) {
  if (x->value.shape() != branch->value.shape())
    throw ArgumentError("add_residual: " + x->value.text() + " and " + branch->value.text() + " differ");
  const Kept kept = tape.dropping() && p > 0 ? draw(x->value.count(), p, tape.next_seed()) : nullptr;
  auto y = tape.node(sum_with_dropped(x->value, branch->value, kept, p));
  tape.record([x, branch, y, kept, p] {
    if (y->gradient.empty()) return;
    if (kept)
      drop_elements(y->gradient, kept, p, detail::gradient_slot(*branch));
    else
      detail::pass_on(*branch, Tensor<T>(y->gradient));
    detail::pass_on(*x, std::move(y->gradient));
  });
  return y;
}

template Var<float> dropout(Tape<float>&, const Var<float>&, double);
template Var<double> dropout(Tape<double>&, const Var<double>&, double);
template Var<float> add_residual(Tape<float>&, const Var<float>&, const Var<float>&, double);
template Var<double> add_residual(Tape<double>&, const Var<double>&, const Var<double>&, double);

}  // namespace regard
