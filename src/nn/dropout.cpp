#include <memory>
#include <vector>

#include "nn/node.h"
#include "regard/error.h"
#include "regard/layers.h"

namespace regard {
namespace {

// Which elements stay, drawn once and kept for the way back. Sixteen random
// bits an element are enough to name p to 1.5e-5, and one Philox block then
// serves eight elements.
using Kept = std::shared_ptr<std::vector<std::uint8_t>>;

Kept draw(Index count, double p, std::uint64_t seed) {
  dropout_threshold(p);  // refuses p outside [0, 1)
  const auto threshold = static_cast<std::uint32_t>(p * 65536.0);
  auto kept = std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>((count + 7) / 8 * 8));
  parallel_ranges(count, detail::element_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; i += 8) {
      const auto block = static_cast<std::uint64_t>(i / 8);
      const auto words =
          philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, seed);
      std::uint8_t* to = kept->data() + i;
      for (std::size_t w = 0; w < 4; ++w) {
        to[2 * w] = (words[w] & 0xFFFFu) >= threshold;
        to[2 * w + 1] = (words[w] >> 16) >= threshold;
      }
    }
  });
  return kept;
}

// to = dropped(from), or to += dropped(from). Nothing drawn: everything stays.
template <class T>
void drop_elements(const Tensor<T>& from, const Kept& kept, double p, detail::GradientSlot<T> to) {
  const T factor = kept ? static_cast<T>(1.0 / (1.0 - p)) : T{1};
  const std::uint8_t* stays = kept ? kept->data() : nullptr;
  parallel_ranges(from.count(), detail::element_grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const T value = !stays || stays[i] ? from[i] * factor : T{0};
      to.data[i] = to.add ? to.data[i] + value : value;
    }
  });
}

}  // namespace

template <class T>
Var<T> dropout(Tape<T>& tape, const Var<T>& x, double p) {
  if (!tape.training() || p == 0) return x;
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
  const Kept kept = tape.training() && p > 0 ? draw(x->value.count(), p, tape.next_seed()) : nullptr;
  auto y = tape.node(x->value);
  drop_elements(branch->value, kept, p, {y->value.data(), true});
  tape.record([x, branch, y, kept, p] {
    if (y->gradient.empty()) return;
    drop_elements(y->gradient, kept, p, detail::gradient_slot(*branch));
    detail::pass_on(*x, std::move(y->gradient));
  });
  return y;
}

template Var<float> dropout(Tape<float>&, const Var<float>&, double);
template Var<double> dropout(Tape<double>&, const Var<double>&, double);
template Var<float> add_residual(Tape<float>&, const Var<float>&, const Var<float>&, double);
template Var<double> add_residual(Tape<double>&, const Var<double>&, const Var<double>&, double);

}  // namespace regard
