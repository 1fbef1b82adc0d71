#include "regard/mask.h"

#include <gtest/gtest.h>

#include "regard/error.h"
#include "regard/plan.h"
#include "regard/sparse_masks.h"
#include "regard/tensor.h"

namespace regard {
namespace {

TEST(mask, causal_aligns_at_the_bottom_right) {
  EXPECT_EQ(causal().picture(2, 5), "11110\n11111\n");
  EXPECT_EQ(causal().picture(5, 2), "00\n00\n00\n10\n11\n");
  EXPECT_EQ(causal().picture(1, 8), "11111111\n");
  EXPECT_EQ(causal().picture(2, 5).size(), 12u);
}

TEST(mask, sliding_window_counts_the_query_itself) {
  EXPECT_EQ(sliding_window(2).picture(5, 5), "10000\n11000\n01100\n00110\n00011\n");
  EXPECT_EQ(sliding_window(5).picture(5, 5), causal().picture(5, 5));
  EXPECT_EQ((causal() & window(1, -1)).picture(5, 5), sliding_window(2).picture(5, 5));
}

TEST(mask, window_bounds_are_inclusive_on_both_sides) {
  EXPECT_EQ(window(1, 2).picture(4, 4), "1110\n1111\n0111\n0011\n");
  EXPECT_EQ(window(-1, -1).picture(2, 3), "111\n111\n");
}

TEST(mask, documents_see_themselves_only) {
  const Tensor<std::int64_t> ids({1, 5}, {7, 7, 3, 3, 3});
  EXPECT_EQ(documents(ids).picture(5, 5), "11000\n11000\n00111\n00111\n00111\n");
  EXPECT_EQ((documents(ids) & causal()).picture(5, 5), "10000\n11000\n00100\n00110\n00111\n");
}

TEST(mask, nothing_brings_a_padded_key_back) {
  const Tensor<std::int64_t> ids({1, 4}, {5, 5, 0, 0});
  const Mask padded = padding(ids, 0);
  EXPECT_EQ(padded.picture(2, 4), "1100\n1100\n");
  EXPECT_EQ((padded | all_visible()).picture(2, 4), "1100\n1100\n");
  EXPECT_EQ((causal() | padded).picture(2, 4), "1100\n1100\n");
  EXPECT_EQ((!(padded & causal())).picture(4, 4), "0100\n0000\n0000\n0000\n");
}

TEST(mask, padding_of_both_sides_empties_padded_queries) {
  const Tensor<std::int64_t> q_ids({1, 3}, {5, 0, 5}), k_ids({1, 4}, {5, 5, 5, 0});
  EXPECT_EQ(padding(q_ids, k_ids, 0).picture(3, 4), "1110\n0000\n1110\n");
}

TEST(mask, left_padding_with_causal_leaves_the_right_rows) {
  const Tensor<std::int64_t> ids({1, 5}, {0, 0, 0, 1, 1});
  EXPECT_EQ((causal() & padding(ids, 0)).picture(5, 5), "00000\n00000\n00000\n00010\n00011\n");
}

TEST(mask, boolean_tensors_broadcast_and_mean_true_to_attend) {
  const Tensor<std::uint8_t> row({1, 3}, {1, 0, 1});
  EXPECT_EQ(boolean(std::as_const(row).view<2>()).picture(2, 3), "101\n101\n");
  const Tensor<std::uint8_t> per_batch({2, 1, 3}, {1, 0, 1, 0, 1, 0});
  EXPECT_EQ(boolean(std::as_const(per_batch).view<3>()).picture(2, 3, 1), "010\n010\n");
  const Tensor<std::uint8_t> per_head({1, 2, 2, 1}, {1, 0, 0, 1});
  EXPECT_EQ(boolean(std::as_const(per_head).view<4>()).picture(2, 3, 0, 1), "000\n111\n");
  // A transposed tensor reads by its strides.
  const Tensor<std::uint8_t> tall({3, 2}, {1, 0, 0, 1, 1, 1});
  EXPECT_EQ(boolean(std::as_const(tall).view<2>().transposed(0, 1)).picture(2, 3), "101\n011\n");
}

// Coverage may say `some` where it can't tell, but never anything false.
TEST(mask, coverage_never_contradicts_the_pairs) {
  Tensor<std::int64_t> ids({1, 40}), pads({1, 40});
  for (Index i = 0; i < 40; ++i) {
    ids[i] = i / 9;
    pads[i] = i % 11 == 10 ? 0 : 1;
  }
  Tensor<std::uint8_t> holes({40, 40});
  for (Index i = 0; i < 1600; ++i) holes[i] = i % 3 != 0 && i < 1200;
  const Mask free = boolean(std::as_const(holes).view<2>());
  const std::vector<Mask> masks{
      causal(), window(3, 2),    !window(3, 2),       documents(ids),     padding(pads, 0),
      free,     causal() & free, window(4, 0) | free, !(free | causal()), documents(ids) & padding(pads, 0)};
  for (const Mask& mask : masks)
    for (Index row = 0; row < 40; row += 3)
      for (Index key = 0; key < 40; key += 5) {
        const MaskBlock block{0, 0, row, std::min<Index>(3, 40 - row), key, std::min<Index>(5, 40 - key), 0};
        std::vector<std::uint8_t> visible(15);
        mask.fill(block, visible.data(), 5);
        Index seen = 0;
        for (Index r = 0; r < block.rows; ++r)
          for (Index j = 0; j < block.keys; ++j) seen += visible[static_cast<std::size_t>(r * 5 + j)];
        if (mask.coverage(block) == Coverage::none) {
          EXPECT_EQ(seen, 0);
        }
        if (mask.coverage(block) == Coverage::all) {
          EXPECT_EQ(seen, block.rows * block.keys);
        }
      }
}

TEST(mask, bands_know_their_blocks_exactly) {
  EXPECT_EQ(causal().coverage({0, 0, 0, 4, 4, 4, 0}), Coverage::none);
  EXPECT_EQ(causal().coverage({0, 0, 4, 4, 0, 4, 0}), Coverage::all);
  EXPECT_EQ(causal().coverage({0, 0, 0, 4, 3, 4, 0}), Coverage::some);
  EXPECT_EQ(window(2, 0).coverage({0, 0, 8, 1, 0, 6, 0}), Coverage::none);
}

TEST(mask, a_picture_of_what_does_not_fit_is_refused) {
  const Tensor<std::int64_t> ids({2, 5}, std::int64_t{1});
  EXPECT_EQ(documents(ids).picture(5, 5, 1).size(), 30u);
  EXPECT_EQ(documents(ids).picture(5, 5, 0).size(), 30u);  // the first of two
  EXPECT_THROW(documents(ids).picture(5, 5, 2), ArgumentError);
  EXPECT_THROW(documents(ids).picture(5, 6), ArgumentError);
  EXPECT_THROW(documents(ids).picture(5, 5, -1), ArgumentError);
  EXPECT_THROW(prefix_lm({1, 3}).picture(3, 3, 2), ArgumentError);
  const Tensor<std::uint8_t> per_head({1, 2, 3, 3});
  EXPECT_THROW(boolean(per_head.view<4>()).picture(3, 3, 0, 2), ArgumentError);
  EXPECT_THROW(causal().picture(-1, 3), ArgumentError);
}

TEST(mask, a_shape_that_does_not_fit_is_named) {
  const Tensor<std::uint8_t> wrong({3, 4});
  try {
    boolean(std::as_const(wrong).view<2>()).check({2, 8, 3, 5});
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "boolean mask: shape [3,4] does not broadcast to [batch,q_heads,q_len,kv_len] = [2,8,3,5]");
  }
  EXPECT_THROW(window(-2, 0), ArgumentError);
  EXPECT_THROW(sliding_window(0), ArgumentError);
}

// 2048 x 2048 causal: of 86 row chunks x 11 key blocks, chunk c (24 rows) skips
// every block that begins after its last row.
TEST(plan, causal_blocks_above_the_diagonal_are_skipped) {
  const Tensor<float> x({1, 1, 2048, 8});
  const AttendPlan plan = plan_attend(x, x, x, {.mask = causal()});
  Index skipped = 0, tiles = 0;
  for (Index row = 0; row < 2048; row += plan.chunk_rows)
    for (Index key = 0; key < 2048; key += plan.key_block, ++tiles)
      skipped += key > std::min<Index>(2047, row + plan.chunk_rows - 1);
  EXPECT_EQ(plan.tiles, tiles);
  EXPECT_EQ(plan.skipped_tiles, skipped);
  EXPECT_GT(plan.skipped_tiles, plan.tiles * 2 / 5);
}

struct Mine {
  static constexpr const char* name = "mine";
  float operator()(float score, const Position&) const { return score; }
};

TEST(plan, names_a_users_modifier_and_the_kernel_that_runs_it) {
  const Tensor<float> x({1, 1, 4, 8});
  const AttendPlan plan = plan_attend(x, x, x, {.score = softcap(5) + ScoreModifiers(Mine{})});
  EXPECT_EQ(plan.score, (std::vector<std::string>{"softcap", "mine"}));
  EXPECT_EQ(plan.kernel, plan_attend(x, x, x).kernel);
  EXPECT_NE(explain(plan).find("softcap + mine"), std::string::npos);
}

}  // namespace
}  // namespace regard
