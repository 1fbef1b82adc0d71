#include "regard/peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "attention/kernels/kernels.h"

namespace regard {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double measure_peak_gflops() {
  std::array<float, 16> sink{};
  double best = 0;
  for (int burst = 0; burst < 12; ++burst) {
    sink.fill(0.0f);
    const auto start = std::chrono::steady_clock::now();
    const double operations = kernels::active().multiply_add_burst(2'000'000, sink.data());
    best = std::max(best, operations / seconds_since(start) * 1e-9);
  }
  return best;
}

double measure_read_gbs() {
  constexpr std::size_t words = std::size_t{256} << 17;  // 256 MiB of 8-byte words
  const std::vector<std::uint64_t> memory(words, 1);
  double best = 0;
  std::uint64_t total = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    std::array<std::uint64_t, 8> sums{};
    for (std::size_t i = 0; i < words; i += 8)
      for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += memory[i + lane];
    for (std::uint64_t sum : sums) total += sum;
    best = std::max(best, static_cast<double>(words) * 8 / seconds_since(start) * 1e-9);
  }
  return total == 4 * words ? best : 0;  // using the sums keeps the reads
}

}  // namespace regard
