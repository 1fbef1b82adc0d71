#include "nn/node.h"
#include "regard/error.h"
#include "regard/layers.h"

namespace regard {
namespace {

struct DropoutMask {
  double p;
  std::uint64_t seed;
};

// Applies the mask of (p, seed) to count elements: to = dropped(from), or
// to += dropped(from).
template <class T>
void drop_elements(const T* from, T* to, Index count, const DropoutMask& how, bool add) {
  const std::uint32_t threshold = dropout_threshold(how.p);
  const T factor = static_cast<T>(1.0 / (1.0 - how.p));
  parallel_ranges(count, detail::element_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; i += 4) {
      const auto block = static_cast<std::uint64_t>(i / 4);
      const auto words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, how.seed);
      for (Index k = i; k < std::min(end, i + 4); ++k) {
        const T value = words[static_cast<std::size_t>(k - i)] >= threshold ? from[k] * factor : T{0};
        to[k] = add ? to[k] + value : value;
      }
    }
  });
}

}  // namespace

template <class T>
Var<T> dropout(Tape<T>& tape, const Var<T>& x, double p) {
  if (!tape.training() || p == 0) return x;
  const DropoutMask how{p, tape.next_seed()};
  auto y = tape.node(Tensor<T>::uninitialised(x->value.shape()));
  drop_elements(x->value.data(), y->value.data(), x->value.count(), how, false);
  tape.record([x, y, how] {
    if (y->gradient.empty()) return;
    const auto slot = detail::gradient_slot(*x);
    drop_elements(y->gradient.data(), slot.data, y->gradient.count(), how, slot.add);
  });
  return y;
}

template <class T>
Var<T> add_residual(Tape<T>& tape, const Var<T>& x, const Var<T>& branch, double p) {
  if (x->value.shape() != branch->value.shape())
    throw ArgumentError("add_residual: " + x->value.text() + " and " + branch->value.text() + " differ");
  const DropoutMask how{tape.training() ? p : 0.0, tape.training() && p > 0 ? tape.next_seed() : 0};
  auto y = tape.node(x->value);
  drop_elements(branch->value.data(), y->value.data(), y->value.count(), how, true);
  tape.record([x, branch, y, how] {
    if (y->gradient.empty()) return;
    const auto slot = detail::gradient_slot(*branch);
    drop_elements(y->gradient.data(), slot.data, y->gradient.count(), how, slot.add);
    detail::pass_on(*x, std::move(y->gradient));
  });
  return y;
}

template Var<float> dropout(Tape<float>&, const Var<float>&, double);
template Var<double> dropout(Tape<double>&, const Var<double>&, double);
template Var<float> add_residual(Tape<float>&, const Var<float>&, const Var<float>&, double);
template Var<double> add_residual(Tape<double>&, const Var<double>&, const Var<double>&, double);

}  // namespace regard
