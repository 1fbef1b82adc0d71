// Memory is asked for within the steps that products make: the last line with the
// last step, not before and not never.
#include "attention/kernels/ahead.h"

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

constexpr Index line = 64;

// A product of that shape, with `ahead` beside it.
void run_product(Index rows, Index cols, kernels::Ahead& ahead) {
  const kernels::Kernels& kernels = kernels::active();
  constexpr Index depth = 3;
  const Index wide = kernels::padded(cols, kernels.column_tile);
  const std::vector<float> a(static_cast<std::size_t>(rows * depth), 1.0f),
      b(static_cast<std::size_t>(wide * depth), 1.0f);
  std::vector<float> c(static_cast<std::size_t>(rows * wide));
  kernels.product({a.data(), depth, 1, b.data(), depth * kernels.column_tile, kernels.column_tile, c.data(), wide, rows,
                   cols, depth, false, &ahead});
}

// One line for each of `steps` steps.
kernels::Ahead lines(const std::vector<char>& memory, Index steps) {
  kernels::Ahead ahead;
  ahead.read({memory.data(), steps, line, line, 1, DType::i8});
  ahead.spread_over(steps);
  return ahead;
}

TEST(ahead, a_product_makes_the_steps_that_it_promises) {
  on_each_instruction_set([] {
    for (Index rows : {1, 5, 6, 7, 12, 13, 24, 32, 61})
      for (Index cols : {1, 7, 8, 9, 16, 17, 31, 32, 40, 64}) {
        SCOPED_TRACE(instruction_set() + ", " + std::to_string(rows) + " x " + std::to_string(cols));
        const Index steps = kernels::active().product_steps(rows, cols);
        const std::vector<char> memory(static_cast<std::size_t>((steps + 1) * line));
        kernels::Ahead enough = lines(memory, steps), one_short = lines(memory, steps + 1);
        run_product(rows, cols, enough);
        run_product(rows, cols, one_short);
        EXPECT_TRUE(enough.finished());
        EXPECT_FALSE(one_short.finished());
      }
  });
}

Index steps_until_finished(kernels::Ahead ahead) {
  Index steps = 0;
  for (; !ahead.finished(); ++steps) ahead.step();
  return steps;
}

TEST(ahead, every_line_of_every_row_is_asked_for_within_the_steps) {
  const std::vector<float> memory(4096);
  kernels::Ahead ahead;
  // Three rows of 20 floats, 100 apart: two lines each. Two rows of 16 that lie
  // side by side: 128 bytes in one piece, two lines.
  ahead.read({memory.data(), 3, 20, 100, 1});
  ahead.read({memory.data(), 2, 16, 16, 1});
  kernels::Ahead one_by_one = ahead, at_once = ahead, more_steps = ahead;
  one_by_one.spread_over(8);
  at_once.spread_over(1);
  more_steps.spread_over(100);
  ahead.spread_over(3);
  EXPECT_EQ(steps_until_finished(one_by_one), 8);
  EXPECT_EQ(steps_until_finished(at_once), 1);
  EXPECT_EQ(steps_until_finished(more_steps), 8);
  EXPECT_EQ(steps_until_finished(ahead), 3);
}

TEST(ahead, nothing_to_ask_for_is_finished_and_halves_take_half_the_lines) {
  const std::vector<BFloat16> memory(4096);
  EXPECT_TRUE(kernels::Ahead().finished());
  kernels::Ahead ahead;
  ahead.read({memory.data(), 4, 64, 64, 1, DType::bf16});  // 512 bytes
  std::vector<float> out(256);
  ahead.write({out.data(), 80, DType::f32}, 2, 64);  // two rows of 256 bytes
  ahead.spread_over(16);
  EXPECT_EQ(steps_until_finished(ahead), 16);
}

}  // namespace
}  // namespace regard
