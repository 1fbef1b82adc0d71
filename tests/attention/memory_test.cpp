// Memory linear in length: 16,384 tokens, whose full matrix of scores would be
// 1 GiB, add at most 32 MiB to what goes in and comes out.
#include <fstream>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

constexpr Index tokens = 16384, width = 64;
constexpr Index one_tensor = tokens * width * 4;
constexpr Index allowance = Index{32} << 20;

// Bytes of a line of /proc/self/status; 0 where there is none.
Index status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == name + ":") {
      Index kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  return 0;
}

// How far the resident memory rises above its present size while `work` runs.
template <class F>
Index peak_growth(F work) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const Index before = status_bytes("VmRSS");
  work();
  return status_bytes("VmHWM") - before;
}

bool peak_can_be_reset() {
#ifdef __SANITIZE_ADDRESS__
  return false;  // freed memory is kept aside
#endif
  {
    std::vector<char> large(std::size_t{64} << 20, 1);
    if (large[12345] != 1) return false;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return status_bytes("VmHWM") > 0 && status_bytes("VmHWM") < status_bytes("VmRSS") + (Index{32} << 20);
}

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!peak_can_be_reset()) GTEST_SKIP() << "this system does not report a peak that can be reset";
  }
  Inputs in_ = random_inputs({.q_len = tokens, .kv_len = tokens, .head_dim = width, .value_dim = width});
};

TEST_F(Memory, of_a_peak_is_really_measured) {
  const Index grown = peak_growth([] {
    const std::vector<char> large(std::size_t{100} << 20, 1);
    EXPECT_EQ(large.back(), 1);
  });
  EXPECT_GE(grown, Index{95} << 20);
}

TEST_F(Memory, of_the_forward_pass_is_linear_with_everything_visible) {
  AttendResult result;
  const Index grown = peak_growth([&] { result = attend(in_.q, in_.k, in_.v, {.observe = {.lse = true}}); });
  EXPECT_LE(grown, one_tensor + tokens * 4 + allowance);
  EXPECT_TRUE(all_finite(result.out));
}

TEST_F(Memory, of_every_observer_is_linear) {
  AttendResult result;
  const Index grown = peak_growth([&] {
    result = attend(in_.q, in_.k, in_.v,
                    {.mask = causal(),
                     .observe = {.lse = true,
                                 .entropy = true,
                                 .row_max = true,
                                 .distance = true,
                                 .top_k = 8,
                                 .key_mass = QueryRange{},
                                 .pooled_sum = MapSize{64, 64},
                                 .pooled_max = MapSize{64, 64},
                                 .diagonals = OffsetRange{},
                                 .rectangles = {{0, 0, tokens - 1, 1, 0, tokens}}}});
  });
  EXPECT_LE(grown, one_tensor + allowance);
  EXPECT_TRUE(all_finite(result.diagonal_mass));
}

TEST_F(Memory, of_both_passes_is_linear_under_masks_modifiers_and_sinks) {
  const std::vector<float> sink{0.5f}, slopes{0.01f};
  const AttendOptions options{.mask = sliding_window(700),
                              .score = softcap(20) + alibi(slopes),
                              .sink = sink,
                              .dropout = {0.1, 1},
                              .observe = {.lse = true, .entropy = true}};
  AttendResult result;
  const Index forward = peak_growth([&] { result = attend(in_.q, in_.k, in_.v, options); });
  EXPECT_LE(forward, one_tensor + 2 * tokens * 4 + allowance);
  AttendGradients gradients;
  const Index backward = peak_growth([&] {
    gradients = attend_backward(result.out, in_.q, in_.k, in_.v, {result.out.view<4>(), result.lse.view<3>()}, options);
  });
  EXPECT_LE(backward, 3 * one_tensor + allowance);
  EXPECT_TRUE(all_finite(gradients.dq) && all_finite(gradients.dk));
}

}  // namespace
}  // namespace regard
