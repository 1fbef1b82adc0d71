// Structured attention against the sum over all 2^n ways to switch keys, against
// textbook messages, and against finite differences.
#include "regard/chain_attention.h"

#include <cmath>

#include "attention/cases.h"
#include "element_slopes.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;
using testing::normal;
using testing::widen;

// p(z_j = 1) by the definition: every assignment, with its weight.
std::vector<double> enumerated(const std::vector<double>& scores, const Tensor<double>& links) {
  const std::size_t n = scores.size();
  std::vector<double> on(n);
  double total = 0;
  for (unsigned z = 0; z < 1u << n; ++z) {
    double exponent = 0;
    for (std::size_t j = 0; j < n; ++j) {
      if (z >> j & 1) exponent += scores[j];
      if (j + 1 < n) exponent += links[static_cast<Index>(2 * (z >> j & 1) + (z >> (j + 1) & 1))];
    }
    const double weight = std::exp(exponent);
    total += weight;
    for (std::size_t j = 0; j < n; ++j) on[j] += (z >> j & 1) ? weight : 0;
  }
  for (double& p : on) p /= total;
  return on;
}

struct Case {
  Tensor<float> q, k, v, links;
  std::vector<Index> lengths = {};
  ChainInputs<float> inputs() const { return {q.view<4>(), k.view<4>(), v.view<4>(), links.view<3>(), {}, lengths}; }
};

Case random_case(Index q_len, Index kv_len, Index q_heads = 4, Index kv_heads = 2) {
  return {normal({2, q_heads, q_len, 12}, 1), normal({2, kv_heads, kv_len, 12}, 2),
          normal({2, kv_heads, kv_len, 10}, 3), normal({q_heads, 2, 2}, 4)};
}

struct DoubleCase {
  explicit DoubleCase(const Case& c)
      : q(widen(c.q)), k(widen(c.k)), v(widen(c.v)), links(widen(c.links)), lengths(c.lengths) {}
  Tensor<double> q, k, v, links;
  std::vector<Index> lengths;
  ChainInputs<double> inputs() const {
    return {std::as_const(q).view<4>(),
            std::as_const(k).view<4>(),
            std::as_const(v).view<4>(),
            std::as_const(links).view<3>(),
            {},
            lengths};
  }
};

TEST(chain_attention, marginals_are_those_of_all_assignments) {
  const Case c = random_case(3, 9);
  const DoubleCase in(c);
  const auto by_messages = reference::chain_attend(in.inputs(), true);
  const auto got = chain_attend(c.inputs(), true);
  for (Index row = 0; row < 2 * 4 * 3; ++row) {
    const Index i = row % 3, h = row / 3 % 4, b = row / 12;
    std::vector<double> scores(9);
    for (Index j = 0; j < 9; ++j)
      for (Index d = 0; d < 12; ++d)
        scores[static_cast<std::size_t>(j)] +=
            in.q[((b * 4 + h) * 3 + i) * 12 + d] * in.k[((b * 2 + h / 2) * 9 + j) * 12 + d] / std::sqrt(12.0);
    Tensor<double> links({4});
    std::copy_n(in.links.data() + h * 4, 4, links.data());
    const auto wanted = enumerated(scores, links);
    for (Index j = 0; j < 9; ++j) {
      EXPECT_NEAR(by_messages.marginals[row * 9 + j], wanted[static_cast<std::size_t>(j)], 1e-12);
      EXPECT_NEAR(got.marginals[row * 9 + j], wanted[static_cast<std::size_t>(j)], 2e-6);
    }
  }
}

TEST(chain_attention, without_links_every_marginal_is_the_logistic_of_its_score) {
  const Case c = random_case(5, 70);
  ChainInputs<float> in = c.inputs();
  in.links = {};
  in.scale = 1.0;
  const auto got = chain_attend(in, true);
  for (Index j = 0; j < 70; ++j) {
    double score = 0;
    for (Index d = 0; d < 12; ++d) score += static_cast<double>(c.q[d]) * static_cast<double>(c.k[j * 12 + d]);
    EXPECT_NEAR(got.marginals[j], 1 / (1 + std::exp(-score)), 2e-6);
  }
}

TEST(chain_attention, outputs_are_those_of_the_reference_at_sizes_that_cross_blocks) {
  for (const auto& [q_len, kv_len] : std::vector<std::pair<Index, Index>>{{1, 1}, {7, 63}, {65, 191}, {130, 300}}) {
    Case c = random_case(q_len, kv_len);
    c.lengths = {kv_len, kv_len / 2};
    const DoubleCase in(c);
    const auto wanted = reference::chain_attend(in.inputs(), true);
    testing::on_each_instruction_set([&] {
      const auto got = chain_attend(c.inputs(), true);
      for (Index i = 0; i < got.out.count(); ++i) ASSERT_NEAR(got.out[i], wanted.out[i], 1e-4) << kv_len;
      for (Index i = 0; i < got.marginals.count(); ++i)
        ASSERT_NEAR(got.marginals[i], wanted.marginals[i], 2e-6) << kv_len;
    });
  }
}

// Scores and links far beyond what an exponential holds.
TEST(chain_attention, large_numbers_do_not_overflow) {
  Case c = random_case(2, 40);
  for (float& x : c.q.values()) x *= 1e4f;
  for (float& x : c.links.values()) x *= 1e3f;
  const auto got = chain_attend(c.inputs(), true);
  const auto gradients = chain_attend_backward(normal({2, 4, 2, 10}, 5).view<4>(), c.inputs());
  EXPECT_TRUE(testing::all_finite(got.out) && testing::all_finite(gradients.dq) &&
              testing::all_finite(gradients.dlinks));
  for (float p : got.marginals.values()) EXPECT_TRUE(p >= 0 && p <= 1);
}

// Against the reference, whose loss is differentiated by central differences.
TEST(chain_attention, gradients_are_those_of_the_reference) {
  for (const bool shared_links : {false, true}) {
    Case c = random_case(5, 7);
    if (shared_links) c.links = normal({1, 2, 2}, 4);
    c.lengths = {7, 4};
    const auto dout = normal({2, 4, 5, 10}, 5);
    const auto got = chain_attend_backward(dout.view<4>(), c.inputs());
    DoubleCase in(c);
    const auto loss = [&] {
      const auto out = reference::chain_attend(in.inputs()).out;
      double sum = 0;
      for (Index i = 0; i < out.count(); ++i) sum += static_cast<double>(dout[i]) * out[i];
      return sum;
    };
    testing::expect_element_slopes("q", widen(got.dq), in.q, loss, 1e-5);
    testing::expect_element_slopes("k", widen(got.dk), in.k, loss, 1e-5);
    testing::expect_element_slopes("v", widen(got.dv), in.v, loss, 1e-5);
    testing::expect_element_slopes("links", widen(got.dlinks), in.links, loss, 1e-5);
  }
}

TEST(chain_attention, what_lies_beyond_a_length_is_not_read) {
  Case c = random_case(6, 20);
  c.lengths = {13, 0};
  const auto dout = normal({2, 4, 6, 10}, 5);
  const auto wanted = chain_attend(c.inputs());
  const auto slopes = chain_attend_backward(dout.view<4>(), c.inputs());
  for (Index head = 0; head < 4; ++head)
    for (Index j = head < 2 ? 13 : 0; j < 20; ++j) {
      std::fill_n(c.k.data() + (head * 20 + j) * 12, 12, testing::not_a_number);
      std::fill_n(c.v.data() + (head * 20 + j) * 10, 10, testing::infinity);
    }
  EXPECT_TRUE(testing::same_bits(chain_attend(c.inputs()).out, wanted.out));
  const auto spoilt = chain_attend_backward(dout.view<4>(), c.inputs());
  EXPECT_TRUE(testing::same_bits(spoilt.dq, slopes.dq) && testing::same_bits(spoilt.dk, slopes.dk) &&
              testing::same_bits(spoilt.dv, slopes.dv) && testing::same_bits(spoilt.dlinks, slopes.dlinks));
  for (Index i = wanted.out.count() / 2; i < wanted.out.count(); ++i) EXPECT_EQ(wanted.out[i], 0.0f) << "no keys";
}

TEST(chain_attention, bits_do_not_depend_on_threads) {
  const Case c = random_case(70, 50);
  const auto dout = normal({2, 4, 70, 10}, 5);
  set_threads(1);
  const auto one = chain_attend(c.inputs());
  const auto slopes = chain_attend_backward(dout.view<4>(), c.inputs());
  set_threads(3);
  EXPECT_TRUE(testing::same_bits(chain_attend(c.inputs()).out, one.out));
  const auto again = chain_attend_backward(dout.view<4>(), c.inputs());
  EXPECT_TRUE(testing::same_bits(again.dk, slopes.dk) && testing::same_bits(again.dlinks, slopes.dlinks));
  set_threads(0);
}

TEST(chain_attention, what_does_not_fit_is_named) {
  Case c = random_case(3, 5);
  const auto refusal = [&] { return message_of<ArgumentError>([&] { chain_attend(c.inputs()); }); };
  c.links = normal({3, 2, 2}, 1);
  expect_contains(refusal(), "[3,2,2]");
  c.links = normal({1, 2, 2}, 1);
  c.links[2] = -testing::infinity;
  expect_contains(refusal(), "not finite");
  c.links[2] = 0;
  c.lengths = {5, 6};
  expect_contains(refusal(), "kv_lengths holds 6");
  c.lengths = {};
  expect_contains(message_of<ArgumentError>([&] {
                    chain_attend_backward(normal({2, 4, 3, 9}, 5).view<4>(), c.inputs());
                  }),
                  "[2,4,3,10]");
}

}  // namespace
}  // namespace regard
