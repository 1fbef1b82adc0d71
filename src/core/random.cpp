#include "regard/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/instruction_sets.h"
#include "regard/error.h"

namespace regard {
namespace {

constexpr std::uint64_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Counters side by side, one array a word, so that compilers see vectors. More
// than 16 of them: short loops are unrolled before they are turned into vectors.
constexpr std::size_t side_by_side = 32;

REGARD_EACH_INSTRUCTION_SET
void draw_side_by_side(std::uint64_t seed, std::uint64_t first, std::uint32_t* to) {
  std::uint32_t a[side_by_side], b[side_by_side], c[side_by_side] = {}, d[side_by_side] = {};
  for (std::size_t i = 0; i < side_by_side; ++i) {
    a[i] = low(first + i);
    b[i] = high(first + i);
  }
  std::uint32_t key0 = low(seed), key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < side_by_side; ++i) {
      const std::uint64_t product0 = multiplier0 * a[i], product1 = multiplier1 * c[i];
      a[i] = high(product1) ^ b[i] ^ key0;
      b[i] = low(product1);
      c[i] = high(product0) ^ d[i] ^ key1;
      d[i] = low(product0);
    }
    key0 += weyl0;
    key1 += weyl1;
  }
  for (std::size_t i = 0; i < side_by_side; ++i) {
    to[4 * i] = a[i];
    to[4 * i + 1] = b[i];
    to[4 * i + 2] = c[i];
    to[4 * i + 3] = d[i];
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
  std::uint32_t key0 = low(seed), key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * counter[0];
    const std::uint64_t product1 = multiplier1 * counter[2];
    counter = {high(product1) ^ counter[1] ^ key0, low(product1), high(product0) ^ counter[3] ^ key1, low(product0)};
    key0 += weyl0;
    key1 += weyl1;
  }
  return counter;
}

void philox_words(std::uint64_t seed, std::uint64_t first, std::span<std::uint32_t> words) {
  constexpr std::size_t group = 4 * side_by_side;
  for (std::size_t done = 0; done < words.size(); done += group) {
    const std::size_t count = std::min(group, words.size() - done);
    if (count == group) {
      draw_side_by_side(seed, first + done / 4, words.data() + done);
      continue;
    }
    std::uint32_t last[group];
    draw_side_by_side(seed, first + done / 4, last);
    std::copy_n(last, count, words.data() + done);
  }
}

std::uint32_t dropout_threshold(double p) {
  if (!(p >= 0.0 && p < 1.0)) throw ArgumentError("dropout: p must be in [0, 1), got " + std::to_string(p));
  return static_cast<std::uint32_t>(std::floor(p * 4294967296.0));
}

std::uint32_t Random::next_u32() {
  const std::uint64_t block = position_ / 4;
  const auto words = philox({low(block), high(block), low(stream_), high(stream_)}, seed_);
  return words[position_++ % 4];
}

float Random::uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }

double Random::uniform_double() {
  const std::uint64_t high = next_u32() >> 6, low = next_u32() >> 5;
  return static_cast<double>(high << 27 | low) * 0x1p-53;
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform_double());
}

std::uint64_t Random::below(std::uint64_t limit) {
  // The multiply-shift bias is below limit / 2^53: nothing a shuffle can show.
  return static_cast<std::uint64_t>(uniform_double() * static_cast<double>(limit));
}

void shuffle(std::span<std::int64_t> items, Random& random) {
  for (std::size_t last = items.size(); last > 1; --last) std::swap(items[last - 1], items[random.below(last)]);
}

}  // namespace regard
