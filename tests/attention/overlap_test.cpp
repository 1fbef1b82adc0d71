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

}  // namespace
}  // namespace regard
