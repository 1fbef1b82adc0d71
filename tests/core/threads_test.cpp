// Parallel work: every item once, in order, whatever the number of threads.
#include "regard/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace regard {
namespace {

class Threads : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(0); }
};
INSTANTIATE_TEST_SUITE_P(counts, Threads, ::testing::Values(1, 2, 3, 7, 16));

TEST_P(Threads, run_every_item_exactly_once) {
  std::vector<std::atomic<int>> runs(1000);
  parallel_items(1000, [&](std::int64_t item, int thread) {
    ++runs[static_cast<std::size_t>(item)];
    if (thread < 0 || thread >= GetParam()) throw std::logic_error("thread " + std::to_string(thread));
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  parallel_items(0, [](std::int64_t, int) { FAIL(); });
}

// An item that waits for all earlier ones can only end if they were claimed.
TEST_P(Threads, claim_items_in_order_so_that_waiting_for_earlier_ones_ends) {
  std::atomic<std::int64_t> finished{0};
  std::vector<std::int64_t> order;
  parallel_items(200, [&](std::int64_t item, int) {
    while (finished.load() < item) std::this_thread::yield();
    order.push_back(item);
    finished.store(item + 1);
  });
  ASSERT_EQ(order.size(), 200u);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(order[i], static_cast<std::int64_t>(i));
}

TEST_P(Threads, rethrow_the_first_exception_and_stop_claiming) {
  std::atomic<int> runs{0};
  try {
    parallel_items(1000000, [&](std::int64_t item, int) {
      ++runs;
      if (item == 5) throw std::runtime_error("item 5");
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "item 5");
  }
  EXPECT_GE(runs, 6);
  EXPECT_LT(runs, 1000000);
  // And work goes on afterwards.
  std::atomic<int> after{0};
  parallel_items(10, [&](std::int64_t, int) { ++after; });
  EXPECT_EQ(after, 10);
}

TEST_P(Threads, cut_ranges_that_depend_on_the_grain_alone) {
  std::mutex guard;
  std::set<std::pair<std::int64_t, std::int64_t>> pieces;
  parallel_ranges(1003, 100, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard<std::mutex> lock(guard);
    EXPECT_TRUE(pieces.emplace(begin, end).second);
  });
  std::set<std::pair<std::int64_t, std::int64_t>> wanted;
  for (std::int64_t begin = 0; begin < 1000; begin += 100) wanted.emplace(begin, begin + 100);
  wanted.emplace(1000, 1003);
  EXPECT_EQ(pieces, wanted);
  parallel_ranges(0, 10, [](std::int64_t, std::int64_t) { FAIL(); });
}

TEST_P(Threads, run_nested_work_on_the_thread_that_asks) {
  std::atomic<int> strangers{0}, inner{0};
  parallel_items(8, [&](std::int64_t, int) {
    const auto self = std::this_thread::get_id();
    parallel_items(5, [&](std::int64_t, int thread) {
      ++inner;
      if (std::this_thread::get_id() != self || thread != 0) ++strangers;
    });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_EQ(strangers, 0);
}

// In a process of its own, which the system gives four threads at most: others
// of the same user count, so root becomes nobody first.
void work_without_threads_to_be_had() {
  const rlimit four{4, 4};
  if ((::getuid() == 0 && ::setuid(65534) != 0) || setrlimit(RLIMIT_NPROC, &four) != 0) std::_Exit(2);
  set_threads(256);
  std::vector<std::atomic<int>> runs(1000);
  std::set<int> used;
  std::mutex guard;
  parallel_items(1000, [&](std::int64_t item, int thread) {
    ++runs[static_cast<std::size_t>(item)];
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const std::lock_guard<std::mutex> lock(guard);
    used.insert(thread);
  });
  const bool once = std::all_of(runs.begin(), runs.end(), [](const auto& count) { return count == 1; });
  std::_Exit(!once ? 3 : used.size() > 4 ? 4 : 0);
}

TEST(threads_that_can_not_be_had, leave_the_work_to_those_that_exist) {
  if (std::string(threads_backend()) == "OpenMP") GTEST_SKIP() << "OpenMP ends the process by itself";
  EXPECT_EXIT(work_without_threads_to_be_had(), ::testing::ExitedWithCode(0), "");
}

TEST(thread_count, is_what_was_set_and_zero_goes_back) {
  const int usual = threads();
  EXPECT_GE(usual, 1);
  set_threads(5);
  EXPECT_EQ(threads(), 5);
  set_threads(0);
  EXPECT_EQ(threads(), usual);
  set_threads(-3);
  EXPECT_EQ(threads(), usual);
  const std::string backend = threads_backend();
  EXPECT_TRUE(backend == "OpenMP" || backend == "std::thread");
}

}  // namespace
}  // namespace regard
