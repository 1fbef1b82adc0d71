// Observers against the full matrix of weights in double precision: every
// summary, of every composition, at sizes that cross tiles.
#include "attention/observers.h"

namespace regard {
namespace {

using namespace testing;

class EverySize : public ::testing::TestWithParam<std::tuple<Index, Index>> {};

TEST_P(EverySize, plain_causal_and_window_are_seen_right) {
  const auto [q_len, kv_len] = GetParam();
  Composition c = sized("all visible", {.q_heads = 2, .kv_heads = 1, .q_len = q_len, .kv_len = kv_len});
  expect_observed(c);
  c.name = "causal";
  c.options.mask = causal();
  expect_observed(c);
  c.name = "window, top-left";
  c.options.mask = window(40, 9);
  c.options.q_start = top_left();
  expect_observed(c);
}

INSTANTIATE_TEST_SUITE_P(sizes, EverySize,
                         ::testing::Values(std::tuple(1, 1), std::tuple(1, 1000), std::tuple(7, 7), std::tuple(7, 193),
                                           std::tuple(63, 191), std::tuple(191, 63), std::tuple(193, 193),
                                           std::tuple(1000, 193), std::tuple(193, 1000)));

// Hides every third key by returning -inf.
struct SkipThirds {
  template <class T>
  T operator()(T score, const Position& at) const {
    return at.key() % 3 == 1 ? -std::numeric_limits<T>::infinity() : score * T{0.5};
  }
};

TEST(observers, see_boolean_masks_lengths_and_starts) {
  Composition c = sized("boolean tensor", grouped);
  Tensor<std::uint8_t> allowed({130, 217});
  for (Index i = 0; i < allowed.count(); ++i) allowed[i] = i * i % 7 < 3 && i / 217 != 12;
  c.options.mask = boolean(std::as_const(allowed).view<2>());
  expect_observed(c);
  Composition lengths = sized("lengths, one of them 0, starts per entry", grouped);
  lengths.kv_lengths = {0, 205};
  lengths.options.mask = causal();
  lengths.options.q_start = std::vector<Index>{-20, 80};
  expect_observed(lengths);
}

TEST(observers, see_sinks_bias_modifiers_and_weights_before_dropout) {
  Composition c = sized("sinks, bias, soft cap, ALiBi, dropout", grouped);
  const std::vector<float> slopes{0.5f, 0.1f, 0.02f, 0.0f};
  c.options.score = softcap(6) + alibi(slopes);
  c.options.dropout = {0.4, 3};
  c.sink = {0.5f, -infinity, 8.0f, 0.0f};
  c.bias = normal({1, 4, 1, 217}, 4);
  for (Index j = 0; j < 217; j += 5) c.bias[j] = -infinity;
  expect_observed(c);
  Composition user = sized("a user's modifier that hides", grouped);
  user.options.score = SkipThirds{};
  user.options.mask = sliding_window(50);
  expect_observed(user);
}

}  // namespace
}  // namespace regard
