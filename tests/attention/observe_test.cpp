// What can be asked for besides the output: it changes nothing else, and a part
// equals the matching part of the whole.
#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

struct Asked {
  Inputs in = random_inputs(
      {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 53, .kv_len = 230, .head_dim = 20, .value_dim = 12});
  Tensor<float> bias = normal({1, 4, 1, 230}, 4);
  std::vector<float> sink{0.1f, 0.2f, -0.3f, 1.0f}, slopes = alibi_slopes(4);
  std::vector<Index> lengths{230, 201};

  AttendOptions options() const {
    return {.mask = causal() & window(150, 0),
            .score = softcap(3) + alibi(slopes),
            .bias = bias.view<4>(),
            .kv_lengths = lengths,
            .sink = sink,
            .dropout = {0.2, 5}};
  }
};

TEST(observing, changes_no_bit_of_anything_else) {
  on_each_instruction_set([] {
    const Asked asked;
    AttendOptions options = asked.options();
    const auto bare = attend(asked.in.q, asked.in.k, asked.in.v, options);
    options.observe = {.lse = true,
                       .entropy = true,
                       .row_max = true,
                       .distance = true,
                       .top_k = 4,
                       .key_mass = QueryRange{10, 40},
                       .pooled_sum = MapSize{8, 8},
                       .pooled_max = MapSize{8, 8},
                       .diagonals = OffsetRange{},
                       .weights = true,
                       .rectangles = {{0, 1, 2, 30, 40, 100, Stage::masked}, {1, 0, 0, 53, 0, 230, Stage::scaled}}};
    const auto full = attend(asked.in.q, asked.in.k, asked.in.v, options);
    EXPECT_TRUE(same_bits(bare.out, full.out));
    EXPECT_TRUE(bare.lse.empty() && bare.entropy.empty() && bare.weights.empty() && bare.rectangles.empty());
    options.observe = {.lse = true};
    EXPECT_TRUE(same_bits(attend(asked.in.q, asked.in.k, asked.in.v, options).lse, full.lse));
    options.observe = {.entropy = true};
    EXPECT_TRUE(same_bits(attend(asked.in.q, asked.in.k, asked.in.v, options).entropy, full.entropy));
    options.observe = {.weights = true};
    EXPECT_TRUE(same_bits(attend(asked.in.q, asked.in.k, asked.in.v, options).weights, full.weights));
  });
}

TEST(observing, a_rectangle_equals_its_part_of_the_whole_at_every_stage) {
  on_each_instruction_set([] {
    const Asked asked;
    for (const Stage stage : {Stage::scaled, Stage::capped, Stage::masked, Stage::weights}) {
      AttendOptions options = asked.options();
      options.observe = {.weights = true,
                         .rectangles = {{1, 2, 0, 53, 0, 230, stage},
                                        {1, 2, 7, 31, 3, 199, stage},
                                        {1, 2, 52, 1, 229, 1, stage},
                                        {1, 2, 5, 0, 5, 0, stage}}};
      const auto got = attend(asked.in.q, asked.in.k, asked.in.v, options);
      const auto whole = std::as_const(got.rectangles[0]).view<2>();
      EXPECT_TRUE(same_bits(got.rectangles[1], packed(whole.slice(0, 7, 38).slice(1, 3, 202))));
      EXPECT_EQ(got.rectangles[2][0], whole(52, 229));
      EXPECT_EQ(got.rectangles[3].shape(), (Shape{0, 0}));
      if (stage == Stage::weights) {
        EXPECT_TRUE(same_bits(got.rectangles[0], packed(std::as_const(got.weights).view<4>()[1][2])));
      }
    }
  });
}

// Against double-precision arithmetic written out here.
TEST(observing, the_stages_are_what_their_names_say) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 3, .kv_len = 4});
    const Tensor<float> bias({1, 1, 1, 4}, {0.5f, 0, -infinity, 1});
    AttendOptions options{.mask = window(-1, 1), .score = softcap(2), .bias = bias.view<4>(), .q_start = Index{0}};
    options.observe.rectangles = {{0, 0, 0, 3, 0, 4, Stage::scaled},
                                  {0, 0, 0, 3, 0, 4, Stage::capped},
                                  {0, 0, 0, 3, 0, 4, Stage::masked},
                                  {0, 0, 0, 3, 0, 4, Stage::weights}};
    const auto got = attend(in.q, in.k, in.v, options).rectangles;
    for (Index i = 0; i < 3; ++i) {
      double sum = 0;
      for (Index j = 0; j < 4; ++j) sum += std::exp(static_cast<double>(got[2][i * 4 + j]));
      for (Index j = 0; j < 4; ++j) {
        double score = 0;
        for (Index d = 0; d < 8; ++d)
          score += static_cast<double>(in.q[i * 8 + d]) * static_cast<double>(in.k[j * 8 + d]);
        score /= std::sqrt(8.0);
        const double capped = 2 * std::tanh(score / 2), masked = capped + static_cast<double>(bias[j]);
        const bool visible = j <= i + 1 && j != 2;
        const Index at = i * 4 + j;
        EXPECT_NEAR(got[0][at], score, 1e-6);
        EXPECT_NEAR(got[1][at], capped, 1e-6);
        if (visible) {
          EXPECT_NEAR(got[2][at], masked, 1e-6);
        } else {
          EXPECT_EQ(got[2][at], -infinity);
        }
        EXPECT_NEAR(got[3][at], visible ? std::exp(masked) / sum : 0.0, 1e-6);
      }
    }
  });
}

TEST(observing, rows_of_weights_sum_to_one_before_dropout) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 30, .kv_len = 30});
    const auto got = attend(in.q, in.k, in.v, {.mask = causal(), .dropout = {0.2, 1}, .observe = {.weights = true}});
    EXPECT_EQ(got.weights[0], 1.0f);
    for (Index i = 0; i < 30; ++i) {
      double sum = 0;
      for (float weight : row_of(got.weights, i)) sum += static_cast<double>(weight);
      EXPECT_NEAR(sum, 1.0, 1e-6) << i;
    }
  });
}

}  // namespace
}  // namespace regard
