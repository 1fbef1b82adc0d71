// Counter-based random numbers: the value at a counter depends on seed and
// counter only, so any thread, tile or order draws the same.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace regard {

// Philox 4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011. key holds the seed's low then high word.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed);

// The words of counters {low, high, 0, 0} of first, first + 1, ..., one after
// the other: many at once are much faster than one by one.
void philox_words(std::uint64_t seed, std::uint64_t first, std::span<std::uint32_t> words);

// A word is kept when it is at or above this: floor(p * 2^32). p in [0, 1).
std::uint32_t dropout_threshold(double p);

// A stream of numbers from Philox: (seed, stream) name it; state is one
// counter, so a checkpoint of the generator is three integers.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  std::uint32_t next_u32();
  // Uniform in [0, 1), 24 bits in float and 53 in double.
  float uniform();
  double uniform_double();
  // Standard normal (Box-Muller, one value for two uniforms).
  double normal();
  // Uniform integer in [0, limit); limit > 0.
  std::uint64_t below(std::uint64_t limit);

  std::uint64_t seed() const { return seed_; }
  std::uint64_t position() const { return position_; }
  void set_position(std::uint64_t position) { position_ = position; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;  // words drawn so far
};

// Fisher-Yates.
void shuffle(std::span<std::int64_t> items, Random& random);

}  // namespace regard
