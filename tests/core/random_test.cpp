// Philox against its published vectors, and the streams made of it.
#include "regard/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "regard/error.h"

namespace regard {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of Random123 for philox4x32-10 (kat_vectors).
TEST(philox_words, equal_the_published_vectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, ~std::uint64_t{0}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, 0x299f31d0a4093822ull),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(philox_words, of_many_counters_equal_those_of_each) {
  const std::uint64_t seed = 0x299f31d0a4093822ull, first = 0xfffffff0u;  // the low word runs over on the way
  for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{128}, std::size_t{401}}) {
    std::vector<std::uint32_t> words(count + 1, 7u);
    philox_words(seed, first, {words.data(), count});
    EXPECT_EQ(words[count], 7u) << count;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t block = first + i / 4;
      ASSERT_EQ(words[i],
                philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, seed)[i % 4])
          << i << " of " << count;
    }
  }
}

TEST(random, draws_the_words_of_its_counter) {
  Random random(7, 3);
  for (std::uint32_t block = 0; block < 3; ++block)
    for (const std::uint32_t word : philox({block, 0, 3, 0}, 7)) EXPECT_EQ(random.next_u32(), word);
  EXPECT_EQ(random.position(), 12u);
}

TEST(random, goes_on_from_any_position) {
  Random first(42), second(42);
  for (int i = 0; i < 37; ++i) first.next_u32();
  second.set_position(37);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(first.next_u32(), second.next_u32());
}

TEST(random, seeds_and_streams_differ) {
  EXPECT_NE(Random(1).next_u32(), Random(2).next_u32());
  EXPECT_NE(Random(1, 0).next_u32(), Random(1, 1).next_u32());
  EXPECT_NE(Random(1, 0).next_u32(), Random(1, std::uint64_t{1} << 32).next_u32());
}

// 100,000 draws: the mean of a uniform is 1/2 with deviation 0.00091, its
// variance 1/12; five deviations are allowed.
TEST(random, uniform_numbers_fill_the_interval_evenly) {
  Random random(5);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const float x = random.uniform();
    const double y = random.uniform_double();
    ASSERT_TRUE(x >= 0.0f && x < 1.0f && y >= 0.0 && y < 1.0);
    sum += static_cast<double>(x);
    squares += y * y;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.0046);
  EXPECT_NEAR(squares / 100000, 1.0 / 3, 0.0048);
}

TEST(random, normal_numbers_have_mean_zero_and_variance_one) {
  Random random(6);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = random.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100000, 0.0, 0.016);
  EXPECT_NEAR(squares / 100000, 1.0, 0.023);
}

TEST(random, below_reaches_every_value_and_never_the_limit) {
  Random random(8);
  std::vector<int> hits(7);
  for (int i = 0; i < 7000; ++i) ++hits.at(random.below(7));
  for (int count : hits) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(random, a_shuffle_is_a_permutation_that_the_seed_decides) {
  std::vector<std::int64_t> sorted(100), a, b;
  std::iota(sorted.begin(), sorted.end(), 0);
  a = b = sorted;
  Random one(3), same(3);
  shuffle(a, one);
  shuffle(b, same);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, sorted);
  std::sort(a.begin(), a.end());
  EXPECT_EQ(a, sorted);
  std::vector<std::int64_t> none;
  shuffle(none, one);
  EXPECT_TRUE(none.empty());
}

// Each of the 6 orders of 3 things comes up a sixth of the time.
TEST(random, shuffles_have_no_favourite_order) {
  Random random(9);
  std::vector<int> hits(100);
  for (int i = 0; i < 6000; ++i) {
    std::vector<std::int64_t> items{0, 1, 2};
    shuffle(items, random);
    ++hits.at(static_cast<std::size_t>(items[0] * 9 + items[1] * 3 + items[2]));
  }
  int orders = 0;
  for (int count : hits)
    if (count > 0) {
      ++orders;
      EXPECT_NEAR(count, 1000, 145);
    }
  EXPECT_EQ(orders, 6);
}

TEST(dropout_thresholds, are_the_floor_of_p_times_two_to_the_32) {
  EXPECT_EQ(dropout_threshold(0.0), 0u);
  EXPECT_EQ(dropout_threshold(0.5), 0x80000000u);
  EXPECT_EQ(dropout_threshold(0.1), 429496729u);
  EXPECT_EQ(dropout_threshold(std::nextafter(1.0, 0.0)), 0xFFFFFFFFu);
  for (const double p : {1.0, -0.1, 1.5, std::nan("")}) EXPECT_THROW(dropout_threshold(p), ArgumentError) << p;
}

}  // namespace
}  // namespace regard
