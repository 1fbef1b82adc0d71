// Per-target include: dropout masks. Philox 4x32-10 (Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", 2011) on many counters side by side.
#if defined(REGARD_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_DROPOUT_INL_H_
#undef REGARD_DROPOUT_INL_H_
#else
#define REGARD_DROPOUT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/storage-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

using D64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<D64>;
using D32 = hn::Repartition<std::uint32_t, D64>;
using V32 = hn::Vec<D32>;

constexpr int kCounters = HWY_LANES(std::uint64_t);  // of one state
constexpr int kStates = 2;                           // independent chains hide each other's latency
constexpr Index kRun = 4 * kCounters * kStates;      // words of one run

// A word of each counter in the low half of every lane; what the high halves
// hold never reaches a result.
struct PhiloxState {
  V64 c0, c1, c2, c3;
};

HWY_INLINE V64 Product(V64 word, std::uint32_t factor) {
  const D32 d;
  return hn::MulEven(hn::BitCast(d, word), hn::Set(d, factor));
}

HWY_INLINE void PhiloxRound(PhiloxState& s, V64 key0, V64 key1) {
  const V64 p0 = Product(s.c0, 0xD2511F53u), p1 = Product(s.c2, 0xCD9E8D57u);
  s = {hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(s.c1, key0)), p1, hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(s.c3, key1)),
       p0};
}

// Low halves of `low` and `high` as neighbours.
HWY_INLINE V64 Paired(V64 low, V64 high) {
  const D64 d;
  const D32 half;
  return hn::BitCast(d, hn::OddEven(hn::BitCast(half, hn::ShiftLeft<32>(high)), hn::BitCast(half, low)));
}

// Lane l counts l / 2, odd lanes from the middle on: interleaving pairs of words
// then leaves every counter's four words in the order of the counters.
HWY_INLINE V64 LaneCounters() {
  const D64 d;
  const V64 lane = hn::Iota(d, 0), odd = hn::And(lane, hn::Set(d, 1));
  return hn::Add(hn::ShiftRight<1>(lane), hn::IfThenElseZero(hn::Eq(odd, hn::Set(d, 1)), hn::Set(d, kCounters / 2)));
}

// use(word vector, words from the first on) for the kRun words of the counters
// from `block` on, in order.
template <class Use>
HWY_INLINE void ForPhiloxRun(const Kernels::DropoutSpot& spot, std::uint32_t row, std::uint32_t block, Use use) {
  const D64 d;
  const D32 half;
  PhiloxState states[kStates];
  for (int n = 0; n < kStates; ++n)
    states[n] = {hn::Add(LaneCounters(), hn::Set(d, block + static_cast<std::uint32_t>(n * kCounters))),
                 hn::Set(d, row), hn::Set(d, spot.head), hn::Set(d, spot.batch)};
  std::uint32_t key0 = static_cast<std::uint32_t>(spot.seed), key1 = static_cast<std::uint32_t>(spot.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const V64 wide0 = hn::Set(d, key0), wide1 = hn::Set(d, key1);
    for (int n = 0; n < kStates; ++n) PhiloxRound(states[n], wide0, wide1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int n = 0; n < kStates; ++n) {
    const V64 first = Paired(states[n].c0, states[n].c1), second = Paired(states[n].c2, states[n].c3);
    use(hn::BitCast(half, hn::InterleaveLower(d, first, second)), 4 * kCounters * n);
    use(hn::BitCast(half, hn::InterleaveUpper(d, first, second)), 4 * kCounters * n + 2 * kCounters);
  }
}

// The factors of a run, as vectors: 0 or spot.factor.
template <class Use>
HWY_INLINE void ForFactorRun(const Kernels::DropoutSpot& spot, std::uint32_t row, std::uint32_t block, Use use) {
  const D d;
  const D32 half;
  const V factor = hn::Set(d, spot.factor);
  const V32 threshold = hn::Set(half, spot.threshold);
  ForPhiloxRun(spot, row, block, [&](V32 words, Index at) HWY_ATTR {
    const auto kept = hn::Eq(hn::Max(words, threshold), words);
    use(hn::IfThenElseZero(hn::RebindMask(d, kept), factor), at);
  });
}

// combine(factors, place) for every vector of a row's factors where whole runs
// fit and start at a counter, combine_one(factor, place) for the rest.
template <class Combine, class CombineOne>
HWY_INLINE void ForRowFactors(const Tile& tile, const Kernels::DropoutSpot& spot, Index i, Combine combine,
                              CombineOne combine_one) {
  const D d;
  float* to = tile.data + i * tile.stride;
  const std::uint32_t row = spot.row + static_cast<std::uint32_t>(i);
  for (Index j = 0; j < tile.keys;) {
    const Index key = spot.key + j, within = key % 4, count = std::min(kRun - within, tile.keys - j);
    const auto block = static_cast<std::uint32_t>(key / 4);
    if (count == kRun) {
      ForFactorRun(spot, row, block, [&](V factors, Index at) HWY_ATTR { combine(factors, to + j + at); });
    } else {
      HWY_ALIGN_MAX float factors[kRun];
      ForFactorRun(spot, row, block, [&](V some, Index at) HWY_ATTR { hn::Store(some, d, factors + at); });
      for (Index n = 0; n < count; ++n) combine_one(factors[within + n], to + j + n);
    }
    j += count;
  }
}

void RunDropoutFactors(const Tile& keep, const Kernels::DropoutSpot& spot) {
  const D d;
  for (Index i = 0; i < keep.rows; ++i)
    ForRowFactors(
        keep, spot, i, [&](V factors, float* to) HWY_ATTR { hn::StoreU(factors, d, to); },
        [](float factor, float* to) { *to = factor; });
}

void RunDropout(const Tile& weights, const Kernels::DropoutSpot& spot) {
  const D d;
  for (Index i = 0; i < weights.rows; ++i)
    ForRowFactors(
        weights, spot, i, [&](V factors, float* to) HWY_ATTR { hn::StoreU(hn::Mul(factors, hn::LoadU(d, to)), d, to); },
        [](float factor, float* to) { *to *= factor; });
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
