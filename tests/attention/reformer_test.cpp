// Reformer: against its definition for given buckets, exact attention where one
// bucket holds all, and the properties of its hash.
#include "regard/reformer.h"

#include <limits>
#include <set>

#include "attention/cases.h"
#include "attention/slopes.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

struct Data {
  Tensor<float> qk, v;
};
Data data_of(Index batch, Index heads, Index len) {
  return {normal({batch, heads, len, 8}, 1), normal({batch, heads, len, 6}, 2)};
}

void expect_definition(const Data& data, const ReformerOptions& options) {
  SCOPED_TRACE(std::to_string(options.buckets) + " buckets, " + std::to_string(options.rounds) + " rounds, chunk " +
               std::to_string(options.chunk) + (options.causal ? ", causal on " : " on ") + instruction_set());
  const auto got = reformer_attend(data.qk, data.v, options);
  auto qk = widen(data.qk), v = widen(data.v);
  const auto definition = [&] { return reference::reformer_attend(qk, v, got.buckets, options); };
  const auto wanted = definition();
  for (Index i = 0; i < wanted.out.count(); ++i) ASSERT_NEAR(got.out[i], wanted.out[i], 3e-6) << i;
  for (Index i = 0; i < wanted.lse.count(); ++i)
    ASSERT_TRUE(static_cast<double>(got.lse[i]) == wanted.lse[i] || std::abs(got.lse[i] - wanted.lse[i]) < 1e-5) << i;
  const auto dout = normal(got.out.shape(), 3);
  const auto wide_dout = widen(dout);
  const auto gradients = reformer_attend_backward(dout, data.qk, data.v, got, options);
  const auto loss = [&] { return testing::weighed(definition().out, wide_dout); };
  testing::expect_slopes("dqk", gradients.dqk, qk, loss, 1e-4);
  testing::expect_slopes("dv", gradients.dv, v, loss, 1e-4);
}

TEST(reformer, matches_its_definition_forward_and_backward) {
  testing::on_each_instruction_set([] {
    for (bool causal : {false, true}) {
      expect_definition(data_of(1, 1, 1), {.causal = causal});
      expect_definition(data_of(1, 2, 13), {.buckets = 4, .rounds = 3, .chunk = 4, .causal = causal});
      expect_definition(data_of(2, 2, 50), {.buckets = 6, .rounds = 4, .chunk = 8, .causal = causal, .seed = 9});
      expect_definition(data_of(1, 1, 63), {.buckets = 2, .rounds = 2, .chunk = 64, .causal = causal});
    }
  });
}

// Attention with keys of length 1 that hides each token from itself.
TEST(reformer, one_bucket_in_one_chunk_is_exact_attention) {
  const auto data = data_of(2, 2, 70);
  auto keys = widen(data.qk);
  for (Index row = 0; row < keys.count() / 8; ++row) {
    double square = 0;
    for (Index d = 0; d < 8; ++d) square += keys[row * 8 + d] * keys[row * 8 + d];
    for (Index d = 0; d < 8; ++d) keys[row * 8 + d] /= std::sqrt(square);
  }
  for (bool causal : {false, true}) {
    const Mask mask = causal ? (regard::causal() & !window(0, 0)) : !window(0, 0);
    const auto exact = reference::attend(widen(data.qk), keys, widen(data.v), {.mask = mask}).out;
    for (Index rounds : {1, 3}) {
      const auto got =
          reformer_attend(data.qk, data.v, {.buckets = 1, .rounds = rounds, .chunk = 70, .causal = causal}).out;
      for (Index i = 0; i < got.count(); ++i) {
        const bool first = causal && i / 6 % 70 == 0;  // meets nobody: itself
        ASSERT_NEAR(got[i], first ? static_cast<double>(data.v[i]) : exact[i], 2e-6) << i;
      }
    }
  }
}

TEST(reformer, later_tokens_do_not_move_earlier_rows_that_hash_as_before) {
  const auto data = data_of(1, 1, 60);
  const ReformerOptions options{.buckets = 4, .rounds = 4, .chunk = 60, .causal = true};
  auto other = data;
  for (Index d = 0; d < 8; ++d) other.qk[59 * 8 + d] += 2, other.v[59 * 6 + d % 6] = 9;
  const auto a = reformer_attend(data.qk, data.v, options).out, b = reformer_attend(other.qk, other.v, options).out;
  for (Index i = 0; i < 59 * 6; ++i) ASSERT_NEAR(a[i], b[i], 1e-6);
}

TEST(reformer, padded_tokens_have_a_bucket_of_their_own_and_change_nothing) {
  const auto data = data_of(2, 1, 40);
  Tensor<std::uint8_t> mask({2, 40}, std::uint8_t{1});
  for (Index j = 30; j < 40; ++j) mask[j] = 0;
  for (Index j = 0; j < 40; j += 3) mask[40 + j] = 0;
  ReformerOptions options{.buckets = 4, .rounds = 2, .chunk = 8};
  options.key_mask = std::as_const(mask).view<2>();
  expect_definition(data, options);
  auto dirty = data;
  for (Index j = 0; j < 80; ++j)
    if (mask[j] == 0) dirty.qk[j * 8] = testing::not_a_number, dirty.v[j * 6] = testing::infinity;
  const auto clean = reformer_attend(data.qk, data.v, options), got = reformer_attend(dirty.qk, dirty.v, options);
  EXPECT_TRUE(testing::same_bits(clean.out, got.out));
  for (Index j = 0; j < 80; ++j) {
    EXPECT_EQ(got.buckets[j / 40 * 80 + j % 40] == 4, mask[j] == 0);
    if (mask[j] == 0) {
      EXPECT_EQ(got.out[j * 6], 0.0f);
    }
  }
  const auto dout = normal(got.out.shape(), 4);
  const auto right = reformer_attend_backward(dout, data.qk, data.v, clean, options);
  const auto gradients = reformer_attend_backward(dout, dirty.qk, dirty.v, got, options);
  EXPECT_TRUE(testing::same_bits(right.dqk, gradients.dqk));
  EXPECT_TRUE(testing::same_bits(right.dv, gradients.dv));
}

TEST(reformer, hashing_follows_direction_and_not_length) {
  auto qk = normal({1, 2, 200, 8}, 5);
  const ReformerOptions options{.buckets = 8, .rounds = 3, .seed = 2};
  const auto buckets = reformer_buckets(qk, options);
  EXPECT_EQ(buckets.shape(), (Shape{1, 2, 3, 200}));
  std::set<std::int32_t> seen(buckets.values().begin(), buckets.values().end());
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  auto opposite = qk;
  for (float& value : opposite.values()) value *= -2;
  for (float& value : qk.values()) value *= 4;
  const auto longer = reformer_buckets(qk, options), turned = reformer_buckets(opposite, options);
  for (Index i = 0; i < buckets.count(); ++i) {
    EXPECT_EQ(longer[i], buckets[i]);
    EXPECT_EQ(turned[i], (buckets[i] + 4) % 8);  // the opposite direction
  }
  auto other = options;
  other.seed = 3;
  const auto again = reformer_buckets(qk, other);
  Index same = 0;
  for (Index i = 0; i < buckets.count(); ++i) same += again[i] == buckets[i];
  EXPECT_LT(same, buckets.count() / 3);
}

// The definition in double: no other direction is farther along, but for rounding.
TEST(reformer, a_bucket_is_the_direction_that_a_token_points_to_most) {
  const auto qk = normal({2, 3, 40, 8}, 6);
  const ReformerOptions options{.buckets = 10, .rounds = 2, .seed = 11};
  const auto buckets = reformer_buckets(qk, options);
  for (Index n = 0; n < buckets.count(); ++n) {
    const Index token = n % 40, round = n / 40 % 2, head = n / 80 % 3, batch = n / 240;
    Random random(11, static_cast<std::uint64_t>(head * 2 + round));
    std::vector<double> along(10);
    for (Index d = 0; d < 8; ++d)
      for (std::size_t c = 0; c < 5; ++c)
        along[c] += static_cast<double>(qk[((batch * 3 + head) * 40 + token) * 8 + d]) * random.normal();
    for (std::size_t c = 0; c < 5; ++c) along[5 + c] = -along[c];
    const double most = *std::max_element(along.begin(), along.end());
    ASSERT_NEAR(along[static_cast<std::size_t>(buckets[n])], most, 1e-5) << n;
  }
}

// Tokens at a small angle share a bucket far more often than others.
TEST(reformer, near_tokens_meet_more_often) {
  auto qk = normal({1, 1, 2, 16}, 6);
  for (Index d = 0; d < 16; ++d) qk[16 + d] = qk[d] + 0.2f * qk[16 + d];
  const auto far = normal({1, 1, 2, 16}, 7);
  Index near_hits = 0, far_hits = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const auto near = reformer_buckets(qk, {.buckets = 8, .rounds = 1, .seed = seed});
    const auto apart = reformer_buckets(far, {.buckets = 8, .rounds = 1, .seed = seed});
    near_hits += near[0] == near[1];
    far_hits += apart[0] == apart[1];
  }
  EXPECT_GT(near_hits, 250);
  EXPECT_LT(far_hits, 150);
}

TEST(reformer, bits_do_not_depend_on_threads) {
  const auto data = data_of(2, 3, 100);
  const ReformerOptions options{.buckets = 8, .chunk = 16};
  const auto run = [&](int count) {
    set_threads(count);
    const auto forward = reformer_attend(data.qk, data.v, options);
    auto back = reformer_attend_backward(normal(forward.out.shape(), 5), data.qk, data.v, forward, options);
    set_threads(0);
    return std::pair{forward.out, back.dqk};
  };
  const auto one = run(1), three = run(3);
  EXPECT_TRUE(testing::same_bits(one.first, three.first));
  EXPECT_TRUE(testing::same_bits(one.second, three.second));
}

// Scores of +inf are scores: who has them meets others and is not its own value.
TEST(reformer, a_token_whose_scores_overflow_is_not_alone) {
  auto data = data_of(1, 1, 3);
  for (Index token = 0; token < 3; ++token) data.qk[token * 8] = std::abs(data.qk[token * 8]) + 0.1f;
  for (Index d = 1; d < 8; ++d) data.qk[16 + d] = 0;
  const auto dout = normal({1, 1, 3, 6}, 8);
  const auto dv_of = [&](float size) {
    data.qk[16] = size;
    const ReformerOptions options{.buckets = 1, .rounds = 1, .chunk = 3, .scale = 8};
    return reformer_attend_backward(dout, data.qk, data.v, reformer_attend(data.qk, data.v, options), options).dv;
  };
  const auto overflows = dv_of(3e38f), fits = dv_of(3.0f);
  for (Index d = 12; d < 18; ++d) EXPECT_NEAR(overflows[d], fits[d], 1e-5);
}

TEST(reformer, a_chunk_beyond_the_length_is_the_whole_length) {
  const auto data = data_of(1, 1, 20);
  const auto run = [&](Index chunk) {
    const ReformerOptions options{.buckets = 1, .rounds = 2, .chunk = chunk};
    const auto forward = reformer_attend(data.qk, data.v, options);
    return std::pair{forward.out,
                     reformer_attend_backward(normal(forward.out.shape(), 5), data.qk, data.v, forward, options).dqk};
  };
  const auto whole = run(20), beyond = run(std::numeric_limits<Index>::max());
  EXPECT_TRUE(testing::same_bits(whole.first, beyond.first));
  EXPECT_TRUE(testing::same_bits(whole.second, beyond.second));
  expect_definition(data, {.chunk = std::numeric_limits<Index>::max() - 1});
}

TEST(reformer, buckets_of_other_options_are_refused) {
  const auto data = data_of(1, 1, 40);
  const auto forward = reformer_attend(data.qk, data.v, {.buckets = 64, .rounds = 2});
  const auto dout = normal(forward.out.shape(), 1);
  const ReformerOptions fewer{.buckets = 2, .rounds = 2};
  EXPECT_NE(
      message_of([&] { reformer_attend_backward(dout, data.qk, data.v, forward, fewer); }).find("options.buckets is 2"),
      std::string::npos);
  const auto qk = widen(data.qk), v = widen(data.v);
  auto buckets = forward.buckets;
  const auto says = [&] { return message_of([&] { reference::reformer_attend(qk, v, buckets, fewer); }); };
  EXPECT_NE(says().find("options.buckets is 2"), std::string::npos);
  buckets.fill(0);
  EXPECT_EQ(says(), "nothing was refused");
  for (std::int32_t wrong : {-1, 2}) {
    buckets[7] = wrong;
    EXPECT_NE(says().find("token 7 has bucket " + std::to_string(wrong)), std::string::npos);
  }
}

TEST(reformer, what_makes_no_sense_is_named) {
  const auto data = data_of(1, 1, 4);
  const auto says = [&](const ReformerOptions& options) {
    return message_of([&] { reformer_attend(data.qk, data.v, options); });
  };
  EXPECT_NE(says({.buckets = 5}).find("even"), std::string::npos);
  EXPECT_NE(says({.rounds = 0}).find("rounds"), std::string::npos);
  EXPECT_NE(says({.chunk = 0}).find("chunk"), std::string::npos);
  const Tensor<std::uint8_t> mask({1, 5});
  ReformerOptions options;
  options.key_mask = mask;
  EXPECT_NE(says(options).find("[1,5]"), std::string::npos);
  const auto none = data_of(1, 1, 0);
  EXPECT_EQ(reformer_attend(none.qk, none.v, {}).out.count(), 0);
}

}  // namespace
}  // namespace regard
