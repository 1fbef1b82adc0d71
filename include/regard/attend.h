// attend: scaled dot-product attention, exact, in memory linear in length.
//
//   auto result = regard::attend(q, k, v, {.mask = causal()});
//
// Shapes: q [batch, q_heads, q_len, head_dim]
//         k [batch, kv_heads, kv_len, head_dim]
//         v [batch, kv_heads, kv_len, value_dim]
//         out [batch, q_heads, q_len, value_dim], lse [batch, q_heads, q_len]
// q_heads is a multiple of kv_heads; query head h reads key head
// h / (q_heads / kv_heads). Any size may be 0 but head_dim. Any strides.
//
// Order: score = (q . k) * scale; score modifiers, left to right; + bias;
// mask; softmax over keys; dropout; sum over v. A query with no visible key
// gives out 0 and lse -inf.
//
// Source of the blockwise algorithm: Milakov and Gimelshein 2018 (running
// softmax); Dao et al., "FlashAttention", 2022.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/mask.h"
#include "regard/observe.h"
#include "regard/score.h"
#include "regard/storage.h"
#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

// Where row 0 of the queries stands: one position for the whole batch or one
// per entry. Default: kv_len - q_len of the tensors (bottom-right), so that
// causal() serves prefill, chunked prefill and decode alike. May be negative.
class QueryStart {
 public:
  QueryStart() = default;
  QueryStart(Index position) : positions_{position} {}                            // NOLINT: implicit
  QueryStart(std::vector<Index> per_batch) : positions_(std::move(per_batch)) {}  // NOLINT: implicit
  Index of(Index batch, Index q_len, Index kv_len) const {
    if (positions_.empty()) return kv_len - q_len;
    return positions_[positions_.size() == 1 ? 0 : static_cast<std::size_t>(batch)];
  }
  std::size_t count() const { return positions_.size(); }

 private:
  std::vector<Index> positions_;
};

inline QueryStart bottom_right() { return {}; }
inline QueryStart top_left() { return QueryStart(Index{0}); }

// Drops weights after the softmax with probability p in [0, 1) and scales the
// kept ones by 1/(1-p); a dropped weight is a factor of 0, which leaves NaN where
// its value is not finite. Philox 4x32-10, key = seed, counter = (key / 4, row,
// head, batch): the same for any tiling, and in the backward pass.
struct Dropout {
  double p = 0.0;
  std::uint64_t seed = 0;
};

template <class T>
struct BasicAttendOptions {
  Mask mask = {};
  ScoreModifiers score = {};
  View<const T, 4> bias = {};   // sizes 1 broadcast to [batch, q_heads, q_len, kv_len]
  std::optional<T> scale = {};  // default 1 / sqrt(head_dim)
  QueryStart q_start = {};
  std::span<const Index> kv_lengths = {};  // [batch]: keys at and after it do not exist
  std::span<const T> sink = {};            // [q_heads]: logits that join the denominator only
  Dropout dropout = {};
  Observe observe = {};
};
using AttendOptions = BasicAttendOptions<float>;

// Statistics of half-precision calls are float.
template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
struct BasicAttendResult : BasicObservations<Statistic<T>> {
  Tensor<T> out;  // [batch, q_heads, q_len, value_dim]
};
using AttendResult = BasicAttendResult<float>;

// out has the type of q; k and v may have types of their own (float, bfloat16,
// float16, int8 with scales). Sums, maxima and statistics are float whatever the
// storage; out is rounded once.
//
// Throws ArgumentError naming both sides and both shapes when sizes disagree,
// head_dim is 0, q_heads is not a multiple of kv_heads, a bias or mask does not
// broadcast, a soft cap does not come first, score modifiers would see positions
// of 2^31 and more, q is int8, or what to observe lies outside.
AttendResult attend(View<const float, 4> q, const InputView& k, const InputView& v, const AttendOptions& options = {});
BasicAttendResult<BFloat16> attend(View<const BFloat16, 4> q, const InputView& k, const InputView& v,
                                   const AttendOptions& options = {});
BasicAttendResult<Float16> attend(View<const Float16, 4> q, const InputView& k, const InputView& v,
                                  const AttendOptions& options = {});

// The same, writing `out` into memory of yours (any strides but 0 and
// overlapping ones, which are refused, as is memory of q, k or v; the type of q, or
// float, whose sums are not rounded again); the result's own `out` stays empty.
AttendResult attend_into(const OutputView& out, const InputView& q, const InputView& k, const InputView& v,
                         const AttendOptions& options = {});

// What a forward pass left behind for its backward pass.
struct AttendForward {
  InputView out;             // as attend returned it
  View<const float, 3> lse;  // as attend returned it with observe.lse
};

// The same for the reference and for layers that may run on it.
template <class T>
struct BasicForward {
  View<const T, 4> out;
  View<const T, 3> lse;
};

template <class T>
struct BasicAttendGradients {
  Tensor<T> dq, dk, dv;        // shapes of q, k, v
  Tensor<Statistic<T>> dbias;  // shape of the bias, summed over broadcast axes; empty without one
  Tensor<Statistic<T>> dsink;  // [q_heads]; empty without sinks
  // One per modifier, [parameter_count]; empty for those without parameters.
  std::vector<std::vector<double>> dparameters;
};
using AttendGradients = BasicAttendGradients<float>;

// Gradients of sum(dout * out) + sum(dlse * lse), exact for every composition.
// `options` must be those of the forward call (observe is not read). dlse
// [batch, q_heads, q_len] may be left out. q, k and v have one type, which the
// gradients get; sums are float and rounded once. Throws ArgumentError as attend
// does, for a modifier that states no derivative, and for int8 inputs, which have
// no gradients.
AttendGradients attend_backward(const InputView& dout, View<const float, 4> q, const InputView& k, const InputView& v,
                                const AttendForward& forward, const AttendOptions& options = {},
                                View<const float, 3> dlse = {});
BasicAttendGradients<BFloat16> attend_backward(const InputView& dout, View<const BFloat16, 4> q, const InputView& k,
                                               const InputView& v, const AttendForward& forward,
                                               const AttendOptions& options = {}, View<const float, 3> dlse = {});
BasicAttendGradients<Float16> attend_backward(const InputView& dout, View<const Float16, 4> q, const InputView& k,
                                              const InputView& v, const AttendForward& forward,
                                              const AttendOptions& options = {}, View<const float, 3> dlse = {});

// Memory of yours for the three large gradients (any strides but 0 and
// overlapping ones; columns of one tensor are fine, an element that two of them, or
// one and q, k, v, dout or out, share is refused), each of the type of its input, or
// float; the result's dq, dk and dv stay empty. q, k and v may differ in type.
struct GradientViews {
  OutputView dq, dk, dv;
};
AttendGradients attend_backward_into(const GradientViews& gradients, const InputView& dout, const InputView& q,
                                     const InputView& k, const InputView& v, const AttendForward& forward,
                                     const AttendOptions& options = {}, View<const float, 3> dlse = {});

// The public reference in double precision: plain loops, O(q_len) memory
// besides the result. Same rules, same options; what the kernels are tested
// against.
namespace reference {
using Options = BasicAttendOptions<double>;
using Result = BasicAttendResult<double>;
using Forward = BasicForward<double>;
using Gradients = BasicAttendGradients<double>;

Result attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v, const Options& options = {});
Gradients attend_backward(View<const double, 4> dout, View<const double, 4> q, View<const double, 4> k,
                          View<const double, 4> v, const Forward& forward, const Options& options = {},
                          View<const double, 3> dlse = {});
}  // namespace reference

}  // namespace regard
