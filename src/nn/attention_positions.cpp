// Positions that act inside self-attention.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "nn/attend_heads.h"
#include "nn/distance_scores.h"
#include "regard/positions.h"

namespace regard {

template <class T>
RotaryPositions<T>::RotaryPositions(RopeFrequencies given, RopePairing given_pairing)
    : frequencies(std::move(given)), pairing(given_pairing) {}

template <class T>
LearnedScore<T> RotaryPositions<T>::prepare(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q,
                                            const Var<T>& kv, Index first) {
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
  return {};
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
LearnedScore<T> BucketPositions<T>::prepare(Tape<T>&, const MultiHeadConfig&, const Var<T>&, const Var<T>&, Index) {
  return {relative_bias(std::as_const(table.value).template view<2>(), rule), {&table}};
}

template <class T>
void BucketPositions<T>::collect(Parameters<T>& list) {
  list.push_back(&table);
}

template <class T>
ShawPositions<T>::ShawPositions(const std::string& name, const MultiHeadConfig& sizes, Index given_clip, Index ahead,
                                Random& random)
    : clip(given_clip) {
  if (clip < 0 || ahead < 0)
    throw ArgumentError(name + ": distances from -" + std::to_string(clip) + " to " + std::to_string(ahead) +
                        " leave out the token itself");
  vectors = Parameter<T>(name, {sizes.heads, clip + 1 + ahead, sizes.model_dim / sizes.heads}, true);
  for (T& value : vectors.value.values()) value = static_cast<T>(0.7 * random.normal());
}

namespace {

// The queries of one call, against the vectors of distances.
template <class T>
class ShawScores {
 public:
  ShawScores(ShawPositions<T>& positions, Var<T> q, Index first)
      : positions_(positions), q_(std::move(q)), first_(first) {
    const Shape& table = positions.vectors.value.shape();
    heads_ = table[0], rows_ = table[1], dim_ = table[2];
    seq_ = q_->value.size(1);
    scale_ = static_cast<T>(1 / std::sqrt(static_cast<double>(dim_)));
  }

  Tensor<T> run() const {
    const Index batch = q_->value.size(0), kv_len = first_ + seq_;
    auto scores = Tensor<T>::uninitialised({batch, heads_, seq_, kv_len});
    parallel_items(batch * heads_, [&](Index head, int) {
      const auto x = inputs(head / heads_, head % heads_);
      const auto dots = detail::against_vectors<T>(x.tokens, x.vectors, {seq_, rows_}, dim_);
      T* to = scores.data() + head * seq_ * kv_len;
      for (Index i = 0; i < seq_; ++i)
        for (Index j = 0; j < kv_len; ++j) *to++ = scale_ * dots[i * rows_ + row_of(i, j)];
    });
    return scores;
  }

  // Vectors serve all batch entries: heads in turn, entries one after the other.
  void run_backward(const Tensor<T>& dscores) const {
    const Index batch = q_->value.size(0), kv_len = first_ + seq_;
    Tensor<T> dq(q_->value.shape());
    parallel_items(heads_, [&](Index h, int) {
      for (Index b = 0; b < batch; ++b) {
        Tensor<T> ddots({seq_, rows_});
        const T* from = dscores.data() + (b * heads_ + h) * seq_ * kv_len;
        for (Index i = 0; i < seq_; ++i)
          for (Index j = 0; j < kv_len; ++j) ddots[i * rows_ + row_of(i, j)] += scale_ * *from++;
        detail::add_from_scores<T>(ddots, inputs(b, h), part(dq.data(), positions_.vectors.gradient.data(), b, h),
                                   dim_);
      }
    });
    detail::pass_on(*q_, std::move(dq));
  }

 private:
  Index row_of(Index i, Index j) const { return std::clamp<Index>(j - (first_ + i) + positions_.clip, 0, rows_ - 1); }
  // Rows of entry b and head h in the queries and the vectors, or in their gradients.
  template <class U>
  detail::TokensAndVectors<U> part(U* q, U* vectors, Index b, Index h) const {
    return {{q + (b * seq_ * heads_ + h) * dim_, heads_ * dim_}, {vectors + h * rows_ * dim_, dim_}};
  }
  detail::TokensAndVectors<const T> inputs(Index b, Index h) const {
    return part(std::as_const(q_->value).data(), std::as_const(positions_.vectors.value).data(), b, h);
  }

  ShawPositions<T>& positions_;
  Var<T> q_;
  Index first_, heads_, rows_, dim_, seq_;
  T scale_;
};

}  // namespace

template <class T>
LearnedScore<T> ShawPositions<T>::prepare(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>&,
                                          Index first) {
  if (vectors.value.size(0) != config.heads || vectors.value.size(2) != config.model_dim / config.heads)
    throw ArgumentError(vectors.name + " " + vectors.value.text() + " but the layer has " +
                        std::to_string(config.heads) + " heads of " + std::to_string(config.model_dim / config.heads));
  const ShawScores<T> scores(*this, q, first);
  auto bias = std::make_shared<PairScores<T>>();
  bias->value = scores.run();
  tape.record([scores, bias] {
    if (!bias->gradient.empty()) scores.run_backward(bias->gradient);
  });
  return {.bias = std::move(bias)};
}

template <class T>
void ShawPositions<T>::collect(Parameters<T>& list) {
  list.push_back(&vectors);
}

#define REGARD_INSTANTIATE(T)        \
  template class RotaryPositions<T>; \
  template class AlibiPositions<T>;  \
  template class BucketPositions<T>; \
  template class ShawPositions<T>;
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard
