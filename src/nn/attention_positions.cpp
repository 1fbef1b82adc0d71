// Positions that act inside self-attention.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "nn/attend_heads.h"
#include "regard/positions.h"

namespace regard {

template <class T>
RotaryPositions<T>::RotaryPositions(RopeFrequencies given, RopePairing given_pairing)
    : frequencies(std::move(given)), pairing(given_pairing) {}

template <class T>
void RotaryPositions<T>::turn(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv,
                              Index first) {
  const auto table = std::make_shared<RopeTable<T>>(rope_table<T>(frequencies, first, q->value.size(1)));
  const Index dim = config.model_dim / config.heads;
  const auto heads_in = [dim](Tensor<T>& x, Index heads) {
    return detail::heads_of(x.data(), detail::shape3(x), 0, heads, dim);
  };
  const auto turned = {std::pair{q, config.heads}, std::pair{kv, config.kv_heads}};
  for (const auto& [x, heads] : turned) {
    const auto rows = heads_in(x->value, heads);
    rotate(rows, rows, *table, pairing);
    tape.record([x = x, heads = heads, heads_in, table, pairs = pairing] {
      if (x->gradient.empty()) return;
      const auto slopes = heads_in(x->gradient, heads);
      rotate_back(slopes, slopes, *table, pairs);
    });
  }
}

namespace {

// score - slope * |query - key|, with the slope of the key's side.
class TwoSidedAlibi {
 public:
  // `slopes`: two a head. The steepest and the gentlest go together, the steeper
  // for keys before the query in even heads and for those after it in odd ones.
  explicit TwoSidedAlibi(std::vector<float> slopes) {
    std::sort(slopes.rbegin(), slopes.rend());
    for (std::size_t head = 0; 2 * head < slopes.size(); ++head) {
      const float steep = slopes[head], gentle = slopes[slopes.size() - 1 - head];
      before_.push_back(head % 2 == 0 ? steep : gentle);
      after_.push_back(head % 2 == 0 ? gentle : steep);
    }
  }
  static constexpr const char* name = "two-sided alibi";
  template <class S>
  S operator()(S score, const Position& at) const {
    const auto head = static_cast<std::size_t>(at.head());
    const std::int32_t distance = at.distance();
    return score - static_cast<S>(distance < 0 ? after_[head] : before_[head]) * static_cast<S>(std::abs(distance));
  }
  template <class S>
  S derivative(S, const Position&) const {
    return 1;
  }

 private:
  std::vector<float> before_, after_;  // [heads]
};

}  // namespace

template <class T>
AlibiPositions<T>::AlibiPositions(Index heads) : modifiers_(alibi(alibi_slopes(heads))) {}

template <class T>
AlibiPositions<T> AlibiPositions<T>::two_sided(Index heads) {
  return AlibiPositions(ScoreModifiers(TwoSidedAlibi(alibi_slopes(2 * heads))));
}

template <class T>
BucketPositions<T>::BucketPositions(const std::string& name, Index heads, const RelativeBuckets& given_rule,
                                    Random& random)
    : rule(given_rule), table(name, {given_rule.buckets, heads}, false) {
  for (T& value : table.value.values()) value = static_cast<T>(random.normal());
}

template <class T>
LearnedScore<T> BucketPositions<T>::score() {
  return {relative_bias(std::as_const(table.value).template view<2>(), rule), {&table}};
}

template <class T>
void BucketPositions<T>::collect(Parameters<T>& list) {
  list.push_back(&table);
}

#define REGARD_INSTANTIATE(T)        \
  template class RotaryPositions<T>; \
  template class AlibiPositions<T>;  \
  template class BucketPositions<T>;
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard
