// Every refusal names the call, both sides and both shapes.
#include "attention/cases.h"
#include "regard/plan.h"

namespace regard {
namespace {

using namespace testing;

std::string refusal(const Shape& q, const Shape& k, const Shape& v, const AttendOptions& options = {}) {
  const Tensor<float> a(q), b(k), c(v);
  return message_of([&] { attend(a, b, c, options); });
}

std::string refusal(const AttendOptions& options) { return refusal({2, 4, 3, 8}, {2, 2, 5, 8}, {2, 2, 5, 8}, options); }

TEST(errors, the_example_of_the_rules_reads_word_for_word) {
  EXPECT_EQ(refusal({1, 8, 16, 80}, {1, 8, 16, 64}, {1, 8, 16, 64}),
            "attend: k has head_dim 64 but q has 80 (q [1,8,16,80], k [1,8,16,64])");
}

TEST(errors, sizes_that_disagree_name_both_tensors) {
  EXPECT_EQ(refusal({1, 1, 2, 0}, {1, 1, 3, 0}, {1, 1, 3, 4}), "attend: head_dim is 0 (q [1,1,2,0], k [1,1,3,0])");
  EXPECT_EQ(refusal({2, 1, 2, 4}, {1, 1, 3, 4}, {1, 1, 3, 4}),
            "attend: k has batch 1 but q has 2 (q [2,1,2,4], k [1,1,3,4])");
  EXPECT_EQ(refusal({2, 1, 2, 4}, {2, 1, 3, 4}, {1, 1, 3, 4}),
            "attend: v has batch 1 but q has 2 (q [2,1,2,4], v [1,1,3,4])");
  EXPECT_EQ(refusal({1, 2, 2, 4}, {1, 2, 3, 4}, {1, 1, 3, 4}),
            "attend: v has 1 heads but k has 2 (k [1,2,3,4], v [1,1,3,4])");
  EXPECT_EQ(refusal({1, 1, 2, 4}, {1, 1, 3, 4}, {1, 1, 2, 4}),
            "attend: v has kv_len 2 but k has 3 (k [1,1,3,4], v [1,1,2,4])");
}

TEST(errors, query_heads_must_be_a_multiple_of_key_heads) {
  EXPECT_EQ(refusal({1, 5, 2, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}),
            "attend: q has 5 heads, not a multiple of the 2 heads of k (q [1,5,2,4], k [1,2,3,4])");
  EXPECT_EQ(refusal({1, 5, 2, 4}, {1, 0, 3, 4}, {1, 0, 3, 4}),
            "attend: q has 5 heads, not a multiple of the 0 heads of k (q [1,5,2,4], k [1,0,3,4])");
}

TEST(errors, options_that_do_not_fit_are_named_with_their_shapes) {
  const Tensor<float> bias({1, 3, 1, 5});
  EXPECT_EQ(refusal({.bias = bias.view<4>()}),
            "attend: bias [1,3,1,5] does not broadcast to [batch,q_heads,q_len,kv_len] = [2,4,3,5]");
  const Tensor<std::uint8_t> allowed({3, 4});
  EXPECT_EQ(refusal({.mask = boolean(allowed.view<2>())}),
            "attend: boolean mask: shape [3,4] does not broadcast to [batch,q_heads,q_len,kv_len] = [2,4,3,5]");
  const Tensor<std::uint8_t> three({4, 3, 5});
  EXPECT_EQ(refusal({.mask = boolean(three.view<3>())}),
            "attend: boolean mask: shape [4,3,5] does not broadcast to [batch,q_heads,q_len,kv_len] = [2,4,3,5]");
  EXPECT_EQ(refusal({.q_start = std::vector<Index>{1, 2, 3}}), "attend: q_start has 3 entries but batch is 2");
  const std::vector<float> sink{1, 2};
  EXPECT_EQ(refusal({.sink = sink}), "attend: sink has 2 entries but q has 4 heads");
  const std::vector<Index> three_lengths{1, 2, 3}, long_length{5, 6}, negative{-1, 5};
  EXPECT_EQ(refusal({.kv_lengths = three_lengths}), "attend: kv_lengths has 3 entries but batch is 2");
  EXPECT_EQ(refusal({.kv_lengths = long_length}), "attend: kv_lengths holds 6 but kv_len is 5");
  EXPECT_EQ(refusal({.kv_lengths = negative}), "attend: kv_lengths holds -1 but kv_len is 5");
  EXPECT_EQ(refusal({.score = alibi(alibi_slopes(3))}), "attend: alibi: 3 slopes but q has 4 heads");
  EXPECT_EQ(refusal({.scale = infinity}), "attend: scale is not finite");
  EXPECT_EQ(refusal({.dropout = {1.0, 0}}), "attend: dropout: p must be in [0, 1), got 1.000000");
  EXPECT_EQ(refusal({.observe = {.rectangles = {{0, 0, 2, 2, 0, 5}}}}),
            "attend: rectangle of batch 0, head 0, rows 2+2, keys 0+5 lies outside [batch,q_heads,q_len,kv_len] = "
            "[2,4,3,5]");
}

TEST(errors, a_soft_cap_that_is_not_first_is_refused) {
  const auto slopes = alibi_slopes(4);
  EXPECT_EQ(refusal({.score = alibi(slopes) + softcap(5)}),
            "attend: softcap must be the first score modifier, it is number 2");
  EXPECT_EQ(refusal({.score = softcap(5) + alibi(slopes) + softcap(5)}),
            "attend: softcap must be the first score modifier, it is number 3");
  EXPECT_EQ(refusal({.score = softcap(5) + alibi(slopes)}), "nothing was refused");
  for (const double cap : {0.0, -1.0, static_cast<double>(infinity), static_cast<double>(not_a_number)})
    EXPECT_THROW(softcap(cap), ArgumentError) << cap;
}

struct ByDistance {
  static constexpr const char* name = "by distance";
  float operator()(float score, const Position& at) const { return score - static_cast<float>(at.distance()); }
};

// 3 queries, 5 keys: the farthest pair that is let in is 2^31 - 1 - 5 apart.
TEST(errors, positions_that_32_bit_distances_can_not_hold_are_refused) {
  const Index far = (Index{1} << 31) - 1 - 3 - 5, farthest = std::numeric_limits<Index>::min();
  const auto slopes = alibi_slopes(4);
  EXPECT_EQ(refusal({.score = alibi(slopes), .q_start = far}), "nothing was refused");
  EXPECT_EQ(refusal({.score = alibi(slopes), .q_start = -far}), "nothing was refused");
  EXPECT_EQ(refusal({.score = softcap(5) + alibi(slopes), .q_start = far + 1}),
            "attend: q_start 2147483640 with q_len 3 and kv_len 5 exceeds the 32-bit distances of score modifier "
            "'alibi'");
  EXPECT_EQ(refusal({.score = ByDistance{}, .q_start = std::vector<Index>{0, -far - 1}}),
            "attend: q_start -2147483640 with q_len 3 and kv_len 5 exceeds the 32-bit distances of score modifier "
            "'by distance'");
  EXPECT_NE(refusal({.score = ByDistance{}, .q_start = farthest}), "nothing was refused");
  EXPECT_EQ(refusal({.score = softcap(5), .q_start = far * 4}), "nothing was refused") << "no distance is looked at";
  EXPECT_EQ(refusal({.mask = causal(), .q_start = far * 4}), "nothing was refused");
}

TEST(errors, each_call_signs_with_its_own_name) {
  const Tensor<float> q({1, 1, 2, 4}), k({1, 1, 3, 5}), v({1, 1, 3, 4}), lse({1, 1, 2});
  const Tensor<double> qd({1, 1, 2, 4}), kd({1, 1, 3, 5}), vd({1, 1, 3, 4});
  const std::string rest = ": k has head_dim 5 but q has 4 (q [1,1,2,4], k [1,1,3,5])";
  EXPECT_EQ(message_of([&] { plan_attend(q, k, v); }), "plan_attend" + rest);
  EXPECT_EQ(message_of([&] { reference::attend(qd, kd, vd); }), "reference::attend" + rest);
  EXPECT_EQ(message_of([&] { attend_backward(q, q, k, v, {q.view<4>(), lse.view<3>()}); }), "attend_backward" + rest);
}

TEST(errors, the_backward_pass_names_what_has_the_wrong_shape) {
  const auto in = random_inputs({.q_len = 2, .kv_len = 3});
  const Tensor<float> right({1, 1, 2, 8}), wrong({1, 1, 3, 8}), lse({1, 1, 2}), long_lse({1, 1, 3});
  const auto refused = [&](const Tensor<float>& dout, const Tensor<float>& out, const Tensor<float>& given_lse) {
    return message_of([&] { attend_backward(dout, in.q, in.k, in.v, {out.view<4>(), given_lse.view<3>()}); });
  };
  EXPECT_EQ(refused(wrong, right, lse), "attend_backward: dout has shape [1,1,3,8] but needs [1,1,2,8]");
  EXPECT_EQ(refused(right, wrong, lse), "attend_backward: forward.out has shape [1,1,3,8] but needs [1,1,2,8]");
  EXPECT_EQ(refused(right, right, long_lse), "attend_backward: forward.lse has shape [1,1,3] but needs [1,1,2]");
  EXPECT_EQ(message_of([&] {
              attend_backward(right, in.q, in.k, in.v, {right.view<4>(), lse.view<3>()}, {}, long_lse);
            }),
            "attend_backward: dlse has shape [1,1,3] but needs [1,1,2]");
  Tensor<float> out({1, 1, 2, 7});
  EXPECT_EQ(message_of([&] { attend_into(out, in.q, in.k, in.v); }),
            "attend: out has shape [1,1,2,7] but needs [1,1,2,8]");
}

}  // namespace
}  // namespace regard
