// Rotary positions: tables of cosines and sines, and the rotation itself.
#include "regard/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "attention/problem.h"
#include "core/instruction_sets.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace {

// Pairs turned by one piece of work: enough to be worth a thread's while.
constexpr Index grain = 16384;

// Where the two elements of pair k lie in a head, in elements.
struct PairLayout {
  Index step;     // from pair to pair
  Index partner;  // from a pair's first element to its second
};

PairLayout layout_of(RopePairing pairing, Index pairs) {
  return pairing == RopePairing::half_split ? PairLayout{1, pairs} : PairLayout{2, 1};
}

// One head of one position. Strides are constants where a caller knows them, so
// that the loop becomes vectors.
template <class T>
REGARD_INLINE void turn_pairs(T* out, const T* x, const T* cosines, const T* sines, Index pairs, Index partner,
                              Index step, T sign) {
#pragma GCC ivdep
  for (Index k = 0; k < pairs; ++k) {
    const T c = cosines[k], s = sign * sines[k], u = x[k * step], v = x[k * step + partner];
    out[k * step] = c * u - s * v;
    out[k * step + partner] = s * u + c * v;
  }
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void turn_halves(T* out, const T* x, const T* cosines, const T* sines, Index pairs,
                                             T sign) {
  turn_pairs(out, x, cosines, sines, pairs, pairs, 1, sign);
}

template <class T>
REGARD_EACH_INSTRUCTION_SET void turn_neighbours(T* out, const T* x, const T* cosines, const T* sines, Index pairs,
                                                 T sign) {
  turn_pairs(out, x, cosines, sines, pairs, 1, 2, sign);
}

// Rows of unit stride, and any others through the general loop.
template <class T>
struct Turn {
  View<T, 4> out;
  View<const T, 4> x;
  const RopeTable<T>& table;
  RopePairing pairing;
  T sign;

  Index pairs() const { return table.cosines.size(2); }

  void head(Index b, Index h, Index s) const {
    const Index row = (table.cosines.size(0) == 1 ? 0 : b) * x.size(2) + s, count = pairs();
    const T *cosines = table.cosines.data() + row * count, *sines = table.sines.data() + row * count;
    const T* from = x.data() + b * x.stride(0) + h * x.stride(1) + s * x.stride(2);
    T* to = out.data() + b * out.stride(0) + h * out.stride(1) + s * out.stride(2);
    if (x.stride(3) != 1 || out.stride(3) != 1)
      strided(to, from, cosines, sines);
    else if (pairing == RopePairing::half_split)
      turn_halves(to, from, cosines, sines, count, sign);
    else
      turn_neighbours(to, from, cosines, sines, count, sign);
    if (to == from && out.stride(3) == x.stride(3)) return;
    for (Index d = 2 * count; d < x.size(3); ++d) to[d * out.stride(3)] = from[d * x.stride(3)];
  }

  void strided(T* to, const T* from, const T* cosines, const T* sines) const {
    const PairLayout layout = layout_of(pairing, pairs());
    for (Index k = 0; k < pairs(); ++k) {
      const Index first = k * layout.step, second = first + layout.partner;
      const T u = from[first * x.stride(3)], v = from[second * x.stride(3)], s = sign * sines[k];
      to[first * out.stride(3)] = cosines[k] * u - s * v;
      to[second * out.stride(3)] = s * u + cosines[k] * v;
    }
  }
};

template <class T>
void check(const char* call, const View<T, 4>& out, const View<const T, 4>& x, const RopeTable<T>& table) {
  detail::check_equal(call, "out", detail::shape_of(out), detail::shape_of(x));
  const Tensor<T>& cosines = table.cosines;
  if (cosines.rank() != 3 || table.sines.shape() != cosines.shape())
    throw ArgumentError(std::string(call) + ": cosines " + cosines.text() + " and sines " + table.sines.text() +
                        " must both be [batch or 1, seq, pairs]");
  if ((cosines.size(0) != 1 && cosines.size(0) != x.size(0)) || cosines.size(1) != x.size(2))
    throw ArgumentError(std::string(call) + ": the table " + cosines.text() +
                        " does not fit [batch,heads,seq,head_dim] = " + x.text());
  if (2 * cosines.size(2) > x.size(3))
    throw ArgumentError(std::string(call) + ": " + std::to_string(cosines.size(2)) + " pairs need a head_dim of " +
                        std::to_string(2 * cosines.size(2)) + " but x has " + std::to_string(x.size(3)) + " (x " +
                        x.text() + ")");
  // Only places matter here, and those are the same for every type.
  const auto places = [](const auto& view) {
    return View<float, 4>(reinterpret_cast<float*>(const_cast<T*>(view.data())), view.sizes(),
                          {view.stride(0) * Index{sizeof(T) / 4}, view.stride(1) * Index{sizeof(T) / 4},
                           view.stride(2) * Index{sizeof(T) / 4}, view.stride(3) * Index{sizeof(T) / 4}});
  };
  detail::check_writable(call, "out", places(out), DType::f32);
  if (out.data() != x.data() || out.strides() != x.strides())
    detail::check_apart(call, {{"out", places(out)}, {"x", places(x)}});
}

template <class T>
void turn_all(const Turn<T>& turn) {
  const Index heads = turn.x.size(1), seq = turn.x.size(2);
  if (turn.x.count() == 0) return;
  parallel_ranges(turn.x.size(0) * heads * seq, std::max<Index>(1, grain / std::max<Index>(1, turn.pairs())),
                  [&](Index begin, Index end) {
                    for (Index row = begin; row < end; ++row)
                      turn.head(row / (heads * seq), row / seq % heads, row % seq);
                  });
}

}  // namespace

template <class T>
RopeTable<T> rope_table(const RopeFrequencies& frequencies, View<const std::int64_t, 2> positions) {
  const Index rows = positions.size(0) * positions.size(1), pairs = frequencies.rotary_dim() / 2;
  const Shape shape{positions.size(0), positions.size(1), pairs};
  RopeTable<T> table{Tensor<T>::uninitialised(shape), Tensor<T>::uninitialised(shape)};
  parallel_ranges(rows, std::max<Index>(1, 1024 / std::max<Index>(1, pairs)), [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const double position = static_cast<double>(positions(row / positions.size(1), row % positions.size(1)));
      for (Index k = 0; k < pairs; ++k) {
        const double angle = position * frequencies.inverse[static_cast<std::size_t>(k)];
        table.cosines[row * pairs + k] = static_cast<T>(std::cos(angle) * frequencies.factor);
        table.sines[row * pairs + k] = static_cast<T>(std::sin(angle) * frequencies.factor);
      }
    }
  });
  return table;
}

template <class T>
RopeTable<T> rope_table(const RopeFrequencies& frequencies, Index first, Index count) {
  Tensor<std::int64_t> positions({1, count});
  for (Index i = 0; i < count; ++i) positions[i] = first + i;
  return rope_table<T>(frequencies, std::as_const(positions).view<2>());
}

template <class T>
void rotate(std::type_identity_t<View<T, 4>> out, std::type_identity_t<View<const T, 4>> x, const RopeTable<T>& table,
            RopePairing pairing) {
  check("rotate", out, x, table);
  turn_all(Turn<T>{out, x, table, pairing, T{1}});
}

template <class T>
void rotate_back(std::type_identity_t<View<T, 4>> dx, std::type_identity_t<View<const T, 4>> dout,
                 const RopeTable<T>& table, RopePairing pairing) {
  check("rotate_back", dx, dout, table);
  turn_all(Turn<T>{dx, dout, table, pairing, T{-1}});
}

Tensor<std::int64_t> token_positions(View<const std::int64_t, 2> ids, std::int64_t pad) {
  Tensor<std::int64_t> positions({ids.size(0), ids.size(1)});
  for (Index b = 0; b < ids.size(0); ++b) {
    std::int64_t next = 0;
    for (Index i = 0; i < ids.size(1); ++i)
      if (ids(b, i) != pad) positions[b * ids.size(1) + i] = next++;
  }
  return positions;
}

template RopeTable<float> rope_table(const RopeFrequencies&, View<const std::int64_t, 2>);
template RopeTable<double> rope_table(const RopeFrequencies&, View<const std::int64_t, 2>);
template RopeTable<float> rope_table(const RopeFrequencies&, Index, Index);
template RopeTable<double> rope_table(const RopeFrequencies&, Index, Index);
template void rotate(View<float, 4>, View<const float, 4>, const RopeTable<float>&, RopePairing);
template void rotate(View<double, 4>, View<const double, 4>, const RopeTable<double>&, RopePairing);
template void rotate_back(View<float, 4>, View<const float, 4>, const RopeTable<float>&, RopePairing);
template void rotate_back(View<double, 4>, View<const double, 4>, const RopeTable<double>&, RopePairing);

}  // namespace regard
