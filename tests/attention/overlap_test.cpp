// Which outputs of one call may lie in each other's memory: those that share no element.
#include "attention/overlap.h"

#include <set>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;
using Four = std::array<Index, 4>;

std::vector<const float*> elements(const View<float, 4>& x) {
  std::vector<const float*> all;
  for (Index b = 0; b < x.size(0); ++b)
    for (Index h = 0; h < x.size(1); ++h)
      for (Index i = 0; i < x.size(2); ++i)
        for (Index d = 0; d < x.size(3); ++d) all.push_back(&x(b, h, i, d));
  return all;
}

bool share(const View<float, 4>& a, const View<float, 4>& b) { return detail::share_memory(a, b); }

// A window whose elements are apart: every axis steps over those before it, by
// a little more at random; axes in any order and direction.
View<float, 4> random_window(float* middle, Random& random) {
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  Four sizes{}, strides{};
  Index span = 1;
  for (std::size_t axis : order) {
    sizes[axis] = 1 + static_cast<Index>(random.below(3));
    const Index stride = span + static_cast<Index>(random.below(4));
    strides[axis] = random.below(2) ? stride : -stride;
    span += stride * (sizes[axis] - 1);
  }
  return {middle + random.below(60), sizes, strides};
}

TEST(share_memory, agrees_with_counting_every_element) {
  std::vector<float> memory(20000);
  Random random(1);
  int shared = 0, interleaved = 0;
  for (int repeat = 0; repeat < 5000; ++repeat) {
    const auto a = random_window(memory.data() + 10000, random), b = random_window(memory.data() + 10000, random);
    const auto of_a = elements(a), of_b = elements(b);
    const std::set<const float*> places(of_a.begin(), of_a.end());
    const bool right = std::any_of(of_b.begin(), of_b.end(), [&](const float* at) { return places.contains(at); });
    ASSERT_EQ(detail::share_memory(a, b), right) << "repeat " << repeat;
    ASSERT_EQ(detail::share_memory(b, a), right) << "repeat " << repeat;
    const auto [low, high] = std::minmax_element(of_b.begin(), of_b.end());
    shared += right;
    interleaved += !right && *places.begin() <= *high && *low <= *places.rbegin();
  }
  EXPECT_GT(shared, 200);
  EXPECT_GT(interleaved, 200);
}

TEST(share_memory, no_element_is_shared_with_an_empty_window) {
  float one = 0;
  EXPECT_FALSE(share({&one, Four{1, 1, 0, 1}}, {&one, Four{1, 1, 1, 1}}));
  EXPECT_TRUE(share({&one, Four{1, 1, 1, 1}}, {&one, Four{1, 1, 1, 1}}));
}

TEST(share_memory, even_and_odd_places_are_apart) {
  std::vector<float> memory(200);
  const Four sizes{1, 3, 4, 5}, strides{0, 40, 10, 2}, others{0, -44, 12, 2};
  EXPECT_FALSE(share({&memory[0], sizes, strides}, {&memory[101], sizes, others}));
  EXPECT_TRUE(share({&memory[0], sizes, strides}, {&memory[100], sizes, others}));
}

// Elements of two and of four bytes, in one another's gaps or not.
TEST(share_memory, elements_of_different_width_share_bytes) {
  std::vector<float> memory(64);
  auto* halves = reinterpret_cast<BFloat16*>(memory.data());
  const Four sizes{1, 1, 4, 2}, wide{0, 0, 4, 1}, narrow{0, 0, 8, 1};
  const auto shares = [&](Index first_half) {
    return detail::share_memory(View<float, 4>(memory.data(), sizes, wide),
                                View<BFloat16, 4>(halves + first_half, sizes, narrow));
  };
  // Rows of four floats, of which the first two are taken: halves 0 to 3 of 8.
  for (Index first = 0; first <= 3; ++first) EXPECT_TRUE(shares(first)) << first;
  for (Index first = 4; first <= 6; ++first) EXPECT_FALSE(shares(first)) << first;
  EXPECT_TRUE(shares(7));
}

struct BackwardCall {
  static constexpr Index batch = 2, heads = 3, seq = 5, dim = 4;
  Inputs in = random_inputs({batch, heads, heads, seq, seq, dim, dim});
  Tensor<float> dout = normal({batch, heads, seq, dim}, 9);
  AttendResult forward = attend(in.q, in.k, in.v, {.observe = {.lse = true}});
  void into(const GradientViews& gradients) const {
    attend_backward_into(gradients, dout, in.q, in.k, in.v, {forward.out.view<4>(), forward.lse.view<3>()});
  }
  // Heads in the columns from `first` on of a tensor [batch, seq, width].
  static View<float, 4> columns(Tensor<float>& x, Index first) {
    const Index width = x.size(2);
    return {x.data() + first, {batch, heads, seq, dim}, {seq * width, dim, width, 1}};
  }
};

TEST(gradients, of_keys_and_values_may_be_columns_of_one_tensor) {
  const BackwardCall call;
  Tensor<float> all({2, 5, 36}), dq({2, 3, 5, 4}), dk = dq, dv = dq;
  call.into({BackwardCall::columns(all, 0), BackwardCall::columns(all, 12), BackwardCall::columns(all, 24)});
  call.into({dq, dk, dv});
  EXPECT_TRUE(same_bits(packed(BackwardCall::columns(all, 0)), dq));
  EXPECT_TRUE(same_bits(packed(BackwardCall::columns(all, 12)), dk));
  EXPECT_TRUE(same_bits(packed(BackwardCall::columns(all, 24)), dv));
}

TEST(gradients, that_share_an_element_are_refused) {
  const BackwardCall call;
  Tensor<float> all({2, 5, 36}), dq({2, 3, 5, 4}), dk = dq;
  EXPECT_EQ(message_of([&] {
              call.into({dq, dk, dk});
            }),
            "attend_backward: dk [2,3,5,4] and dv [2,3,5,4] share memory (strides [60,20,4,1] and [60,20,4,1])");
  EXPECT_EQ(
      message_of([&] {
        call.into({BackwardCall::columns(all, 0), BackwardCall::columns(all, 12), BackwardCall::columns(all, 23)});
      }),
      "attend_backward: dk [2,3,5,4] and dv [2,3,5,4] share memory (strides [180,4,36,1] and [180,4,36,1])");
  EXPECT_EQ(message_of([&] {
              call.into({BackwardCall::columns(all, 0), BackwardCall::columns(all, 4), dk});
            }),
            "attend_backward: dq [2,3,5,4] and dk [2,3,5,4] share memory (strides [180,4,36,1] and [180,4,36,1])");
}

TEST(share_memory, a_broadcast_window_is_where_its_one_element_is) {
  std::vector<float> memory(60);
  const Four sizes{1, 1, 5, 4}, broadcast{0, 0, 0, 0}, rows{0, 0, 8, 1};
  EXPECT_FALSE(share({&memory[4], sizes, broadcast}, {&memory[0], sizes, rows}));
  EXPECT_TRUE(share({&memory[9], sizes, broadcast}, {&memory[0], sizes, rows}));
}

// Rows that overlap their neighbours, as a sliding window on a signal has them.
TEST(share_memory, an_input_may_overlap_itself) {
  std::vector<float> memory(60);
  const InputView sliding(&memory[20], Four{1, 1, 5, 4}, Four{0, 0, 1, 1});  // 20 to 27
  const Four one{1, 1, 1, 1}, stay{};
  for (Index at = 0; at < 60; ++at)
    EXPECT_EQ(detail::share_memory(sliding, OutputView(&memory[static_cast<std::size_t>(at)], one, stay)),
              at >= 20 && at <= 27)
        << at;
}

TEST(gradients, in_the_memory_of_an_input_are_refused) {
  const BackwardCall call;
  Tensor<float> dq({2, 3, 5, 4}), dk = dq, dv = dq;
  const auto into = [&](const Tensor<float>& input) {
    // Not const where it was made.
    const View<float, 4> there(const_cast<float*>(input.data()), {2, 3, 5, 4}, {60, 20, 4, 1});
    return message_of([&] { call.into({dq, there, dv}); });
  };
  const std::string rest = " [2,3,5,4] share memory (strides [60,20,4,1] and [60,20,4,1])";
  EXPECT_EQ(into(call.in.q), "attend_backward: dk [2,3,5,4] and q" + rest);
  EXPECT_EQ(into(call.in.v), "attend_backward: dk [2,3,5,4] and v" + rest);
  EXPECT_EQ(into(call.dout), "attend_backward: dk [2,3,5,4] and dout" + rest);
  EXPECT_EQ(into(call.forward.out), "attend_backward: dk [2,3,5,4] and out" + rest);
}

TEST(outputs, in_the_memory_of_an_input_are_refused_and_beside_it_are_not) {
  Inputs in = random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = 5, .kv_len = 5, .head_dim = 4, .value_dim = 4});
  EXPECT_EQ(message_of([&] { attend_into(in.v, in.q, in.k, in.v); }),
            "attend: out [1,2,5,4] and v [1,2,5,4] share memory (strides [40,20,4,1] and [40,20,4,1])");
  // Columns 0 to 3 and 4 to 7 of one tensor.
  Tensor<float> both({1, 2, 5, 8});
  const Four sizes{1, 2, 5, 4}, strides{80, 40, 8, 1};
  const View<float, 4> q(both.data(), sizes, strides), out(both.data() + 4, sizes, strides);
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 5; ++i)
      for (Index d = 0; d < 4; ++d) q(0, h, i, d) = in.q[(h * 5 + i) * 4 + d];
  attend_into(out, q, in.k, in.v);
  EXPECT_TRUE(same_bits(packed(out), attend(in.q, in.k, in.v).out));
}

}  // namespace
}  // namespace regard
