#include "regard/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace regard {
namespace {

Parameter<double> parameter(double value, double gradient, bool decays = true) {
  Parameter<double> p("p", {1}, decays);
  p.value[0] = value;
  p.gradient[0] = gradient;
  return p;
}

// With bias correction the first step is rate * sign(gradient); decay takes
// rate * weight_decay of the value beside it, whatever the gradient.
TEST(AdamW, the_first_step_is_the_rate_and_decay_is_decoupled) {
  auto decaying = parameter(2.0, 0.001), plain = parameter(2.0, -5.0, false);
  AdamW<double> optimizer({&decaying, &plain}, {.epsilon = 0, .weight_decay = 0.1});
  optimizer.step(0.01);
  EXPECT_NEAR(decaying.value[0], 2.0 - 0.01 * 0.1 * 2.0 - 0.01, 1e-12);
  EXPECT_NEAR(plain.value[0], 2.0 + 0.01, 1e-12);
  EXPECT_EQ(decaying.gradient[0], 0) << "a step clears the gradients";
}

// Two steps by the published recurrences, written out: gradients 1 then 3.
TEST(AdamW, follows_its_recurrences) {
  auto p = parameter(1.0, 1.0);
  AdamW<double> optimizer({&p}, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0});
  optimizer.step(0.1);
  const double after_one = 1.0 - 0.1 * 1.0 / (1.0 + 1e-8);
  EXPECT_NEAR(p.value[0], after_one, 1e-12);
  p.gradient[0] = 3.0;
  optimizer.step(0.1);
  const double m = (0.9 * 0.1 + 0.1 * 3.0) / (1 - 0.81), v = (0.99 * 0.01 + 0.01 * 9.0) / (1 - 0.9801);
  EXPECT_NEAR(p.value[0], after_one - 0.1 * m / (std::sqrt(v) + 1e-8), 1e-12);
}

TEST(AdamW, finds_the_bottom_of_a_bowl) {
  auto p = parameter(5.0, 0.0);
  AdamW<double> optimizer({&p}, {.weight_decay = 0});
  for (int step = 0; step < 2000; ++step) {
    p.gradient[0] = 2 * (p.value[0] - 1.5);
    optimizer.step(0.02);
  }
  EXPECT_NEAR(p.value[0], 1.5, 1e-3);
}

TEST(ClipGradients, scales_the_joint_norm_and_returns_it) {
  auto a = parameter(0, 3.0), b = parameter(0, 4.0);
  EXPECT_NEAR(clip_gradients<double>({&a, &b}, 1.0), 5.0, 1e-12);
  EXPECT_NEAR(a.gradient[0], 0.6, 1e-12);
  EXPECT_NEAR(b.gradient[0], 0.8, 1e-12);
  EXPECT_NEAR(clip_gradients<double>({&a, &b}, 2.0), 1.0, 1e-12);
  EXPECT_NEAR(a.gradient[0], 0.6, 1e-12) << "a norm below the limit is left alone";
}

TEST(ClipGradients, a_norm_that_is_not_finite_leaves_gradients_alone) {
  auto a = parameter(0, std::numeric_limits<double>::infinity()), b = parameter(0, 4.0);
  EXPECT_FALSE(std::isfinite(clip_gradients<double>({&a, &b}, 1.0)));
  EXPECT_EQ(b.gradient[0], 4.0);
}

TEST(Schedule, rises_in_a_line_then_follows_its_kind) {
  Schedule schedule{.peak = 2.0, .warmup = 10, .total = 110};
  EXPECT_NEAR(schedule.at(1), 0.2, 1e-12);
  EXPECT_NEAR(schedule.at(10), 2.0, 1e-12);
  EXPECT_NEAR(schedule.at(60), 1.0, 1e-12);
  EXPECT_NEAR(schedule.at(110), 0.0, 1e-12);
  EXPECT_NEAR(schedule.at(500), 0.0, 1e-12);
  schedule.kind = ScheduleKind::inverse_sqrt;
  EXPECT_NEAR(schedule.at(40), 1.0, 1e-12);
  schedule.kind = ScheduleKind::constant;
  EXPECT_NEAR(schedule.at(1000), 2.0, 1e-12);
}

TEST(Schedule, without_warm_up_starts_near_the_peak) {
  const Schedule schedule{.kind = ScheduleKind::constant, .peak = 2.0, .warmup = 0};
  EXPECT_EQ(schedule.at(1), 2.0);
}

}  // namespace
}  // namespace regard
