// Linear attention and the Performer: against their definitions in plain double
// loops, by algebra, step by step, and as an estimate of exact attention.
#include "regard/linear_attention.h"

#include "attention/cases.h"
#include "attention/slopes.h"
#include "regard/performer.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

struct Wide {
  explicit Wide(const testing::Inputs& in) : q(widen(in.q)), k(widen(in.k)), v(widen(in.v)) {}
  Tensor<double> q, k, v;
};

// One method: float passes, double definition.
struct Method {
  std::string name;
  std::function<LinearResult<float>(const LinearInputs&, const LinearOptions&)> forward;
  std::function<LinearGradients(const Tensor<float>&, const LinearInputs&, const LinearResult<float>&,
                                const LinearOptions&)>
      backward;
  std::function<Tensor<double>(const Wide&, const LinearOptions&)> definition;
};

std::vector<Method> methods(Index head_dim, Index features) {
  const auto random = performer_features(features, head_dim, 5);
  return {
      {"linear", [](const auto& in, const auto& o) { return linear_attend(in, o); },
       [](const auto& dout, const auto& in, const auto& forward, const auto& o) {
         return linear_attend_backward(dout, in, forward, o);
       },
       [](const Wide& in, const auto& o) { return reference::linear_attend(in.q, in.k, in.v, o).out; }},
      {"Performer", [=](const auto& in, const auto& o) { return performer_attend(in, random, o); },
       [=](const auto& dout, const auto& in, const auto& forward, const auto& o) {
         return performer_attend_backward(dout, in, random, forward, o);
       },
       [=](const Wide& in, const auto& o) { return reference::performer_attend(in.q, in.k, in.v, random, o).out; }}};
}

LinearInputs inputs_of(const testing::Inputs& in) { return {in.q, in.k, in.v}; }

void expect_definition(const Method& method, const testing::Inputs& in, const LinearOptions& options) {
  SCOPED_TRACE(method.name + (options.causal ? " causal " : " ") + in.q.text() + in.k.text() + " on " +
               instruction_set());
  const auto got = method.forward(inputs_of(in), options);
  Wide wide(in);
  const auto wanted = method.definition(wide, options);
  ASSERT_EQ(got.out.shape(), wanted.shape());
  for (Index i = 0; i < wanted.count(); ++i) ASSERT_NEAR(got.out[i], wanted[i], 4e-6) << i;
  const auto dout = normal(got.out.shape(), 60);
  const auto wide_dout = widen(dout);
  const auto gradients = method.backward(dout, inputs_of(in), got, options);
  const auto loss = [&] { return testing::weighed(method.definition(wide, options), wide_dout); };
  testing::expect_slopes("dq", gradients.dq, wide.q, loss, 1e-4);
  testing::expect_slopes("dk", gradients.dk, wide.k, loss, 1e-4);
  testing::expect_slopes("dv", gradients.dv, wide.v, loss, 1e-4);
}

TEST(linear_attention, matches_its_definition_forward_and_backward) {
  testing::on_each_instruction_set([] {
    for (const Method& method : methods(12, 20))
      for (bool causal : {false, true})
        for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{1, 1}, {5, 9}, {70, 70}})
          expect_definition(method,
                            testing::random_inputs({.batch = 2,
                                                    .q_heads = 4,
                                                    .kv_heads = 2,
                                                    .q_len = q_len,
                                                    .kv_len = kv_len,
                                                    .head_dim = 12,
                                                    .value_dim = 9}),
                            {.causal = causal});
  });
}

TEST(linear_attention, causal_blocks_meet_at_any_offset) {
  for (const Method& method : methods(8, 16)) {
    const auto in = testing::random_inputs({.q_heads = 2, .q_len = 40, .kv_len = 150});
    expect_definition(method, in, {.causal = true});
    expect_definition(method, in, {.causal = true, .q_start = top_left()});
    expect_definition(method, testing::random_inputs({.q_len = 150, .kv_len = 40}), {.causal = true});
    expect_definition(method, testing::random_inputs({.q_len = 10, .kv_len = 40}), {.causal = true, .q_start = 200});
  }
}

TEST(linear_attention, hidden_keys_contribute_nothing_whatever_they_hold) {
  Tensor<std::uint8_t> mask({2, 80}, std::uint8_t{1});
  for (Index j = 0; j < 80; ++j) mask[j] = j >= 3 && j % 7 != 0;
  for (Index j = 50; j < 80; ++j) mask[80 + j] = 0;
  for (const Method& method : methods(8, 16))
    for (bool causal : {false, true}) {
      const LinearOptions options{.causal = causal, .key_mask = std::as_const(mask).view<2>()};
      const auto in = testing::random_inputs({.batch = 2, .q_len = 80, .kv_len = 80});
      expect_definition(method, in, options);
      auto dirty = in;
      for (Index j = 0; j < 160; ++j)
        if (mask[j] == 0) dirty.k[j * 8] = testing::not_a_number, dirty.v[j * 8 + 3] = testing::infinity;
      const auto clean = method.forward(inputs_of(in), options), got = method.forward(inputs_of(dirty), options);
      EXPECT_TRUE(testing::same_bits(clean.out, got.out));
      const auto dout = normal(got.out.shape(), 61);
      const auto right = method.backward(dout, inputs_of(in), clean, options);
      const auto gradients = method.backward(dout, inputs_of(dirty), got, options);
      EXPECT_TRUE(testing::same_bits(gradients.dq, right.dq));
      EXPECT_TRUE(testing::same_bits(gradients.dk, right.dk));
      EXPECT_TRUE(testing::same_bits(gradients.dv, right.dv));
    }
}

// The cost is that of the keys: without that this test would never end.
TEST(linear_attention, queries_far_behind_the_keys_cost_no_more) {
  const auto in = testing::random_inputs({.q_len = 70, .kv_len = 40});
  for (const Method& method : methods(8, 16)) {
    const LinearOptions far{.causal = true, .q_start = Index{1} << 50};
    const auto got = method.forward(inputs_of(in), far), wanted = method.forward(inputs_of(in), {});
    EXPECT_TRUE(testing::same_bits(got.out, wanted.out));
    const auto dout = normal(got.out.shape(), 64);
    const auto gradients = method.backward(dout, inputs_of(in), got, far);
    const auto right = method.backward(dout, inputs_of(in), wanted, {});
    EXPECT_TRUE(testing::same_bits(gradients.dq, right.dq));
    for (Index i = 0; i < right.dk.count(); ++i) ASSERT_NEAR(gradients.dk[i], right.dk[i], 1e-5);
    for (Index i = 0; i < right.dv.count(); ++i) ASSERT_NEAR(gradients.dv[i], right.dv[i], 1e-5);
  }
}

// Rows [first, last) of [rows, 8]. Not bit for bit: a Performer's reference
// leaves out keys that are NaN.
void expect_same_rows(const Tensor<float>& got, const Tensor<float>& wanted, Index first, Index last) {
  for (Index i = first * 8; i < last * 8; ++i) ASSERT_NEAR(got[i], wanted[i], 1e-5) << i;
}

TEST(linear_attention, what_stands_behind_a_query_never_reaches_its_gradients) {
  const auto in = testing::random_inputs({.q_len = 20, .kv_len = 20});
  const auto dout = normal({1, 1, 20, 8}, 65);
  for (const Method& method : methods(8, 16)) {
    SCOPED_TRACE(method.name);
    const LinearOptions options{.causal = true};
    const auto clean = method.forward(inputs_of(in), options);
    const auto right = method.backward(dout, inputs_of(in), clean, options);
    auto dirty = in;
    dirty.k[12 * 8 + 1] = testing::not_a_number, dirty.v[12 * 8] = testing::infinity;
    const auto forward = method.forward(inputs_of(dirty), options);
    expect_same_rows(forward.out, clean.out, 0, 12);
    expect_same_rows(method.backward(dout, inputs_of(dirty), forward, options).dq, right.dq, 0, 12);
    auto poisoned = dout;
    poisoned[5 * 8] = testing::not_a_number;  // met by keys 0 to 5
    const auto gradients = method.backward(poisoned, inputs_of(in), clean, options);
    expect_same_rows(gradients.dv, right.dv, 6, 20);
    expect_same_rows(gradients.dk, right.dk, 6, 20);
  }
}

TEST(linear_attention, who_sees_nobody_or_is_not_seen_gets_zeros_whatever_it_holds) {
  const auto in = testing::random_inputs({.q_len = 10, .kv_len = 10});
  const auto dout = normal({1, 1, 10, 8}, 66);
  Tensor<std::uint8_t> mask({1, 10}, std::uint8_t{1});
  mask[0] = 0;
  for (const Method& method : methods(8, 16)) {
    SCOPED_TRACE(method.name);
    // Queries stand at -3 ... 6, key 0 is masked: rows 0 to 3 see nothing, keys 7 to 9 are not seen.
    const LinearOptions options{.causal = true, .q_start = -3, .key_mask = std::as_const(mask).view<2>()};
    const auto clean = method.forward(inputs_of(in), options);
    const auto right = method.backward(dout, inputs_of(in), clean, options);
    auto dirty = in;
    for (Index i = 0; i < 4; ++i) dirty.q[i * 8] = testing::not_a_number;
    for (Index j = 7; j < 10; ++j) dirty.k[j * 8] = testing::not_a_number, dirty.v[j * 8] = testing::infinity;
    const auto forward = method.forward(inputs_of(dirty), options);
    expect_same_rows(forward.out, clean.out, 0, 10);
    for (Index i = 0; i < 4 * 8; ++i) EXPECT_EQ(forward.out[i], 0.0f);
    const auto gradients = method.backward(dout, inputs_of(dirty), forward, options);
    expect_same_rows(gradients.dq, right.dq, 0, 10);
    expect_same_rows(gradients.dk, right.dk, 0, 10);
    expect_same_rows(gradients.dv, right.dv, 0, 10);
    // And where every key is masked, without causality.
    const Tensor<std::uint8_t> none({1, 10});
    const auto nothing = method.forward(inputs_of(dirty), {.key_mask = none});
    for (float value : nothing.out.values()) EXPECT_EQ(value, 0.0f);
    const auto zero = method.backward(dout, inputs_of(dirty), nothing, {.key_mask = none});
    for (const auto* gradient : {&zero.dq, &zero.dk, &zero.dv})
      for (float value : gradient->values()) EXPECT_EQ(value, 0.0f);
  }
}

// phi(q) . phi(k) of these is below what float32 holds.
TEST(linear_attention, tiny_features_keep_their_shares) {
  auto in = testing::random_inputs({.q_len = 9, .kv_len = 9});
  for (Tensor<float>* x : {&in.q, &in.k})
    for (float& value : x->values()) value = 0.5f * value - 46;
  for (bool causal : {false, true}) expect_definition(methods(8, 16)[0], in, {.causal = causal});
}

// Numerator and denominator are then the same sum; a first row is v[0].
TEST(linear_attention, values_of_one_come_out_as_one) {
  for (const Method& method : methods(8, 16)) {
    auto in = testing::random_inputs({.q_len = 130, .kv_len = 130});
    const auto first = method.forward(inputs_of(in), {.causal = true});
    for (Index d = 0; d < 8; ++d) EXPECT_NEAR(first.out[d], in.v[d], 1e-6);
    in.v.fill(1);
    for (bool causal : {false, true}) {
      const auto got = method.forward(inputs_of(in), {.causal = causal}).out;
      for (float value : got.values()) ASSERT_NEAR(value, 1.0f, 1e-6);
    }
  }
}

TEST(linear_attention, later_tokens_do_not_move_earlier_rows) {
  for (const Method& method : methods(8, 16)) {
    const auto in = testing::random_inputs({.q_len = 140, .kv_len = 140});
    auto other = in;
    for (Index d = 0; d < 8; ++d) other.k[100 * 8 + d] += 3, other.v[100 * 8 + d] -= 5;
    const auto a = method.forward(inputs_of(in), {.causal = true}).out;
    const auto b = method.forward(inputs_of(other), {.causal = true}).out;
    for (Index i = 0; i < 64 * 8; ++i) ASSERT_EQ(a[i], b[i]);  // earlier blocks: bit for bit
    for (Index i = 64 * 8; i < 100 * 8; ++i) ASSERT_NEAR(a[i], b[i], 2e-6);
  }
}

// Prompt of 90 in two pieces, then token by token.
template <class Decoder>
void expect_steps(Decoder decoder, const Tensor<float>& whole, const testing::Inputs& in) {
  const auto v4 = [](const Tensor<float>& x) { return x.view<4>(); };
  for (const auto& [begin, end] : {std::pair<Index, Index>{0, 70}, {70, 90}, {90, 91}, {91, 92}, {92, 100}}) {
    const auto out =
        decoder.step({v4(in.q).slice(2, begin, end), v4(in.k).slice(2, begin, end), v4(in.v).slice(2, begin, end)});
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 4; ++h)
        for (Index i = begin; i < end; ++i)
          for (Index d = 0; d < 8; ++d)
            ASSERT_NEAR(out.template view<4>()(b, h, i - begin, d), v4(whole)(b, h, i, d), 3e-6) << i;
  }
}

TEST(linear_attention, steps_give_the_causal_pass_over_the_whole) {
  const auto in = testing::random_inputs({.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 100, .kv_len = 100});
  expect_steps(LinearDecoder(), linear_attend(inputs_of(in), {.causal = true}).out, in);
  const auto features = performer_features(16, 8, 9);
  expect_steps(PerformerDecoder(features), performer_attend(inputs_of(in), features, {.causal = true}).out, in);
  LinearDecoder decoder;
  decoder.step(inputs_of(in));
  const auto other = testing::random_inputs({.q_heads = 4, .kv_heads = 2, .q_len = 1, .kv_len = 1});
  EXPECT_NE(message_of([&] { decoder.step(inputs_of(other)); }).find("[1,4,2,8,8]"), std::string::npos);
  const auto uneven = testing::random_inputs({.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 1, .kv_len = 2});
  EXPECT_NE(message_of([&] { decoder.step(inputs_of(uneven)); }).find("1 new tokens"), std::string::npos);
}

TEST(linear_attention, bits_do_not_depend_on_threads) {
  const auto in = testing::random_inputs({.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 100, .kv_len = 100});
  for (const Method& method : methods(8, 16)) {
    const auto run = [&](int count) {
      set_threads(count);
      const auto forward = method.forward(inputs_of(in), {.causal = true});
      const auto back = method.backward(normal(forward.out.shape(), 62), inputs_of(in), forward, {.causal = true});
      set_threads(0);
      return std::pair{forward.out, back.dk};
    };
    const auto one = run(1), three = run(3);
    EXPECT_TRUE(testing::same_bits(one.first, three.first));
    EXPECT_TRUE(testing::same_bits(one.second, three.second));
  }
}

TEST(linear_attention, empty_sizes_give_empty_or_zero_results) {
  for (const Method& method : methods(8, 16)) {
    const auto none = testing::random_inputs({.q_len = 3, .kv_len = 0});
    for (bool causal : {false, true}) {
      const auto got = method.forward(inputs_of(none), {.causal = causal});
      for (float value : got.out.values()) EXPECT_EQ(value, 0.0f);
      const auto back = method.backward(normal(got.out.shape(), 63), inputs_of(none), got, {.causal = causal});
      for (float value : back.dq.values()) EXPECT_EQ(value, 0.0f);
    }
    EXPECT_EQ(method.forward(inputs_of(testing::random_inputs({.q_len = 0, .kv_len = 3})), {}).out.count(), 0);
  }
}

TEST(performer, features_do_not_point_where_data_of_the_same_seed_does) {
  constexpr Index dim = 64;
  const auto features = performer_features(1, dim, 5).projection;
  Random random(5);
  double both = 0, ours = 0, theirs = 0;
  for (Index d = 0; d < dim; ++d) {
    const double x = random.normal();
    both += x * features[d], ours += features[d] * features[d], theirs += x * x;
  }
  // The cosine of independent directions has a deviation of 1 / 8.
  EXPECT_LT(std::abs(both), 0.6 * std::sqrt(ours * theirs));
}

TEST(performer, features_are_orthogonal_with_the_lengths_of_gaussian_vectors) {
  const auto features = performer_features(40, 16, 1).projection;
  const auto product = [&](Index a, Index b) {
    double sum = 0;
    for (Index d = 0; d < 16; ++d) sum += static_cast<double>(features[a * 16 + d]) * features[b * 16 + d];
    return sum;
  };
  for (Index first : {0, 16})
    for (Index a = 0; a < 16; ++a)
      for (Index b = 0; b < a; ++b) EXPECT_NEAR(product(first + a, first + b), 0.0, 1e-5);
  double mean = 0;
  for (Index f = 0; f < 40; ++f) mean += product(f, f) / 40;
  EXPECT_NEAR(mean, 16.0, 5 * std::sqrt(32.0 / 40));  // chi-squared with 16 degrees: variance 32
  EXPECT_FALSE(testing::same_bits(features, performer_features(40, 16, 2).projection));
  EXPECT_TRUE(testing::same_bits(features, performer_features(40, 16, 1).projection));
}

// Unbiased: over many draws the mean of phi(q) . phi(k) is exp(q . k scale), within five standard errors.
TEST(performer, the_kernel_is_estimated_without_bias) {
  const auto x = widen(normal({2, 4}, 70, 0.7));
  double right = 0, squares[2] = {0, 0};
  for (Index d = 0; d < 4; ++d) {
    right += x[d] * x[4 + d] / 2;
    squares[0] += x[d] * x[d] / 2;
    squares[1] += x[4 + d] * x[4 + d] / 2;
  }
  right = std::exp(right);
  double sum = 0, sum_of_squares = 0;
  constexpr int draws = 4000;
  for (int seed = 0; seed < draws; ++seed) {
    const auto w = performer_features(8, 4, static_cast<std::uint64_t>(seed)).projection;
    double estimate = 0;
    for (Index f = 0; f < 8; ++f) {
      double exponent = -(squares[0] + squares[1]) / 2;
      for (Index d = 0; d < 4; ++d) exponent += static_cast<double>(w[f * 4 + d]) * (x[d] + x[4 + d]) / std::sqrt(2.0);
      estimate += std::exp(exponent) / 8;
    }
    sum += estimate;
    sum_of_squares += estimate * estimate;
  }
  const double mean = sum / draws, deviation = std::sqrt((sum_of_squares / draws - mean * mean) / draws);
  EXPECT_NEAR(mean, right, 5 * deviation);
}

// The error against exact attention falls like 1 / sqrt(features); for inputs of
// unit variance it takes more features than this test has time for.
TEST(performer, more_features_come_closer_to_exact_attention) {
  const testing::Inputs in{normal({1, 4, 64, 16}, 1, 0.5), normal({1, 4, 64, 16}, 2, 0.5), normal({1, 4, 64, 16}, 3)};
  const auto exact = attend(in.q, in.k, in.v).out;
  const auto error = [&](Index features) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const auto got = performer_attend(inputs_of(in), performer_features(features, 16, seed)).out;
      for (Index i = 0; i < got.count(); ++i) sum += std::pow(static_cast<double>(got[i]) - exact[i], 2);
    }
    return std::sqrt(sum / (4 * static_cast<double>(exact.count())));
  };
  const double few = error(32), many = error(2048);
  EXPECT_LT(many, few / 3);
  EXPECT_LT(many, 0.05);
}

// exp(w . x - |x|^2 / 2) of these is far outside float32, in both directions.
TEST(performer, stays_finite_where_plain_exponentials_do_not) {
  for (double size : {6.0, 15.0}) {
    const auto features = performer_features(64, 16, 3);
    testing::Inputs in{normal({1, 2, 60, 16}, 1, size), normal({1, 2, 60, 16}, 2, size), normal({1, 2, 60, 16}, 3)};
    for (bool causal : {false, true}) {
      const auto got = performer_attend(inputs_of(in), features, {.causal = causal});
      const Wide wide(in);
      const auto wanted = reference::performer_attend(wide.q, wide.k, wide.v, features, {.causal = causal}).out;
      EXPECT_TRUE(testing::all_finite(got.out));
      for (Index i = 0; i < wanted.count(); ++i) ASSERT_NEAR(got.out[i], wanted[i], 2e-3) << size << " at " << i;
    }
  }
}

// A key of small norm stands hundreds above the others: queries before it must not lose theirs.
TEST(performer, later_keys_do_not_silence_earlier_queries) {
  for (double size : {6.0, 8.0}) {
    const auto features = performer_features(128, 64, 3);
    testing::Inputs in{normal({1, 1, 60, 64}, 1, size), normal({1, 1, 60, 64}, 2, size), normal({1, 1, 60, 64}, 3)};
    for (Index d = 0; d < 64; ++d) in.k[40 * 64 + d] *= 0.05f;
    const LinearOptions options{.causal = true};
    const auto got = performer_attend(inputs_of(in), features, options);
    const Wide wide(in);
    const auto wanted = reference::performer_attend(wide.q, wide.k, wide.v, features, options).out;
    for (Index i = 0; i < wanted.count(); ++i) ASSERT_NEAR(got.out[i], wanted[i], 5e-3) << size << " at " << i;
    const auto gradients = performer_attend_backward(normal(got.out.shape(), 4), inputs_of(in), features, got, options);
    EXPECT_TRUE(testing::all_finite(gradients.dq));
    EXPECT_TRUE(testing::all_finite(gradients.dk));
    EXPECT_TRUE(testing::all_finite(gradients.dv));
    EXPECT_NE(gradients.dv[0], 0.0f);
  }
}

TEST(linear_attention, what_does_not_fit_is_named) {
  const auto in = testing::random_inputs({.q_len = 3, .kv_len = 4});
  const Tensor<std::uint8_t> mask({2, 4});
  EXPECT_NE(message_of([&] { linear_attend(inputs_of(in), {.key_mask = mask}); }).find("[2,4]"), std::string::npos);
  EXPECT_NE(message_of([&] { performer_attend(inputs_of(in), performer_features(4, 6, 0)); }).find("[4,6]"),
            std::string::npos);
  const auto forward = linear_attend(inputs_of(in));
  const auto wrong = normal({1, 1, 3, 7}, 1);
  EXPECT_NE(message_of([&] { linear_attend_backward(wrong, inputs_of(in), forward); }).find("[1,1,3,7]"),
            std::string::npos);
  EXPECT_THROW(performer_features(0, 4, 1), ArgumentError);
  PerformerDecoder decoder(performer_features(4, 6, 0));  // for head_dim 6, not 8
  const auto one = testing::random_inputs({.q_len = 1, .kv_len = 1});
  EXPECT_NE(message_of([&] { decoder.step(inputs_of(one)); }).find("[4,6]"), std::string::npos);
}

}  // namespace
}  // namespace regard
