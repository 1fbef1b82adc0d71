// Faults of gradients: empty rows, shared heads, sinks, and finite differences
// that share no code with the backward pass.
#include <cmath>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

TEST(gradients, an_empty_row_takes_no_share_in_any_gradient) {
  Tensor<std::uint8_t> allowed({4, 4});
  for (Index i = 0; i < 3; ++i) allowed[i * 4 + i] = allowed[i * 4 + std::max<Index>(0, i - 1)] = 1;
  on_each_instruction_set([&] {
    auto in = random_inputs({.q_heads = 2, .kv_heads = 1, .q_len = 4, .kv_len = 4});
    const auto dout = normal({1, 2, 4, 8}, 9);
    const auto bias = normal({1, 1, 1, 4}, 10);
    const auto got = backward_of(in, dout, {.mask = boolean(std::as_const(allowed).view<2>()), .bias = bias.view<4>()});
    const auto three = [](const Tensor<float>& x) { return packed(x.view<4>().slice(2, 0, 3)); };
    const Inputs shorter{three(in.q), in.k, in.v};
    const auto without = backward_of(shorter, three(dout),
                                     {.mask = boolean(std::as_const(allowed).view<2>().slice(0, 0, 3)),
                                      .bias = bias.view<4>(),
                                      .q_start = Index{0}});
    EXPECT_TRUE(same_bits(got.dk, without.dk) && same_bits(got.dv, without.dv) && same_bits(got.dbias, without.dbias));
    EXPECT_TRUE(same_bits(three(got.dq), without.dq));
    EXPECT_EQ(row_of(got.dq, 3, 0), zeros(8));
    EXPECT_EQ(row_of(got.dk, 3), zeros(8));
  });
}

TEST(gradients, of_shared_keys_are_summed_over_their_query_heads) {
  on_each_instruction_set([] {
    for (const Index q_heads : {4, 6}) {
      const Index group = q_heads / 2;
      const auto in = random_inputs(
          {.q_heads = q_heads, .kv_heads = 2, .q_len = 9, .kv_len = 140, .head_dim = 12, .value_dim = 20});
      const auto dout = normal({1, q_heads, 9, 20}, 9);
      const auto shared = backward_of(in, dout, {.mask = causal()});
      const auto repeated = [&](const Tensor<float>& x) {
        return packed(View<const float, 4>(x.data(), {2, group, 140, x.size(3)}, {140 * x.size(3), 0, x.size(3), 1}));
      };
      Inputs apart{in.q, repeated(in.k), repeated(in.v)};
      apart.k.reshape({1, q_heads, 140, 12});
      apart.v.reshape({1, q_heads, 140, 20});
      const auto own = backward_of(apart, dout, {.mask = causal()});
      EXPECT_TRUE(same_bits(shared.dq, own.dq));
      for (const auto& [sum, parts] : {std::pair{&shared.dk, &own.dk}, {&shared.dv, &own.dv}})
        for (Index at = 0; at < sum->count(); ++at) {
          const Index size = 140 * sum->size(3), head = at / size;
          double wanted = 0;
          for (Index g = 0; g < group; ++g) wanted += (*parts)[(head * group + g) * size + at % size];
          ASSERT_NEAR((*sum)[at], wanted, 1e-5) << at;
        }
    }
  });
}

// Loss = sum(dout * out) + sum(dlse * lse), in double precision.
double loss(const Inputs& in, const std::vector<float>& sink, const Tensor<float>& dout, const Tensor<float>& dlse) {
  const auto q = widen(in.q), k = widen(in.k), v = widen(in.v);
  const std::vector<double> sinks(sink.begin(), sink.end());
  const auto got =
      reference::attend(q, k, v, {.mask = causal(), .score = softcap(2), .sink = sinks, .observe = {.lse = true}});
  double sum = 0;
  for (Index i = 0; i < dout.count(); ++i) sum += static_cast<double>(dout[i]) * got.out[i];
  for (Index i = 0; i < dlse.count(); ++i) sum += static_cast<double>(dlse[i]) * got.lse[i];
  return sum;
}

template <class F>
double slope(float& number, F value) {
  const float before = number;
  const float step = 0x1p-7f;
  number = before + step;
  const double up = value(), up_at = static_cast<double>(number);
  number = before - step;
  const double down = value(), down_at = static_cast<double>(number);
  number = before;
  return (up - down) / (up_at - down_at);
}

TEST(gradients, agree_with_finite_differences_through_outputs_and_lse) {
  on_each_instruction_set([] {
    auto in = random_inputs({.q_heads = 4, .kv_heads = 2, .q_len = 3, .kv_len = 5, .head_dim = 4, .value_dim = 3});
    std::vector<float> sink{0.3f, -0.5f, 1.0f, 0.0f};
    const auto dout = normal({1, 4, 3, 3}, 9), dlse = normal({1, 4, 3}, 10);
    const auto got = backward_of(in, dout, {.mask = causal(), .score = softcap(2), .sink = sink}, dlse);
    const auto value = [&] { return loss(in, sink, dout, dlse); };
    for (const auto& [inputs, gradient] : {std::pair{&in.q, &got.dq}, {&in.k, &got.dk}, {&in.v, &got.dv}})
      for (Index i = 0; i < inputs->count(); ++i) ASSERT_NEAR((*gradient)[i], slope((*inputs)[i], value), 1e-3) << i;
    for (std::size_t h = 0; h < 4; ++h)
      EXPECT_NEAR(got.dsink[static_cast<Index>(h)], slope(sink[h], value), 1e-3) << "sink " << h;
  });
}

// Without keys lse is the sink itself, so its gradient passes through whole.
TEST(gradients, of_lse_reach_the_sink_when_no_key_is_visible) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 4});
    const std::vector<float> sink{0.5f, -3.0f};
    const Tensor<float> dlse({1, 2, 3}, {1, 2, 4, 8, 16, 32});
    const auto got = backward_of(in, normal({1, 2, 3, 8}, 9), {.mask = !all_visible(), .sink = sink}, dlse);
    EXPECT_EQ(list(got.dsink), (std::vector<float>{7, 56}));
    EXPECT_EQ(list(got.dq), zeros(48));
    EXPECT_EQ(list(got.dk), zeros(64));
    EXPECT_EQ(list(got.dv), zeros(64));
  });
}

struct Silent {
  static constexpr const char* name = "silent";
  float operator()(float score, const Position&) const { return score; }
};

TEST(gradients, are_refused_for_a_modifier_without_a_derivative) {
  const auto in = random_inputs({.q_len = 2, .kv_len = 2});
  const AttendOptions options{.score = Silent{}};
  EXPECT_TRUE(all_finite(attend(in.q, in.k, in.v, options).out));
  EXPECT_EQ(message_of([&] {
              backward_of(in, normal({1, 1, 2, 8}, 3), options);
            }),
            "attend_backward: score modifier 'silent' states no derivative: add float derivative(float score, const "
            "Position& at) const");
}

}  // namespace
}  // namespace regard
