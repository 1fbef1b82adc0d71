#include "regard/random.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "regard/error.h"

namespace regard {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
  constexpr std::uint64_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = multiplier0 * counter[0];
    const std::uint64_t product1 = multiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

std::uint32_t dropout_threshold(double p) {
  if (!(p >= 0.0 && p < 1.0)) throw ArgumentError("dropout: p must be in [0, 1), got " + std::to_string(p));
  return static_cast<std::uint32_t>(std::floor(p * 4294967296.0));
}

std::uint32_t Random::next_u32() {
  const std::uint64_t block = position_ / 4;
  const auto words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                             static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                            seed_);
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
