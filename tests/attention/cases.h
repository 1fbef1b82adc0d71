// Small inputs and the questions that the tests of faults ask about them.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/compare.h"
#include "refusal.h"

namespace regard::testing {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct CaseSizes {
  Index batch = 1, q_heads = 1, kv_heads = 1, q_len = 1, kv_len = 1, head_dim = 8, value_dim = 8;
};

struct Inputs {
  Tensor<float> q, k, v;
};

inline Inputs random_inputs(const CaseSizes& s, std::uint64_t seed = 1) {
  return {normal({s.batch, s.q_heads, s.q_len, s.head_dim}, seed),
          normal({s.batch, s.kv_heads, s.kv_len, s.head_dim}, seed + 1),
          normal({s.batch, s.kv_heads, s.kv_len, s.value_dim}, seed + 2)};
}

inline AttendGradients backward_of(const Inputs& in, const Tensor<float>& dout, AttendOptions options,
                                   View<const float, 3> dlse = {}) {
  options.observe = {.lse = true};
  const auto forward = attend(in.q, in.k, in.v, options);
  return attend_backward(dout, in.q, in.k, in.v, {forward.out.view<4>(), forward.lse.view<3>()}, options, dlse);
}

// Everything that one question can be answered with.
struct Answer {
  AttendResult forward;
  AttendGradients gradients;
};

inline Answer answer_to(const Inputs& in, const Tensor<float>& dout, AttendOptions options) {
  options.observe = {.lse = true, .entropy = true, .weights = true};
  Answer answer;
  answer.forward = attend(in.q, in.k, in.v, options);
  answer.gradients =
      attend_backward(dout, in.q, in.k, in.v, {answer.forward.out.view<4>(), answer.forward.lse.view<3>()}, options);
  return answer;
}

// Bit for bit.
inline void expect_same(const Answer& a, const Answer& b) {
  EXPECT_TRUE(same_bits(a.forward.out, b.forward.out));
  EXPECT_TRUE(same_bits(a.forward.lse, b.forward.lse));
  EXPECT_TRUE(same_bits(a.forward.entropy, b.forward.entropy));
  EXPECT_TRUE(same_bits(a.forward.weights, b.forward.weights));
  EXPECT_TRUE(same_bits(a.gradients.dq, b.gradients.dq));
  EXPECT_TRUE(same_bits(a.gradients.dk, b.gradients.dk));
  EXPECT_TRUE(same_bits(a.gradients.dv, b.gradients.dv));
  EXPECT_TRUE(same_bits(a.gradients.dbias, b.gradients.dbias));
  EXPECT_TRUE(same_bits(a.gradients.dsink, b.gradients.dsink));
  EXPECT_EQ(a.gradients.dparameters, b.gradients.dparameters);
}

inline std::vector<float> list(const Tensor<float>& tensor) { return {tensor.values().begin(), tensor.values().end()}; }

// Row `row` of head 0 of entry 0 of a [batch, heads, rows, width] tensor.
inline std::vector<float> row_of(const Tensor<float>& tensor, Index row, Index head = 0, Index batch = 0) {
  const float* first = tensor.data() + ((batch * tensor.size(1) + head) * tensor.size(2) + row) * tensor.size(3);
  return {first, first + tensor.size(3)};
}

inline std::vector<float> zeros(Index count) { return std::vector<float>(static_cast<std::size_t>(count)); }

inline void expect_near(const std::vector<float>& got, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << "at " << i;
}

inline bool all_finite(const Tensor<float>& tensor) {
  for (float value : tensor.values())
    if (!std::isfinite(value)) return false;
  return true;
}

// Which keys each query sees, read off the weights: "10\n11\n".
inline std::string seen(const Tensor<float>& weights) {
  std::string text;
  for (Index i = 0; i < weights.count(); ++i) {
    text += weights[i] > 0.0f ? '1' : '0';
    if ((i + 1) % weights.size(-1) == 0) text += '\n';
  }
  return text;
}

}  // namespace regard::testing
