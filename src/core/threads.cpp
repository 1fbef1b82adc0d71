#include "regard/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string_view>

#include "regard/error.h"

#ifdef REGARD_STD_THREADS
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace regard {
namespace {

std::atomic<int> chosen_threads{0};
thread_local bool inside_parallel = false;

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int default_threads() {
  static const int count = [] {
    const char* variable = std::getenv("REGARD_THREADS");
    const std::string_view text = variable ? variable : "";
    if (text.empty()) return usable_cores();
    int wanted = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), wanted);
    if (failure != std::errc() || end != text.data() + text.size() || wanted < 1 || wanted > 1024)
      throw ArgumentError("REGARD_THREADS is '" + std::string(text) + "', must be a whole number from 1 to 1024");
    return wanted;
  }();
  return count;
}

// Libraries below us (oneDNN) bring OpenMP teams of their own; what we run on
// one thread must stay on one, or their sums would depend on the machine.
class OneThread {
 public:
#ifdef REGARD_STD_THREADS
  OneThread() = default;
#else
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
#endif
};

void run_team(int team, const std::function<void(int)>& body) {
#ifdef REGARD_STD_THREADS
  std::vector<std::thread> others;
  try {
    for (int thread = 1; thread < team; ++thread) others.emplace_back(body, thread);
  } catch (const std::exception&) {
    // The system gives no more threads or memory: those that exist do the work.
  }
  body(0);
  for (std::thread& other : others) other.join();
#else
#pragma omp parallel num_threads(team)
  body(omp_get_thread_num());
#endif
}

}  // namespace

int threads() {
  const int chosen = chosen_threads.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : default_threads();
}

void set_threads(int count) { chosen_threads.store(std::max(0, count), std::memory_order_relaxed); }

void parallel_items(std::int64_t items, const std::function<void(std::int64_t, int)>& work) {
  const int team = static_cast<int>(std::min<std::int64_t>(threads(), items));
  if (team <= 1 || inside_parallel) {
    const OneThread guard;
    for (std::int64_t item = 0; item < items; ++item) work(item, 0);
    return;
  }
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_guard;
  run_team(team, [&](int thread) {
    inside_parallel = true;
    const OneThread guard;
    for (std::int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      try {
        work(item, thread);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(failure_guard);
        if (!failure) failure = std::current_exception();
        next.store(items, std::memory_order_relaxed);
      }
    }
    inside_parallel = false;
  });
  if (failure) std::rethrow_exception(failure);
}

void parallel_ranges(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& work) {
  if (count <= 0) return;
  const std::int64_t step = std::max<std::int64_t>(1, grain);
  parallel_items((count + step - 1) / step,
                 [&](std::int64_t item, int) { work(item * step, std::min(count, (item + 1) * step)); });
}

const char* threads_backend() {
#ifdef REGARD_STD_THREADS
  return "std::thread";
#else
  return "OpenMP";
#endif
}

}  // namespace regard
