// Rotary positions: published values, algebra, and the faults others have had.
#include "regard/rope.h"

#include <numbers>

#include "attention/cases.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

const RopePairing pairings[] = {RopePairing::half_split, RopePairing::interleaved};

template <class T>
Tensor<T> turned(const Tensor<T>& x, const RopeTable<T>& table, RopePairing pairing = RopePairing::half_split) {
  Tensor<T> out(x.shape());
  rotate(out, x, table, pairing);
  return out;
}

// One vector at one position.
std::vector<double> turned_at(const std::vector<double>& x, Index position, const RopeFrequencies& frequencies,
                              RopePairing pairing) {
  const Tensor<double> row({1, 1, 1, static_cast<Index>(x.size())}, x);
  const auto out = turned(row, rope_table<double>(frequencies, position, 1), pairing);
  return {out.values().begin(), out.values().end()};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << "at " << i;
}

// cos 1 and sin 1 in the two elements that turn together; never cos of one pair beside cos of another.
TEST(rope, both_pairings_turn_a_unit_vector_as_published) {
  const auto frequencies = rope_frequencies(4);
  expect_close(turned_at({1, 0, 0, 0}, 1, frequencies, RopePairing::interleaved), {0.540302, 0.841471, 0, 0}, 1e-6);
  expect_close(turned_at({1, 0, 0, 0}, 1, frequencies, RopePairing::half_split), {0.540302, 0, 0.841471, 0}, 1e-6);
}

TEST(rope, lengths_stay_and_products_depend_on_distance_only) {
  const auto random = widen(normal({2, 16}, 3));
  const std::vector<double> q(random.data(), random.data() + 16), k(random.data() + 16, random.data() + 32);
  for (RopePairing pairing : pairings) {
    const auto at = [&](const std::vector<double>& x, Index position) {
      return turned_at(x, position, rope_frequencies(16), pairing);
    };
    EXPECT_NEAR(dot(at(q, 11), at(q, 11)), dot(q, q), 1e-12);
    EXPECT_NEAR(dot(at(q, 5), at(k, 3)), dot(at(q, 12), at(k, 10)), 1e-12);
    EXPECT_NEAR(dot(at(q, -5), at(k, -7)), dot(at(q, 12), at(k, 10)), 1e-12);
    EXPECT_GT(std::abs(dot(at(q, 5), at(k, 3)) - dot(at(q, 5), at(k, 4))), 1e-3);
  }
}

TEST(rope, the_pairings_agree_when_elements_are_put_in_the_other_order) {
  const auto x = widen(normal({1, 1, 3, 8}, 4));
  Tensor<double> permuted(x.shape());
  for (Index s = 0; s < 3; ++s)
    for (Index k = 0; k < 4; ++k) {
      permuted[s * 8 + k] = x[s * 8 + 2 * k];
      permuted[s * 8 + 4 + k] = x[s * 8 + 2 * k + 1];
    }
  const auto table = rope_table<double>(rope_frequencies(8), 6, 3);
  const auto neighbours = turned(x, table, RopePairing::interleaved), halves = turned(permuted, table);
  for (Index s = 0; s < 3; ++s)
    for (Index k = 0; k < 4; ++k) {
      EXPECT_EQ(halves[s * 8 + k], neighbours[s * 8 + 2 * k]);
      EXPECT_EQ(halves[s * 8 + 4 + k], neighbours[s * 8 + 2 * k + 1]);
    }
}

// Head 256, rotary 64: pairs (i, i + 32) at 10000^(-2i/64); the rest untouched.
TEST(rope, partial_rotation_counts_from_the_rotated_part) {
  const auto frequencies = rope_frequencies(64);
  EXPECT_NEAR(frequencies.inverse[1], 0.749894, 1e-6);
  const auto x = widen(normal({1, 1, 1, 256}, 5));
  const auto out = turned(x, rope_table<double>(frequencies, 2, 1));
  EXPECT_NEAR(out[1], x[1] * std::cos(2 * 0.7498942093) - x[33] * std::sin(2 * 0.7498942093), 1e-9);
  EXPECT_NEAR(out[33], x[1] * std::sin(2 * 0.7498942093) + x[33] * std::cos(2 * 0.7498942093), 1e-9);
  for (Index d = 64; d < 256; ++d) EXPECT_EQ(out[d], x[d]);
}

// 10000^(-2/256) = 0.930572, pairs (i, i + 128), zero frequencies from pair 32 on.
TEST(rope, proportional_rotation_pairs_across_the_whole_head) {
  const auto frequencies = rope_proportional(256, 64);
  EXPECT_EQ(frequencies.rotary_dim(), 256);
  EXPECT_NEAR(frequencies.inverse[1], 0.930572, 1e-6);
  EXPECT_EQ(frequencies.inverse[32], 0.0);
  Tensor<double> x({1, 1, 1, 256});
  x[0] = 1;
  const auto out = turned(x, rope_table<double>(frequencies, 1, 1));
  EXPECT_NEAR(out[128], std::sin(1.0), 1e-15);
}

// Rounded to bfloat16, 257 would be 256, to float16 2049 be 2048; angles rounded to float lose
// 2e-4 radians at 4095.
TEST(rope, angles_are_not_rounded_before_their_cosines) {
  const auto table = rope_table<float>(rope_frequencies(8), 256, 2);
  EXPECT_NEAR(table.cosines[0], -0.039791, 1e-6);
  EXPECT_NEAR(table.cosines[4], 0.819306, 1e-6);
  for (Index position : {2048, 2049, 4095, 1000003}) {
    const auto one = rope_table<float>(rope_frequencies(8), position, 1);
    for (Index k = 0; k < 4; ++k) {
      const long double angle =
          static_cast<long double>(position) * std::pow(10000.0L, -2.0L * static_cast<long double>(k) / 8);
      EXPECT_NEAR(one.cosines[k], static_cast<double>(std::cos(angle)), 1e-7) << position << " " << k;
      EXPECT_NEAR(one.sines[k], static_cast<double>(std::sin(angle)), 1e-7) << position << " " << k;
    }
  }
}

TEST(rope, positions_are_given_per_batch_entry) {
  const Tensor<std::int64_t> positions({2, 3}, {0, 1, 2, 7, 7, 3});
  const auto table = rope_table<float>(rope_frequencies(8), std::as_const(positions).view<2>());
  const auto x = normal({2, 3, 3, 8}, 6), out = turned(x, table);
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 3; ++h)
      for (Index s = 0; s < 3; ++s) {
        const Index at = ((b * 3 + h) * 3 + s) * 8;
        const Tensor<float> one({1, 1, 1, 8}, std::vector<float>(x.data() + at, x.data() + at + 8));
        const auto alone = turned(one, rope_table<float>(rope_frequencies(8), positions[b * 3 + s], 1));
        for (Index d = 0; d < 8; ++d) EXPECT_EQ(out[at + d], alone[d]);
      }
}

// Prompt of 9, then token by token: position 9 comes next, not 10.
TEST(rope, a_cached_run_sees_the_positions_of_the_whole_run) {
  const auto x = normal({1, 1, 12, 8}, 7), whole = turned(x, rope_table<float>(rope_frequencies(8), 0, 12));
  for (Index s = 9; s < 12; ++s) {
    const Tensor<float> one({1, 1, 1, 8}, std::vector<float>(x.data() + s * 8, x.data() + s * 8 + 8));
    const auto step = turned(one, rope_table<float>(rope_frequencies(8), s, 1));
    for (Index d = 0; d < 8; ++d) EXPECT_EQ(step[d], whole[s * 8 + d]);
  }
}

TEST(rope, positions_of_padded_tokens_count_real_ones) {
  const Tensor<std::int64_t> ids({2, 6}, {0, 0, 5, 6, 7, 8, 5, 6, 7, 8, 0, 0});
  const auto positions = token_positions(ids, 0);
  const std::vector<std::int64_t> wanted{0, 0, 0, 1, 2, 3, 0, 1, 2, 3, 0, 0};
  EXPECT_EQ((std::vector<std::int64_t>(positions.values().begin(), positions.values().end())), wanted);
}

TEST(rope, linear_scaling_divides_positions) {
  const auto plain = rope_table<double>(rope_frequencies(8), 3, 1),
             slow = rope_table<double>(rope_linear(rope_frequencies(8), 4), 12, 1);
  for (Index k = 0; k < 4; ++k) EXPECT_NEAR(slow.cosines[k], plain.cosines[k], 1e-12);
}

// The new base leaves the fastest pair alone and slows the slowest by factor * length / trained - (factor - 1).
TEST(rope, dynamic_ntk_slows_the_last_pair_by_the_stretch) {
  const auto plain = rope_frequencies(16);
  EXPECT_EQ(rope_dynamic_ntk(16, 10000, {2, 2048, 2048}).inverse, plain.inverse);
  EXPECT_EQ(rope_dynamic_ntk(16, 10000, {2, 2048, 100}).inverse, plain.inverse);
  const auto slow = rope_dynamic_ntk(16, 10000, {2, 2048, 8192});
  EXPECT_EQ(slow.inverse[0], 1.0);
  EXPECT_NEAR(slow.inverse[7], plain.inverse[7] / 7, 1e-15);
}

// Pairs that turn more than beta_fast times keep their frequency, those below beta_slow get 1/factor of it.
TEST(rope, yarn_ramps_from_kept_to_divided_frequencies) {
  const Yarn scaling{.factor = 16, .trained_length = 4096};
  const auto plain = rope_frequencies(128), yarn = rope_yarn(128, 10000, scaling);
  for (std::size_t k = 0; k < 64; ++k) {
    const double turns = 4096 * plain.inverse[k] / (2 * std::numbers::pi), ratio = yarn.inverse[k] / plain.inverse[k];
    EXPECT_LE(ratio, 1.0);
    EXPECT_GE(ratio, 1.0 / 16 - 1e-12);
    if (turns > 40) {
      EXPECT_EQ(ratio, 1.0) << k;
    }
    if (turns < 0.8) {
      EXPECT_NEAR(ratio, 1.0 / 16, 1e-12) << k;
    }
    if (k > 0) {
      EXPECT_LE(ratio, yarn.inverse[k - 1] / plain.inverse[k - 1]);
    }
  }
}

TEST(rope, yarn_attention_factor_follows_its_order_of_preference) {
  Yarn scaling{.factor = 16, .trained_length = 4096};
  EXPECT_NEAR(rope_yarn(64, 10000, scaling).factor, 1.277259, 1e-6);
  scaling.mscale = 1.0;
  EXPECT_NEAR(rope_yarn(64, 10000, scaling).factor, 1.277259, 1e-6);
  scaling.mscale_all_dim = 1.0;
  EXPECT_EQ(rope_yarn(64, 10000, scaling).factor, 1.0);
  scaling.mscale_all_dim = 0.5;
  EXPECT_NEAR(rope_yarn(64, 10000, scaling).factor, 1.2772588722 / 1.1386294361, 1e-9);
  scaling.attention_factor = 0.75;
  EXPECT_EQ(rope_yarn(64, 10000, scaling).factor, 0.75);
  EXPECT_NEAR(rope_table<double>(rope_yarn(64, 10000, scaling), 0, 1).cosines[0], 0.75, 1e-15);
}

// Wavelengths below 8192 / 4 stay, above 8192 / 1 take factor 8, as the published rule says.
TEST(rope, llama3_scaling_keeps_short_wavelengths_and_divides_long_ones) {
  const auto plain = rope_frequencies(128, 500000), scaled = rope_llama3(plain, {});
  for (std::size_t k = 0; k < 64; ++k) {
    const double wavelength = 2 * std::numbers::pi / plain.inverse[k];
    const double smooth = (8192 / wavelength - 1) / 3;
    const double right = wavelength < 2048   ? plain.inverse[k]
                         : wavelength > 8192 ? plain.inverse[k] / 8
                                             : (1 - smooth) * plain.inverse[k] / 8 + smooth * plain.inverse[k];
    EXPECT_NEAR(scaled.inverse[k], right, 1e-15) << k;
  }
}

// <rotate x, y> = <x, rotate_back y>: the transpose, which is the gradient; and the inverse for factor 1.
TEST(rope, turning_back_is_the_gradient_and_the_inverse) {
  for (RopePairing pairing : pairings) {
    RopeFrequencies frequencies = rope_frequencies(6);
    auto table = rope_table<double>(frequencies, 3, 5);
    const auto x = widen(normal({2, 2, 5, 10}, 8)), y = widen(normal({2, 2, 5, 10}, 9));
    auto again = turned(x, table, pairing);
    rotate_back(again, again, table, pairing);
    for (Index i = 0; i < x.count(); ++i) EXPECT_NEAR(again[i], x[i], 1e-14);
    frequencies.factor = 1.3;
    table = rope_table<double>(frequencies, 3, 5);
    Tensor<double> back(y.shape());
    rotate_back(back, y, table, pairing);
    const auto forward = turned(x, table, pairing);
    double left = 0, right = 0;
    for (Index i = 0; i < x.count(); ++i) left += forward[i] * y[i], right += x[i] * back[i];
    EXPECT_NEAR(left, right, 1e-12 * std::abs(left) + 1e-12);
  }
}

TEST(rope, any_strides_and_the_same_memory_give_the_same_numbers) {
  for (RopePairing pairing : pairings)
    for (Index pairs : {3, 8}) {
      const auto table = rope_table<float>(rope_frequencies(2 * pairs), 4, 5);
      const auto x = normal({2, 3, 5, 17}, 10), right = turned(x, table, pairing);
      auto in_place = x;
      rotate(in_place, in_place, table, pairing);
      EXPECT_TRUE(testing::same_bits(in_place, right));
      // [batch, seq, heads, dim] and a last axis that is not contiguous.
      for (const auto& [a, b] : {std::pair{1, 2}, {2, 3}}) {
        auto other = packed(x.view<4>().transposed(a, b));
        const auto view = other.view<4>().transposed(a, b);
        rotate(view, view, table, pairing);
        EXPECT_TRUE(testing::same_bits(packed(View<const float, 4>(view)), right));
      }
    }
}

// Moving every position by the same number changes nothing that attention gives.
TEST(rope, attention_over_turned_queries_and_keys_sees_distances_only) {
  const auto q = normal({1, 4, 30, 16}, 11), k = normal({1, 2, 30, 16}, 12), v = normal({1, 2, 30, 16}, 13);
  const auto at = [&](Index first) {
    const auto table = rope_table<float>(rope_frequencies(16), first, 30);
    return attend(turned(q, table), turned(k, table), v, {.mask = causal()}).out;
  };
  const auto here = at(0), there = at(5000);
  for (Index i = 0; i < here.count(); ++i) EXPECT_NEAR(here[i], there[i], 5e-6);
}

// Through the whole chain: rotate, attend, backward, turn back; against finite
// differences of the double reference.
TEST(rope, gradients_through_attention_are_exact) {
  const auto q = normal({1, 1, 6, 8}, 14), k = normal({1, 1, 6, 8}, 15), v = normal({1, 1, 6, 8}, 16);
  const auto dout = normal({1, 1, 6, 8}, 17);
  const auto table = rope_table<float>(rope_frequencies(4), 2, 6);
  const auto wide_table = rope_table<double>(rope_frequencies(4), 2, 6);
  const auto tq = turned(q, table), tk = turned(k, table);
  const testing::Inputs in{tq, tk, v};
  auto gradients = testing::backward_of(in, dout, {.mask = causal()});
  rotate_back(gradients.dq, gradients.dq, table);
  rotate_back(gradients.dk, gradients.dk, table);
  auto wide_q = widen(q), wide_k = widen(k);
  const auto wide_v = widen(v), wide_dout = widen(dout);
  const auto loss = [&] {
    const auto out =
        reference::attend(turned(wide_q, wide_table), turned(wide_k, wide_table), wide_v, {.mask = causal()}).out;
    double sum = 0;
    for (Index i = 0; i < out.count(); ++i) sum += out[i] * wide_dout[i];
    return sum;
  };
  const auto expect_slopes = [&](Tensor<double>& x, const Tensor<float>& gradient) {
    for (Index i = 0; i < x.count(); ++i) {
      const double before = x[i], step = 1e-5;
      x[i] = before + step;
      const double above = loss();
      x[i] = before - step;
      const double below = loss();
      x[i] = before;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 2e-6);
    }
  };
  expect_slopes(wide_q, gradients.dq);
  expect_slopes(wide_k, gradients.dk);
}

TEST(rope, what_does_not_fit_is_named) {
  Tensor<float> x({2, 1, 3, 4});
  const auto says = [&](const RopeTable<float>& table) { return message_of([&] { rotate(x, x, table); }); };
  EXPECT_NE(says(rope_table<float>(rope_frequencies(6), 0, 3)).find("head_dim of 6 but x has 4"), std::string::npos);
  EXPECT_NE(says(rope_table<float>(rope_frequencies(4), 0, 2)).find("[1,2,2]"), std::string::npos);
  const Tensor<std::int64_t> three({3, 3});
  EXPECT_NE(says(rope_table<float>(rope_frequencies(4), three)).find("[3,3,2]"), std::string::npos);
  const auto table = rope_table<float>(rope_frequencies(2), 0, 3);
  const View<float, 4> shifted(x.data() + 1, {2, 1, 3, 3}, {12, 12, 4, 1});
  EXPECT_NE(message_of([&] {
              rotate(shifted, View<const float, 4>(x.data(), {2, 1, 3, 3}, {12, 12, 4, 1}), table);
            }).find("share memory"),
            std::string::npos);
  EXPECT_THROW(rope_frequencies(5), ArgumentError);
  EXPECT_THROW(rope_frequencies(4, 0), ArgumentError);
  EXPECT_THROW(rope_linear(rope_frequencies(4), 0), ArgumentError);
  EXPECT_THROW(rope_yarn(4, 10000, {.factor = 2}), ArgumentError);
  EXPECT_THROW(rope_llama3(rope_frequencies(4), {8, 4, 4, 8192}), ArgumentError);
}

TEST(rope, nothing_to_turn_is_fine) {
  Tensor<float> none({2, 0, 3, 4}), x({1, 1, 2, 4}, 3.0f);
  EXPECT_NO_THROW(rotate(none, none, rope_table<float>(rope_frequencies(4), 0, 3)));
  rotate(x, x, rope_table<float>(rope_frequencies(0), 0, 2));
  EXPECT_EQ(x[7], 3.0f);
}

}  // namespace
}  // namespace regard
