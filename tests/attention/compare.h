// Running kernels and reference on the same numbers, and the error rule: at
// most twice the error of a plain float implementation, plus 1e-6 of the
// largest reference magnitude.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "attention/plain.h"
#include "regard/attend.h"
#include "regard/instruction_set.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace regard::testing {

inline Tensor<float> normal(Shape shape, std::uint64_t seed, double scale = 1.0) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(scale * random.normal());
  return tensor;
}

template <class T>
Tensor<double> widen(const Tensor<T>& tensor) {
  Tensor<double> wide(tensor.shape());
  for (Index i = 0; i < wide.count(); ++i) wide[i] = static_cast<double>(tensor[i]);
  return wide;
}

// Bit equality, NaN included.
inline bool same_bits(const Tensor<float>& a, const Tensor<float>& b) {
  if (a.shape() != b.shape()) return false;
  return a.count() == 0 || std::memcmp(a.data(), b.data(), sizeof(float) * static_cast<std::size_t>(a.count())) == 0;
}

struct Errors {
  double largest_error = 0, largest_value = 0;
  bool special_values_agree = true;  // infinities and NaN
};
inline Errors errors(const Tensor<float>& got, const Tensor<double>& wanted) {
  Errors result;
  for (Index i = 0; i < wanted.count(); ++i) {
    const double g = static_cast<double>(got[i]), w = wanted[i];
    if (!std::isfinite(g) || !std::isfinite(w)) {
      result.special_values_agree &= g == w || (std::isnan(g) && std::isnan(w));
      continue;
    }
    result.largest_error = std::max(result.largest_error, std::abs(g - w));
    result.largest_value = std::max(result.largest_value, std::abs(w));
  }
  return result;
}

inline void expect_rule(const std::string& what, const Tensor<float>& got, const Tensor<float>& plain,
                        const Tensor<double>& wanted) {
  ASSERT_EQ(got.shape(), wanted.shape()) << what;
  const Errors ours = errors(got, wanted), theirs = errors(plain, wanted);
  EXPECT_TRUE(ours.special_values_agree) << what << ": NaN or infinity differ";
  EXPECT_LE(ours.largest_error, 2 * theirs.largest_error + 1e-6 * ours.largest_value)
      << what << ": plain error " << theirs.largest_error << ", largest value " << ours.largest_value;
}

// One composition, with everything it needs kept alive.
struct Composition {
  std::string name;
  Tensor<float> q, k, v, bias;
  std::vector<float> sink;
  std::vector<Index> kv_lengths;
  AttendOptions options = {};  // bias, sink and kv_lengths are filled in below

  AttendOptions float_options() const {
    AttendOptions all = options;
    if (!bias.empty()) all.bias = bias.view<4>();
    all.sink = sink;
    all.kv_lengths = kv_lengths;
    return all;
  }
};

struct DoubleInputs {
  explicit DoubleInputs(const Composition& c)
      : q(widen(c.q)), k(widen(c.k)), v(widen(c.v)), bias(widen(c.bias)), sink(c.sink.begin(), c.sink.end()) {
    const AttendOptions from = c.float_options();
    options.mask = from.mask;
    options.score = from.score;
    if (!bias.empty()) options.bias = std::as_const(bias).view<4>();
    if (from.scale) options.scale = static_cast<double>(*from.scale);
    options.q_start = from.q_start;
    options.kv_lengths = from.kv_lengths;
    options.sink = sink;
    options.dropout = from.dropout;
    options.observe = from.observe;
  }
  Tensor<double> q, k, v, bias;
  std::vector<double> sink;
  reference::Options options;
};

// Summaries of the weights.
inline void expect_same_summaries(const AttendResult& got, const AttendResult& plain,
                                  const BasicAttendResult<double>& wanted) {
  expect_rule("row_max", got.row_max, plain.row_max, wanted.row_max);
  expect_rule("distance", got.distance, plain.distance, wanted.distance);
  expect_rule("top_weights", got.top_weights, plain.top_weights, wanted.top_weights);
  expect_rule("key_mass", got.key_mass, plain.key_mass, wanted.key_mass);
  expect_rule("pooled_sum", got.pooled_sum, plain.pooled_sum, wanted.pooled_sum);
  expect_rule("pooled_max", got.pooled_max, plain.pooled_max, wanted.pooled_max);
  expect_rule("diagonal_mass", got.diagonal_mass, plain.diagonal_mass, wanted.diagonal_mass);
}

// Forward and backward of one composition against the reference.
inline void expect_matches_reference(const Composition& c) {
  SCOPED_TRACE(c.name + " on " + instruction_set());
  Composition observed_copy{c.name, c.q, c.k, c.v, c.bias, c.sink, c.kv_lengths, c.options};
  observed_copy.options.observe = {.lse = true,
                                   .entropy = true,
                                   .row_max = true,
                                   .distance = true,
                                   .top_k = 3,
                                   .key_mass = QueryRange{},
                                   .pooled_sum = MapSize{4, 4},
                                   .pooled_max = MapSize{4, 4},
                                   .diagonals = OffsetRange{},
                                   .weights = true};
  const AttendOptions options = observed_copy.float_options();
  const DoubleInputs wide(observed_copy);
  const auto got = attend(c.q, c.k, c.v, options);
  const auto plain = detail::plain_attend<float>(c.q, c.k, c.v, options);
  const auto wanted = reference::attend(wide.q, wide.k, wide.v, wide.options);
  expect_rule("out", got.out, plain.out, wanted.out);
  expect_rule("lse", got.lse, plain.lse, wanted.lse);
  expect_rule("entropy", got.entropy, plain.entropy, wanted.entropy);
  expect_rule("weights", got.weights, plain.weights, wanted.weights);
  expect_same_summaries(got, plain, wanted);

  const auto dout = normal(got.out.shape(), 77), dlse = normal(got.lse.shape(), 78);
  const auto wide_dout = widen(dout), wide_dlse = widen(dlse);
  const auto ours = attend_backward(dout, c.q, c.k, c.v, {got.out.view<4>(), got.lse.view<3>()}, options, dlse);
  const auto theirs = detail::plain_attend_backward<float>(
      dout, c.q, c.k, c.v, {plain.out.view<4>(), plain.lse.view<3>()}, options, std::as_const(dlse).view<3>());
  const auto right = reference::attend_backward(wide_dout, wide.q, wide.k, wide.v,
                                                {wanted.out.view<4>(), wanted.lse.view<3>()}, wide.options, wide_dlse);
  expect_rule("dq", ours.dq, theirs.dq, right.dq);
  expect_rule("dk", ours.dk, theirs.dk, right.dk);
  expect_rule("dv", ours.dv, theirs.dv, right.dv);
  if (!c.bias.empty()) expect_rule("dbias", ours.dbias, theirs.dbias, right.dbias);
  if (!c.sink.empty()) expect_rule("dsink", ours.dsink, theirs.dsink, right.dsink);
  ASSERT_EQ(ours.dparameters.size(), right.dparameters.size());
  for (std::size_t m = 0; m < right.dparameters.size(); ++m)
    for (std::size_t p = 0; p < right.dparameters[m].size(); ++p)
      EXPECT_NEAR(ours.dparameters[m][p], right.dparameters[m][p], 1e-4 * (1 + std::abs(right.dparameters[m][p])));
}

// Runs the body once per instruction set of this processor. Under sanitizers
// without the portable one, which is the same code in loops over single numbers:
// every one of them checked takes minutes.
template <class F>
void on_each_instruction_set(F body) {
  for (const std::string& name : instruction_sets()) {
#ifdef REGARD_SANITIZED
    if (name == "portable" && instruction_sets().size() > 1) continue;
#endif
    set_instruction_set(name);
    body();
  }
  set_instruction_set("");
}

}  // namespace regard::testing
