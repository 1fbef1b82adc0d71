// Linear attention as a recurrence: closed forms of its four rules.
#include "regard/linear_recurrence.h"

#include "attention/cases.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

constexpr Index len = 23, key_dim = 6, value_dim = 5;

struct Data {
  Tensor<float> q = normal({2, 4, len, key_dim}, 1), k = normal({2, 2, len, key_dim}, 2, 0.4),
                v = normal({2, 2, len, value_dim}, 3), decay = normal({2, 2, len, key_dim}, 4),
                beta = normal({2, 2, len}, 5);
  Data() {
    for (float& value : decay.values()) value = -std::abs(value) * 0.3f;
    for (float& value : beta.values()) value = 1 / (1 + std::exp(-value));
  }
  RecurrenceInputs<float> inputs() const { return {q, k, v}; }
};

// out_t = scale * sum over s <= t of (sum_r q_tr k_sr exp(decay between s and t)) v_s.
void expect_sums(const Data& data, bool gated) {
  auto in = data.inputs();
  if (gated) in.decay = data.decay;
  const auto out = linear_recurrence(in).out;
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 4; ++h)
      for (Index t = 0; t < len; ++t)
        for (Index d = 0; d < value_dim; ++d) {
          double wanted = 0;
          for (Index r = 0; r < key_dim; ++r) {
            double between = 0;
            for (Index s = t; s >= 0; --s) {
              wanted += static_cast<double>(in.q(b, h, t, r)) * in.k(b, h / 2, s, r) * std::exp(between) *
                        in.v(b, h / 2, s, d);
              if (gated) between += in.decay(b, h / 2, s, r);
            }
          }
          ASSERT_NEAR(out.view<4>()(b, h, t, d), wanted / std::sqrt(6.0), 2e-5) << t;
        }
}

TEST(linear_recurrence, plain_and_gated_rules_are_sums_over_earlier_tokens) {
  expect_sums(Data(), false);
  expect_sums(Data(), true);
}

// With orthonormal keys and beta 1 the state holds exactly the last value of each key.
TEST(linear_recurrence, the_delta_rule_replaces_what_a_key_held) {
  Tensor<float> k({1, 1, 6, 3}), q({1, 1, 6, 3}), beta({1, 1, 6}, 1.0f);
  const Index order[] = {0, 1, 2, 1, 0, 1};
  for (Index t = 0; t < 6; ++t) k[t * 3 + order[t]] = 1;
  q[5 * 3 + 0] = 1;  // the last query asks for key 0, which token 4 wrote last
  const auto v = normal({1, 1, 6, 4}, 6);
  RecurrenceInputs<float> in{q, k, v};
  in.beta = beta;
  in.scale = 1.0f;
  const auto got = linear_recurrence(in);
  for (Index d = 0; d < 4; ++d) {
    EXPECT_FLOAT_EQ(got.out[5 * 4 + d], v[4 * 4 + d]);
    EXPECT_FLOAT_EQ(got.state[1 * 4 + d], v[5 * 4 + d]);
    EXPECT_FLOAT_EQ(got.state[2 * 4 + d], v[2 * 4 + d]);
  }
}

TEST(linear_recurrence, pieces_give_the_bits_of_the_whole) {
  const Data data;
  auto in = data.inputs();
  in.decay = data.decay;
  in.beta = data.beta;
  const auto whole = linear_recurrence(in);
  auto first = in;
  first.q = in.q.slice(2, 0, 9), first.k = in.k.slice(2, 0, 9), first.v = in.v.slice(2, 0, 9);
  first.decay = in.decay.slice(2, 0, 9), first.beta = in.beta.slice(2, 0, 9);
  const auto a = linear_recurrence(first);
  auto rest = in;
  rest.q = in.q.slice(2, 9, len), rest.k = in.k.slice(2, 9, len), rest.v = in.v.slice(2, 9, len);
  rest.decay = in.decay.slice(2, 9, len), rest.beta = in.beta.slice(2, 9, len);
  rest.state = a.state;
  const auto b = linear_recurrence(rest);
  EXPECT_TRUE(testing::same_bits(b.state, whole.state));
  EXPECT_TRUE(testing::same_bits(packed(whole.out.view<4>().slice(2, 9, len)), b.out));
}

TEST(linear_recurrence, one_decay_or_beta_for_many_is_the_same_as_copies) {
  Data data;
  for (Index i = 0; i < data.decay.count(); ++i) data.decay[i] = data.decay[i / key_dim * key_dim];
  for (Index b = 0; b < 2; ++b)
    for (Index t = 0; t < len; ++t) data.beta[(b * 2 + 1) * len + t] = data.beta[b * 2 * len + t];
  auto in = data.inputs();
  in.decay = data.decay;
  in.beta = data.beta;
  const auto copies = linear_recurrence(in);
  in.decay = in.decay.slice(3, 0, 1);
  in.beta = in.beta.slice(1, 0, 1);
  EXPECT_TRUE(testing::same_bits(linear_recurrence(in).out, copies.out));
}

TEST(linear_recurrence, floats_follow_the_double_definition) {
  const Data data;
  const auto q = widen(data.q), k = widen(data.k), v = widen(data.v), decay = widen(data.decay),
             beta = widen(data.beta);
  auto in = data.inputs();
  in.decay = data.decay;
  in.beta = data.beta;
  RecurrenceInputs<double> wide{q, k, v, decay, beta};
  const auto got = linear_recurrence(in);
  const auto wanted = reference::linear_recurrence(wide);
  for (Index i = 0; i < got.out.count(); ++i) EXPECT_NEAR(got.out[i], wanted.out[i], 1e-5);
}

TEST(linear_recurrence, what_does_not_fit_is_named) {
  const Data data;
  auto in = data.inputs();
  in.k = in.k.slice(2, 0, 5);
  in.v = in.v.slice(2, 0, 5);
  EXPECT_NE(message_of([&] { linear_recurrence(in); }).find("length 23 but k has 5"), std::string::npos);
  in = data.inputs();
  in.beta = View<const float, 3>(data.beta).slice(2, 0, 5);
  EXPECT_NE(message_of([&] { linear_recurrence(in); }).find("[2,2,5]"), std::string::npos);
  in = data.inputs();
  in.state = data.q;
  EXPECT_NE(message_of([&] { linear_recurrence(in); }).find("state has shape"), std::string::npos);
}

}  // namespace
}  // namespace regard
