#include "attention/problem.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "attention/observers/ranges.h"
#include "attention/overlap.h"
#include "regard/error.h"
#include "regard/random.h"

namespace regard::detail {
namespace {

[[noreturn]] void refuse(const char* call, const std::string& what) {
  throw ArgumentError(std::string(call) + ": " + what);
}

std::string text(const Sizes4& sizes) { return shape_text(sizes.data(), 4); }
std::string text(Index number) { return std::to_string(number); }

// Errors of masks, modifiers and the like begin with the call they came to.
template <class F>
void name_call(const char* call, F check) {
  try {
    check();
  } catch (const ArgumentError& error) {
    refuse(call, error.what());
  }
}

void check_rectangle(const char* call, const Sizes& sizes, const Rectangle& want) {
  const auto inside = [](Index begin, Index count, Index size) {
    return begin >= 0 && count >= 0 && begin <= size - count;
  };
  if (!inside(want.batch, 1, sizes.batch) || !inside(want.head, 1, sizes.q_heads) ||
      !inside(want.row, want.rows, sizes.q_len) || !inside(want.key, want.keys, sizes.kv_len))
    refuse(call, "rectangle of batch " + text(want.batch) + ", head " + text(want.head) + ", rows " + text(want.row) +
                     "+" + text(want.rows) + ", keys " + text(want.key) + "+" + text(want.keys) +
                     " lies outside [batch,q_heads,q_len,kv_len] = " +
                     text(Sizes4{sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len}));
}

void check_map(const char* call, const char* name, const std::optional<MapSize>& size) {
  constexpr Index most = Index{1} << 31;
  if (size && (size->rows < 1 || size->columns < 1 || size->rows > most || size->columns > most))
    refuse(call, std::string(name) + " of " + text(size->rows) + " x " + text(size->columns) +
                     " cells must be at least 1 x 1 and at most 2^31 on an axis");
}

void check_bounds(const char* call, const char* axis, const std::vector<Index>& bounds, Index length) {
  if (bounds.size() < 2 || bounds.front() != 0 || bounds.back() != length ||
      !std::is_sorted(bounds.begin(), bounds.end()))
    refuse(call, std::string("segment_sum's bounds of the ") + axis + " must rise from 0 to " + text(length) +
                     ", got " + shape_text(bounds));
}

void check_observe(const char* call, const Sizes& sizes, const OptionFacts& facts) {
  const Observe& observe = *facts.observe;
  for (const Rectangle& want : observe.rectangles) check_rectangle(call, sizes, want);
  if (observe.top_k < 0) refuse(call, "top_k must be at least 0, got " + text(observe.top_k));
  if (observe.top_k > 0 && sizes.kv_len > std::numeric_limits<std::uint32_t>::max())
    refuse(call, "top_k ranks fewer than 2^32 keys, kv_len is " + text(sizes.kv_len));
  if (const auto& range = observe.key_mass) {
    const Index end = end_of(*range, sizes);
    if (range->begin < 0 || range->begin > end || end > sizes.q_len)
      refuse(call, "key_mass of queries " + text(range->begin) + " to " + text(end) + " lies outside q_len " +
                       text(sizes.q_len));
  }
  check_map(call, "pooled_sum", observe.pooled_sum);
  check_map(call, "pooled_max", observe.pooled_max);
  if (const auto& bounds = observe.segment_sum) {
    check_bounds(call, "queries", bounds->rows, sizes.q_len);
    check_bounds(call, "keys", bounds->keys, sizes.kv_len);
  }
  if (!observe.diagonals) return;
  constexpr Index farthest = Index{1} << 61;
  for (const auto& end : {observe.diagonals->first, observe.diagonals->last})
    if (end && (*end < -farthest || *end > farthest))
      refuse(call, "diagonals at offset " + text(*end) + " lie beyond any sequence");
  const Offsets offsets = offsets_of(*observe.diagonals, sizes, *facts.q_start);
  if (offsets.count < 0)
    refuse(call, "diagonals end at offset " + text(offsets.first + offsets.count - 1) + ", before their first, " +
                     text(offsets.first));
}

}  // namespace

void check_lengths(const char* call, const Sizes& sizes, std::span<const Index> lengths) {
  if (lengths.empty()) return;
  if (static_cast<Index>(lengths.size()) != sizes.batch)
    refuse(call,
           "kv_lengths has " + text(static_cast<Index>(lengths.size())) + " entries but batch is " + text(sizes.batch));
  for (Index length : lengths)
    if (length < 0 || length > sizes.kv_len)
      refuse(call, "kv_lengths holds " + text(length) + " but kv_len is " + text(sizes.kv_len));
}

namespace {

void check_score(const char* call, const Sizes& sizes, const ScoreModifiers& score) {
  for (std::size_t i = 0; i < score.chain().size(); ++i) {
    name_call(call, [&] { score.chain()[i]->check({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len}); });
    if (i > 0 && score.chain()[i]->kind() == ScoreModifier::Kind::softcap)
      refuse(call, "softcap must be the first score modifier, it is number " + text(static_cast<Index>(i) + 1));
  }
}

// Modifiers see distances in 32 bits (see Position::distance); a soft cap sees none.
void check_distances(const char* call, const Sizes& sizes, const OptionFacts& facts) {
  constexpr Index largest = std::numeric_limits<std::int32_t>::max();
  const auto& chain = facts.score->chain();
  const auto sees_positions = [](const auto& modifier) { return modifier->kind() != ScoreModifier::Kind::softcap; };
  const auto first = std::find_if(chain.begin(), chain.end(), sees_positions);
  if (first == chain.end()) return;
  // Below 0 where the lengths alone are too much: then every start is refused.
  const Index room = std::max(sizes.q_len, sizes.kv_len) > largest ? -1 : largest - sizes.q_len - sizes.kv_len;
  const auto starts = static_cast<Index>(std::max<std::size_t>(1, facts.q_start->count()));
  for (Index b = 0; b < starts; ++b) {
    const Index start = facts.q_start->of(b, sizes.q_len, sizes.kv_len);
    if (start > room || start < -room)
      refuse(call, "q_start " + text(start) + " with q_len " + text(sizes.q_len) + " and kv_len " + text(sizes.kv_len) +
                       " exceeds the 32-bit distances of score modifier '" + (*first)->name() + "'");
  }
}

void check_q_start(const char* call, const Sizes& sizes, const OptionFacts& facts) {
  const auto count = static_cast<Index>(facts.q_start->count());
  if (count > 1 && count != sizes.batch)
    refuse(call, "q_start has " + text(count) + " entries but batch is " + text(sizes.batch));
  check_distances(call, sizes, facts);
}

}  // namespace

Sizes check_shapes(const char* call, const Sizes4& q, const Sizes4& k, const Sizes4& v) {
  const std::string qs = "q " + text(q), ks = "k " + text(k), vs = "v " + text(v);
  const std::string q_and_k = " (" + qs + ", " + ks + ")", q_and_v = " (" + qs + ", " + vs + ")";
  const std::string k_and_v = " (" + ks + ", " + vs + ")";
  if (q[3] == 0) refuse(call, "head_dim is 0" + q_and_k);
  if (k[3] != q[3]) refuse(call, "k has head_dim " + text(k[3]) + " but q has " + text(q[3]) + q_and_k);
  if (k[0] != q[0]) refuse(call, "k has batch " + text(k[0]) + " but q has " + text(q[0]) + q_and_k);
  if (v[0] != q[0]) refuse(call, "v has batch " + text(v[0]) + " but q has " + text(q[0]) + q_and_v);
  if (v[1] != k[1]) refuse(call, "v has " + text(v[1]) + " heads but k has " + text(k[1]) + k_and_v);
  if (v[2] != k[2]) refuse(call, "v has kv_len " + text(v[2]) + " but k has " + text(k[2]) + k_and_v);
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0)
    refuse(call, "q has " + text(q[1]) + " heads, not a multiple of the " + text(k[1]) + " heads of k" + q_and_k);
  return {q[0], q[1], k[1], q[2], k[2], q[3], v[3]};
}

void check_facts(const char* call, const Sizes& sizes, const OptionFacts& facts) {
  name_call(call, [&] { facts.mask->check({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len}); });
  check_score(call, sizes, *facts.score);
  const Sizes4 pairs{sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len};
  for (std::size_t axis = 0; facts.has_bias && axis < 4; ++axis)
    if (facts.bias[axis] != 1 && facts.bias[axis] != pairs[axis])
      refuse(call, "bias " + text(facts.bias) + " does not broadcast to [batch,q_heads,q_len,kv_len] = " + text(pairs));
  check_q_start(call, sizes, facts);
  if (facts.sinks > 0 && static_cast<Index>(facts.sinks) != sizes.q_heads)
    refuse(call, "sink has " + text(static_cast<Index>(facts.sinks)) + " entries but q has " + text(sizes.q_heads) +
                     " heads");
  if (!std::isfinite(facts.scale)) refuse(call, "scale is not finite");
  name_call(call, [&] { dropout_threshold(facts.dropout); });
  check_lengths(call, sizes, facts.kv_lengths);
  check_observe(call, sizes, facts);
}

void check_differentiable(const char* call, const ScoreModifiers& score) {
  for (const auto& modifier : score.chain())
    if (!modifier->differentiable())
      refuse(call, "score modifier '" + modifier->name() +
                       "' states no derivative: add float derivative(float score, const "
                       "Position& at) const");
}

void check_equal(const char* call, const char* name, const Shape& got, const Shape& wanted) {
  if (got != wanted)
    refuse(call, std::string(name) + " has shape " + shape_text(got) + " but needs " + shape_text(wanted));
}

void check_types(const char* call, const InputView& q) {
  if (q.dtype() == DType::i8) refuse(call, "q is int8; only k and v may be");
}

void check_backward(const char* call, const Sizes& sizes, const BackwardShapes& given) {
  const Shape out{sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim};
  const Shape rows{sizes.batch, sizes.q_heads, sizes.q_len};
  check_equal(call, "dout", given.dout, out);
  check_equal(call, "forward.out", given.out, out);
  check_equal(call, "forward.lse", given.lse, rows);
  if (!given.dlse.empty()) check_equal(call, "dlse", given.dlse, rows);
}

void check_writable(const char* call, const char* name, const OutputView& out, DType dtype) {
  if (out.dtype() != dtype && out.dtype() != DType::f32)
    refuse(call, std::string(name) + " is " + dtype_name(out.dtype()) + " but must be " + dtype_name(dtype) +
                     (dtype == DType::f32 ? "" : " or F32"));
  // Sorted by stride, every axis must step over all that the smaller ones span.
  std::vector<std::pair<Index, Index>> axes;
  for (int axis = 0; axis < 4; ++axis) {
    if (out.size(axis) == 0) return;
    if (out.size(axis) > 1) axes.emplace_back(std::abs(out.stride(axis)), out.size(axis));
  }
  std::sort(axes.begin(), axes.end());
  Index span = 1;
  for (const auto& [stride, size] : axes) {
    if (stride < span)
      refuse(call, std::string(name) + " " + out.text() + " has elements that share memory (strides " +
                       shape_text(out.strides().data(), 4) + ")");
    span += stride * (size - 1);
  }
}

namespace {

template <class Named>
void check_pair(const char* call, const NamedOutput& a, const Named& b) {
  if (share_memory(a.view, b.view))
    refuse(call, std::string(a.name) + " " + a.view.text() + " and " + b.name + " " + b.view.text() +
                     " share memory (strides " + shape_text(a.view.strides().data(), 4) + " and " +
                     shape_text(b.view.strides().data(), 4) + ")");
}

}  // namespace

void check_apart(const char* call, std::initializer_list<NamedOutput> outputs) {
  for (auto a = outputs.begin(); a != outputs.end(); ++a)
    for (auto b = a + 1; b != outputs.end(); ++b) check_pair(call, *a, *b);
}

void check_apart(const char* call, const NamedOutput& output, std::initializer_list<NamedInput> inputs) {
  for (const NamedInput& input : inputs) check_pair(call, output, input);
}

}  // namespace regard::detail
