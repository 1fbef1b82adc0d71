// Forward and backward against this machine's own FMA peak, in one run:
//   build/bench/attention_speed [threads]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "regard/attend.h"
#include "regard/cpu.h"
#include "regard/instruction_set.h"
#include "regard/peak.h"
#include "regard/random.h"
#include "regard/threads.h"

namespace {

using namespace regard;

struct Case {
  std::string name;
  Index heads, length, head_dim;
  bool causal = false;
};

Tensor<float> uniform(Shape shape, std::uint64_t seed) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = 2.0f * random.uniform() - 1.0f;
  return tensor;
}

// Best of several runs, in seconds.
template <class F>
double best_time(F run) {
  double best = 1e30, total = 0;
  for (int round = 0; round < 40 && (round < 3 || total < 1.0); ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

void measure(const Case& c, double peak) {
  const Shape shape{1, c.heads, c.length, c.head_dim};
  const auto q = uniform(shape, 1), k = uniform(shape, 2), v = uniform(shape, 3), dout = uniform(shape, 4);
  AttendOptions options;
  if (c.causal) options.mask = causal();
  options.observe.lse = true;
  AttendResult result;
  const double forward = best_time([&] { result = attend(q, k, v, options); });
  const double backward = best_time(
      [&] { attend_backward(dout, q, k, v, {result.out.view<4>(), result.lse.view<3>()}, options); });
  const double n = static_cast<double>(c.length);
  const double pairs = static_cast<double>(c.heads) * (c.causal ? n * (n + 1) / 2 : n * n);
  const double d = static_cast<double>(c.head_dim);
  fmt::print("{:<24} forward {:8.2f} ms {:5.1f} % of peak   backward {:8.2f} ms {:5.1f} % of peak\n", c.name,
             forward * 1e3, 4 * pairs * d / forward * 1e-9 / peak * 100, backward * 1e3,
             10 * pairs * d / backward * 1e-9 / peak * 100);
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const double peak = measure_peak_gflops();
  fmt::print("{}, {}, {} thread(s); FMA peak of one core {:.1f} GFLOP/s\n", cpu_name(), instruction_set(), threads(), peak);
  for (const Case& c : std::vector<Case>{{"full/n128/d64", 8, 128, 64},
                                         {"full/n512/d64", 8, 512, 64},
                                         {"full/n1024/d64", 8, 1024, 64},
                                         {"full/n1024/d64, one head", 1, 1024, 64},
                                         {"full/n2048/d64", 4, 2048, 64},
                                         {"causal/n2048/d64", 4, 2048, 64, true},
                                         {"full/n2048/d128", 2, 2048, 128}})
    measure(c, peak);
  fmt::print("FMA peak again {:.1f} GFLOP/s\n", measure_peak_gflops());
}
