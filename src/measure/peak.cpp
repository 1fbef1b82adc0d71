#include "regard/peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "attention/kernels/kernels.h"
#include "regard/cpu.h"
#include "regard/tensor.h"
#include "regard/threads.h"

namespace regard {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `work(thread)` on every thread at once; the best rate of several rounds, in
// units of what work returns per second.
template <class Work>
double best_rate(int rounds, Work work) {
  const int team = threads();
  std::vector<double> done(static_cast<std::size_t>(team));
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    parallel_items(team, [&](std::int64_t item, int) { done[static_cast<std::size_t>(item)] = work(item); });
    const double seconds = seconds_since(start);
    double total = 0;
    for (const double part : done) total += part;
    best = std::max(best, total / seconds);
  }
  return best;
}

// At most so many words, in an odd number of pages: streams a large power of two
// apart would meet in the same few places of the caches.
std::size_t odd_pages(std::size_t words) {
  constexpr std::size_t page = 512;
  return ((words / page + 1) / 2 * 2 - 1) * page;
}

}  // namespace

double measure_peak_gflops() {
  return 1e-9 * best_rate(40, [](std::int64_t) {
           std::array<float, 16> sink{};
           return kernels::active().multiply_add_burst(400'000, sink.data());
         });
}

double measure_read_gbs() {
  const auto words =
      static_cast<std::size_t>(std::max<std::int64_t>(cache_sizes().l3 * 4, std::int64_t{256} << 20)) / 8;
  // Of the same kind as tensors have.
  const AlignedVector<std::uint64_t> memory(words, 1);
  const auto team = static_cast<std::size_t>(threads());
  std::vector<std::uint64_t> totals(team, 0);
  const double rate = best_rate(24, [&](std::int64_t item) {
    const std::size_t share = odd_pages(words / team / 4) * 4, begin = static_cast<std::size_t>(item) * share;
    totals[static_cast<std::size_t>(item)] +=
        kernels::active().sum_words(memory.data() + begin, static_cast<Index>(share));
    return 8.0 * static_cast<double>(share);
  });
  std::uint64_t total = 0;
  for (const std::uint64_t part : totals) total += part;
  return total == 0 ? 0 : 1e-9 * rate;  // using the sums keeps the reads
}

}  // namespace regard
