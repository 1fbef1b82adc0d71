// Nystrom attention: against its definition, against exact attention where every
// token is a landmark, and what padding may change.
#include "regard/nystrom.h"

#include "attention/cases.h"
#include "attention/slopes.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

struct Data {
  Tensor<float> q, k, v;
  NystromInputs<float> inputs(const NystromOptions& options) const { return {q, k, v, options}; }
};
Data data_of(Index batch, Index heads, Index len, double size = 1) {
  return {normal({batch, heads, len, 8}, 1, size), normal({batch, heads, len, 8}, 2, size),
          normal({batch, heads, len, 6}, 3)};
}

void expect_definition(const Data& data, const NystromOptions& options) {
  SCOPED_TRACE(std::to_string(options.landmarks) + " landmarks, " + std::to_string(options.iterations) +
               " iterations on " + instruction_set());
  auto q = widen(data.q), k = widen(data.k), v = widen(data.v);
  const auto definition = [&] { return reference::nystrom_attend({q, k, v, options}).out; };
  const auto got = nystrom_attend(data.inputs(options));
  const auto wanted = definition();
  const double size = std::max(1.0, testing::errors(got.out, wanted).largest_value);
  for (Index i = 0; i < wanted.count(); ++i) ASSERT_NEAR(got.out[i], wanted[i], 2e-5 * size) << i;
  const auto dout = normal(got.out.shape(), 4);
  const auto wide_dout = widen(dout);
  const auto gradients = nystrom_attend_backward(dout, data.inputs(options), got);
  const auto loss = [&] { return testing::weighed(definition(), wide_dout); };
  testing::expect_slopes("dq", gradients.dq, q, loss, 2e-4);
  testing::expect_slopes("dk", gradients.dk, k, loss, 2e-4);
  testing::expect_slopes("dv", gradients.dv, v, loss, 2e-4);
}

TEST(nystrom, matches_its_definition_forward_and_backward) {
  testing::on_each_instruction_set([] {
    expect_definition(data_of(1, 1, 1), {});
    expect_definition(data_of(1, 2, 13), {.landmarks = 4});
    expect_definition(data_of(2, 2, 50), {.landmarks = 7, .iterations = 3, .scale = 0.6});
    expect_definition(data_of(1, 1, 130), {.landmarks = 16, .iterations = 1});
  });
}

// Keys that are their own queries' best match: f(q, k) is close to the identity.
TEST(nystrom, as_many_landmarks_as_tokens_are_exact_attention) {
  auto data = data_of(1, 2, 12, 3);
  data.k = data.q;
  const auto exact = reference::attend(widen(data.q), widen(data.k), widen(data.v)).out;
  for (const Index landmarks : {12, 100}) {
    const auto got = nystrom_attend(data.inputs({.landmarks = landmarks, .iterations = 30})).out;
    for (Index i = 0; i < got.count(); ++i) EXPECT_NEAR(got[i], exact[i], 1e-4) << i;
  }
}

TEST(nystrom, padded_tokens_change_nothing_and_get_zeros) {
  auto data = data_of(2, 2, 40);
  Tensor<std::uint8_t> mask({2, 40}, std::uint8_t{1});
  for (Index j = 23; j < 40; ++j) mask[j] = 0;  // the last segments have no real token
  for (Index j = 0; j < 40; j += 3) mask[40 + j] = 0;
  NystromOptions options{.landmarks = 8};
  options.key_mask = std::as_const(mask).view<2>();
  expect_definition(data, options);
  auto dirty = data;
  for (Index row = 0; row < 160; ++row)
    if (mask[row / 80 * 40 + row % 40] == 0)
      dirty.q[row * 8] = dirty.k[row * 8 + 1] = testing::not_a_number, dirty.v[row * 6] = testing::infinity;
  const auto clean = nystrom_attend(data.inputs(options)), got = nystrom_attend(dirty.inputs(options));
  EXPECT_TRUE(testing::same_bits(clean.out, got.out));
  const auto dout = normal(got.out.shape(), 4);
  const auto right = nystrom_attend_backward(dout, data.inputs(options), clean);
  const auto gradients = nystrom_attend_backward(dout, dirty.inputs(options), got);
  EXPECT_TRUE(testing::same_bits(right.dq, gradients.dq));
  EXPECT_TRUE(testing::same_bits(right.dk, gradients.dk));
  EXPECT_TRUE(testing::same_bits(right.dv, gradients.dv));
  for (Index row = 0; row < 160; ++row)
    if (mask[row / 80 * 40 + row % 40] == 0) {
      EXPECT_EQ(testing::row_of(got.out, row % 40, row / 40 % 2, row / 80), testing::zeros(6)) << row;
      EXPECT_EQ(gradients.dk[row * 8], 0.0f) << row;
    }
}

TEST(nystrom, bits_do_not_depend_on_threads) {
  const auto data = data_of(2, 3, 100);
  const auto run = [&](int count) {
    set_threads(count);
    const auto inputs = data.inputs({.landmarks = 9});
    auto forward = nystrom_attend(inputs);
    auto back = nystrom_attend_backward(normal(forward.out.shape(), 5), inputs, forward);
    set_threads(0);
    return std::pair{std::move(forward.out), std::move(back.dk)};
  };
  const auto one = run(1), three = run(3);
  EXPECT_TRUE(testing::same_bits(one.first, three.first));
  EXPECT_TRUE(testing::same_bits(one.second, three.second));
}

TEST(nystrom, what_makes_no_sense_is_named) {
  const auto data = data_of(1, 2, 6);
  const auto says = [&](const NystromOptions& options) {
    return message_of([&] { nystrom_attend(data.inputs(options)); });
  };
  EXPECT_NE(says({.causal = true}).find("causal is not possible"), std::string::npos);
  EXPECT_NE(says({.landmarks = 0}).find("landmarks must be at least 1"), std::string::npos);
  EXPECT_NE(says({.iterations = 0}).find("iterations must be at least 1"), std::string::npos);
  const auto longer = data_of(1, 2, 7);
  EXPECT_NE(message_of([&] {
              nystrom_attend({data.q, longer.k, longer.v, {}});
            }).find("same heads and length"),
            std::string::npos);
  const auto none = data_of(1, 1, 0);
  EXPECT_EQ(nystrom_attend(none.inputs({})).out.count(), 0);
}

}  // namespace
}  // namespace regard
