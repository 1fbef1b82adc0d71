// Shaw's relative positions and Transformer-XL: against the plain double
// definition, against attention without positions, and across segments.
#include "regard/relative_attention.h"

#include "attention/cases.h"
#include "attention/slopes.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

// One call with everything it may have, in both precisions.
struct Case {
  std::string name;
  Tensor<float> q, k, v, keys, values, content, position;
  Index first = 0;
  Mask mask = {};

  RelativeInputs inputs() const {
    RelativeInputs in{q, k, v, {.first = first, .keys = keys}, {.mask = mask}};
    if (!values.empty()) in.terms.values = values;
    if (!content.empty()) in.terms.content_bias = content;
    if (!position.empty()) in.terms.position_bias = position;
    return in;
  }
};

struct WideCase {
  explicit WideCase(const Case& c)
      : q(widen(c.q)),
        k(widen(c.k)),
        v(widen(c.v)),
        keys(widen(c.keys)),
        values(widen(c.values)),
        content(widen(c.content)),
        position(widen(c.position)),
        first(c.first),
        mask(c.mask) {}
  BasicRelativeInputs<double> inputs() const {
    BasicRelativeInputs<double> in{q, k, v, {.first = first, .keys = keys}, {.mask = mask}};
    if (!values.empty()) in.terms.values = values;
    if (!content.empty()) in.terms.content_bias = content;
    if (!position.empty()) in.terms.position_bias = position;
    return in;
  }
  RelativeResult<double> run() const {
    const auto in = inputs();
    return reference::relative_attend(in.q, in.k, in.v, in.terms, in.options);
  }
  Tensor<double> q, k, v, keys, values, content, position;
  Index first;
  Mask mask;
};

void expect_near(const Tensor<float>& got, const Tensor<double>& wanted, double tolerance) {
  ASSERT_EQ(got.shape(), wanted.shape());
  for (Index i = 0; i < got.count(); ++i)
    ASSERT_TRUE(static_cast<double>(got[i]) == wanted[i] || std::abs(got[i] - wanted[i]) <= tolerance)
        << "at " << i << ": " << got[i] << " for " << wanted[i];
}

void expect_exact(const Case& c) {
  SCOPED_TRACE(c.name + " on " + instruction_set());
  const auto in = c.inputs();
  const auto got = relative_attend(in.q, in.k, in.v, in.terms, in.options);
  WideCase wide(c);
  const auto wanted = wide.run();
  expect_near(got.out, wanted.out, 3e-6);
  expect_near(got.lse, wanted.lse, 5e-6);

  const auto dout = normal(got.out.shape(), 50);
  const auto wide_dout = widen(dout);
  const auto gradients = relative_attend_backward(dout, in, got);
  const auto plain = reference::relative_attend_backward(wide_dout, wide.inputs());
  expect_near(gradients.dq, plain.dq, 3e-5);
  expect_near(gradients.dk, plain.dk, 3e-5);
  expect_near(gradients.dv, plain.dv, 3e-5);
  expect_near(gradients.dkeys, plain.dkeys, 1e-4);
  expect_near(gradients.dvalues, plain.dvalues, 1e-4);
  expect_near(gradients.dcontent_bias, plain.dcontent_bias, 1e-4);
  expect_near(gradients.dposition_bias, plain.dposition_bias, 1e-4);
  const auto loss = [&] { return testing::weighed(wide.run().out, wide_dout); };
  testing::expect_slopes("dq", gradients.dq, wide.q, loss);
  testing::expect_slopes("dk", gradients.dk, wide.k, loss);
  testing::expect_slopes("dv", gradients.dv, wide.v, loss);
  testing::expect_slopes("dkeys", gradients.dkeys, wide.keys, loss);
  if (!c.values.empty()) testing::expect_slopes("dvalues", gradients.dvalues, wide.values, loss);
  if (!c.content.empty()) testing::expect_slopes("dcontent", gradients.dcontent_bias, wide.content, loss);
  if (!c.position.empty()) testing::expect_slopes("dposition", gradients.dposition_bias, wide.position, loss);
}

// Tables shared by all heads, clipped at 4.
Case shaw(Index q_len, Index kv_len, const Mask& mask = {}) {
  return {"Shaw " + std::to_string(q_len) + " x " + std::to_string(kv_len),
          normal({2, 4, q_len, 12}, 1),
          normal({2, 2, kv_len, 12}, 2),
          normal({2, 2, kv_len, 20}, 3),
          normal({1, 9, 12}, 4),
          normal({1, 9, 20}, 5),
          {},
          {},
          -4,
          mask};
}

// Every distance has its own vector in every head; memory stands before the segment.
Case transformer_xl(Index q_len, Index kv_len) {
  return {"Transformer-XL " + std::to_string(q_len) + " x " + std::to_string(kv_len),
          normal({1, 2, q_len, 10}, 6),
          normal({1, 2, kv_len, 10}, 7),
          normal({1, 2, kv_len, 10}, 8),
          normal({2, kv_len, 10}, 9),
          {},
          normal({2, 10}, 10),
          normal({2, 10}, 11),
          -(kv_len - 1),
          causal()};
}

TEST(relative_attention, shaw_matches_its_definition_forward_and_backward) {
  testing::on_each_instruction_set([] {
    expect_exact(shaw(1, 1));
    expect_exact(shaw(7, 7));
    expect_exact(shaw(3, 30));
    expect_exact(shaw(30, 3));
    expect_exact(shaw(50, 50, causal()));
  });
  expect_exact(shaw(60, 230, window(40, 3)));
}

TEST(relative_attention, transformer_xl_matches_its_definition_forward_and_backward) {
  testing::on_each_instruction_set([] {
    expect_exact(transformer_xl(1, 1));
    expect_exact(transformer_xl(6, 6));
    expect_exact(transformer_xl(5, 12));
    expect_exact(transformer_xl(49, 80));
  });
  expect_exact(transformer_xl(60, 260));
}

// Tables of zeros: attention itself.
TEST(relative_attention, without_positions_it_is_attention) {
  Case c = shaw(70, 200, causal());
  c.keys.fill(0);
  c.values.fill(0);
  const auto in = c.inputs();
  const auto got = relative_attend(in.q, in.k, in.v, in.terms, in.options);
  const auto wanted =
      reference::attend(widen(c.q), widen(c.k), widen(c.v), {.mask = causal(), .observe = {.lse = true}});
  expect_near(got.out, wanted.out, 2e-6);
  expect_near(got.lse, wanted.lse, 3e-6);
}

// A table of keys alone is a bias q . keys[distance] * scale.
TEST(relative_attention, keys_of_distances_are_a_bias) {
  Case c = shaw(9, 21);
  c.values = {};
  const auto in = c.inputs();
  Tensor<double> bias({2, 4, 9, 21});
  const auto at = bias.view<4>();
  for (Index i = 0; i < bias.count(); ++i) {
    const Index j = i % 21, row = i / 21 % 9, h = i / 189 % 4, b = i / 756;
    const Index distance = std::clamp<Index>(j - (12 + row), -4, 4) + 4;
    for (Index d = 0; d < 12; ++d) at(b, h, row, j) += in.q(b, h, row, d) * c.keys[distance * 12 + d] / std::sqrt(12.0);
  }
  const auto wanted = reference::attend(widen(c.q), widen(c.k), widen(c.v), {.bias = std::as_const(bias).view<4>()});
  expect_near(relative_attend(in.q, in.k, in.v, in.terms, in.options).out, wanted.out, 3e-6);
}

// Two segments of 20, the second with the first as memory: the rows of one pass over 40.
TEST(relative_attention, a_segment_with_memory_equals_the_whole_sequence) {
  const Case whole = transformer_xl(40, 40);
  const auto in = whole.inputs();
  const auto all = relative_attend(in.q, in.k, in.v, in.terms, in.options).out;
  const auto second = relative_attend(in.q.slice(2, 20, 40), in.k, in.v, in.terms, in.options).out;
  auto near_terms = in.terms;
  near_terms.keys = in.terms.keys.slice(1, 20, 40);  // distances -19 ... 0 are all that a first segment meets
  near_terms.first = -19;
  const auto first =
      relative_attend(in.q.slice(2, 0, 20), in.k.slice(2, 0, 20), in.v.slice(2, 0, 20), near_terms, in.options).out;
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 20; ++i)
      for (Index d = 0; d < 10; ++d) {
        EXPECT_NEAR(first[(h * 20 + i) * 10 + d], all[(h * 40 + i) * 10 + d], 2e-6);
        EXPECT_NEAR(second[(h * 20 + i) * 10 + d], all[(h * 40 + 20 + i) * 10 + d], 2e-6);
      }
}

TEST(relative_attention, what_is_hidden_contributes_nothing_whatever_it_holds) {
  Case c = shaw(60, 60, causal() & !window(0, 0));
  const auto in = c.inputs();
  const auto clean = relative_attend(in.q, in.k, in.v, in.terms, in.options);
  const auto dout = normal(clean.out.shape(), 51);
  const auto right = relative_attend_backward(dout, in, clean);
  // Key 59 is seen by nobody, and query 0 sees nothing.
  Case dirty = c;
  auto poisoned = dout;
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 2; ++h) {
      dirty.k[((b * 2 + h) * 60 + 59) * 12] = testing::not_a_number;
      dirty.v[((b * 2 + h) * 60 + 59) * 20] = testing::infinity;
    }
    for (Index h = 0; h < 4; ++h) {
      dirty.q[(b * 4 + h) * 60 * 12] = testing::not_a_number;
      poisoned[(b * 4 + h) * 60 * 20] = testing::not_a_number;
    }
  }
  const auto bad = dirty.inputs();
  const auto got = relative_attend(bad.q, bad.k, bad.v, bad.terms, bad.options);
  EXPECT_TRUE(testing::same_bits(got.out, clean.out));
  EXPECT_TRUE(testing::same_bits(got.lse, clean.lse));
  EXPECT_EQ(got.lse[0], -testing::infinity);
  EXPECT_EQ(got.out[0], 0.0f);
  const auto gradients = relative_attend_backward(poisoned, bad, got);
  EXPECT_TRUE(testing::same_bits(gradients.dq, right.dq));
  EXPECT_TRUE(testing::same_bits(gradients.dk, right.dk));
  EXPECT_TRUE(testing::same_bits(gradients.dv, right.dv));
  EXPECT_TRUE(testing::same_bits(gradients.dkeys, right.dkeys));
  EXPECT_TRUE(testing::same_bits(gradients.dvalues, right.dvalues));
}

TEST(relative_attention, distances_that_no_visible_pair_has_may_hold_anything) {
  const Case c = shaw(12, 12, causal());
  Case dirty = c;  // row 4 is distance 0: what follows is the future
  for (Index row = 5; row < 9; ++row) {
    dirty.keys[row * 12] = testing::not_a_number;
    dirty.values[row * 20] = testing::infinity;
  }
  const auto in = c.inputs(), bad = dirty.inputs();
  const auto clean = relative_attend(in.q, in.k, in.v, in.terms, in.options);
  const auto got = relative_attend(bad.q, bad.k, bad.v, bad.terms, bad.options);
  expect_near(got.out, widen(clean.out), 1e-6);
  const auto dout = normal(clean.out.shape(), 53);
  const auto right = relative_attend_backward(dout, in, clean), gradients = relative_attend_backward(dout, bad, got);
  expect_near(gradients.dq, widen(right.dq), 1e-6);
  expect_near(gradients.dk, widen(right.dk), 1e-6);
  expect_near(gradients.dv, widen(right.dv), 1e-6);
  expect_near(gradients.dkeys, widen(right.dkeys), 1e-6);
  expect_near(gradients.dvalues, widen(right.dvalues), 1e-6);
}

// A visible score of +inf makes its row NaN, in the definition too.
TEST(relative_attention, infinite_scores_make_their_row_nan_in_the_reference) {
  WideCase wide(shaw(3, 3));
  wide.q[0] = 1e300, wide.k[0] = 1e300;
  const auto got = wide.run();
  EXPECT_TRUE(std::isnan(got.lse[0]));
  EXPECT_TRUE(std::isnan(got.out[0]));
  EXPECT_TRUE(std::isfinite(got.lse[1]));
}

TEST(relative_attention, bits_do_not_depend_on_threads) {
  const auto in_case = transformer_xl(100, 150);
  const auto in = in_case.inputs();
  const auto run = [&](int count) {
    set_threads(count);
    const auto forward = relative_attend(in.q, in.k, in.v, in.terms, in.options);
    auto gradients = relative_attend_backward(normal(forward.out.shape(), 52), in, forward);
    set_threads(0);
    return std::pair{forward.out, gradients.dkeys};
  };
  const auto one = run(1), three = run(3);
  EXPECT_TRUE(testing::same_bits(one.first, three.first));
  EXPECT_TRUE(testing::same_bits(one.second, three.second));
}

TEST(relative_attention, empty_sizes_give_empty_or_zero_results) {
  const Case c = shaw(3, 3);
  const auto in = c.inputs();
  const auto no_keys = relative_attend(in.q, in.k.slice(2, 0, 0), in.v.slice(2, 0, 0), in.terms, in.options);
  for (float value : no_keys.out.values()) EXPECT_EQ(value, 0.0f);
  EXPECT_EQ(no_keys.lse[0], -testing::infinity);
  EXPECT_EQ(relative_attend(in.q.slice(2, 0, 0), in.k, in.v, in.terms, in.options).out.count(), 0);
}

TEST(relative_attention, what_does_not_fit_is_named) {
  const Case c = shaw(3, 3);
  auto in = c.inputs();
  const auto says = [&] { return message_of([&] { relative_attend(in.q, in.k, in.v, in.terms, in.options); }); };
  EXPECT_EQ(says(), "nothing was refused");
  const auto values = normal({1, 8, 20}, 1), keys = normal({3, 9, 12}, 1), biases = normal({4, 11}, 1);
  in.terms.values = values;
  EXPECT_NE(says().find("[1,8,20]"), std::string::npos);
  in = c.inputs();
  in.terms.keys = keys;
  EXPECT_NE(says().find("[3,9,12]"), std::string::npos);
  in = c.inputs();
  in.terms.content_bias = biases;
  EXPECT_NE(says().find("[4,11]"), std::string::npos);
  in = c.inputs();
  in.terms.keys = {};
  EXPECT_NE(says().find("no distances"), std::string::npos);
}

}  // namespace
}  // namespace regard
