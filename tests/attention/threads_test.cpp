// The answer's bits do not depend on the number of threads, nor on luck.
#include <stdexcept>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

struct Question {
  Inputs in = random_inputs(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 130, .kv_len = 290, .head_dim = 16, .value_dim = 16});
  Tensor<float> dout = normal({2, 4, 130, 16}, 9);
  Tensor<float> bias;
  std::vector<float> sink{0.1f, 0.2f, -0.3f, 1.0f}, slopes = alibi_slopes(4);

  explicit Question(Shape bias_shape) : bias(normal(std::move(bias_shape), 4)) {}
  Answer ask() const {
    return answer_to(in, dout,
                     {.mask = causal(),
                      .score = softcap(4) + alibi(slopes),
                      .bias = bias.view<4>(),
                      .sink = sink,
                      .dropout = {0.1, 3}});
  }
};

class ThreadCount : public ::testing::Test {
 protected:
  void TearDown() override { set_threads(0); }
};

TEST_F(ThreadCount, changes_no_bit_forward_or_backward) {
  on_each_instruction_set([] {
    for (const Shape& shape : {Shape{2, 4, 130, 290}, Shape{1, 4, 1, 290}, Shape{2, 1, 130, 290}, Shape{1, 1, 130, 1},
                               Shape{1, 4, 130, 1}, Shape{1, 1, 1, 1}}) {
      const Question question(shape);
      set_threads(1);
      const Answer one = question.ask();
      for (const int count : {2, 3, 7, 16}) {
        SCOPED_TRACE(instruction_set() + ", " + std::to_string(count) + " threads");
        set_threads(count);
        expect_same(question.ask(), one);
      }
    }
  });
}

TEST_F(ThreadCount, gives_the_same_bits_twenty_times_over) {
  const Question question({1, 1, 1, 290});
  set_threads(1);
  const Answer one = question.ask();
  for (const int count : {3, 7}) {
    set_threads(count);
    for (int repeat = 0; repeat < 20; ++repeat) expect_same(question.ask(), one);
  }
}

TEST_F(ThreadCount, is_harmless_at_lengths_around_a_block) {
  on_each_instruction_set([] {
    for (const Index length : {32, 33, 191, 192, 193}) {
      const auto in = random_inputs({.q_len = length, .kv_len = length, .head_dim = 64, .value_dim = 64});
      set_threads(1);
      const auto one = attend(in.q, in.k, in.v);
      set_threads(4);
      EXPECT_TRUE(same_bits(attend(in.q, in.k, in.v).out, one.out)) << length;
    }
  });
}

struct Thrower {
  float operator()(float score, const Position& at) const {
    if (at.row() == 100 && at.key() == 150) throw std::runtime_error("from the modifier");
    return score;
  }
  float derivative(float, const Position&) const { return 1.0f; }
};

TEST_F(ThreadCount, lets_an_exception_of_a_modifier_reach_the_caller) {
  const auto in = random_inputs({.q_heads = 2, .kv_heads = 1, .q_len = 200, .kv_len = 290});
  const auto forward = attend(in.q, in.k, in.v, {.observe = {.lse = true}});
  for (const int count : {1, 3, 16}) {
    set_threads(count);
    EXPECT_THROW(attend(in.q, in.k, in.v, {.score = Thrower{}}), std::runtime_error);
    EXPECT_THROW(attend_backward(forward.out, in.q, in.k, in.v, {forward.out.view<4>(), forward.lse.view<3>()},
                                 {.score = Thrower{}}),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace regard
