#include "regard/heatmap.h"

#include <gtest/gtest.h>

#include <limits>

#include "regard/error.h"
#include "view/samples.h"

namespace regard {
namespace {

TEST(HeatMap, layers_and_heads_count_from_zero) {
  const HeatMap map = heat_map(samples::uniform(3, "w", 6, 10), {AttentionKind::encoder, 5, 9});
  EXPECT_EQ(map.title, "Layer 5, Head 9");
  EXPECT_EQ(map.name, "L5H9");
}

TEST(HeatMap, cross_attention_rows_are_the_symbols_being_produced) {
  const HeatMap map = heat_map(samples::knot(), {AttentionKind::cross, 0, 0});
  EXPECT_EQ(map.queries.texts, (std::vector<std::string>{"N", "AA", "T", "</s>"}));
  EXPECT_EQ(map.keys.texts, (std::vector<std::string>{"k", "n", "o", "t"}));
  EXPECT_EQ(map.queries.title, "symbol being produced");
  const HeatMap decoder = heat_map(samples::knot(), {AttentionKind::decoder, 0, 0});
  EXPECT_EQ(decoder.queries.texts[0], "<s>");
}

TEST(HeatMap, mean_over_heads_is_the_average_and_says_so) {
  const HeatMap map = heat_map(samples::knot(), {AttentionKind::cross, 0, mean_of_heads});
  EXPECT_EQ(map.value(0, 1), 0.625f);  // (1 + 0.25) / 2
  EXPECT_EQ(map.value(0, 0), 0.125f);
  EXPECT_EQ(map.title, "Layer 0, mean over 2 heads");
}

TEST(HeatMap, cells_above_the_causal_diagonal_are_hidden_and_differ_from_zero) {
  const HeatMap map = heat_map(samples::knot(), {AttentionKind::decoder, 0, 0});
  EXPECT_TRUE(map.hidden(0, 1));
  EXPECT_FALSE(map.hidden(1, 0));
  EXPECT_EQ(cell_colour(map, 0, 1), hidden_colour());
  EXPECT_NE(cell_colour(map, 0, 1), sequential_colour(0));
  EXPECT_EQ(map.seen, (std::vector<Index>{1, 2, 3, 4}));
}

TEST(HeatMap, scale_is_linear_up_to_64_keys_and_lift_above) {
  EXPECT_EQ(heat_map(samples::uniform(64), {}).scale, Scale::linear);
  EXPECT_EQ(heat_map(samples::uniform(65), {}).scale, Scale::lift);
  EXPECT_EQ(heat_map(samples::uniform(65), {}, {.scale = Scale::linear}).scale, Scale::linear);
}

TEST(HeatMap, lift_is_zero_for_uniform_attention_and_full_for_a_single_key) {
  const HeatMap map = heat_map(samples::uniform(100), {});
  EXPECT_NEAR(shade(map, 0, 5), 0, 1e-6);
  EXPECT_EQ(shade(map, 99, 0), 1);   // log2(1 x 100) > log2(64)
  EXPECT_EQ(shade(map, 99, 1), -1);  // weight 0
}

TEST(HeatMap, logarithmic_scale_gives_a_quarter_a_decade) {
  HeatMap map = heat_map(samples::uniform(2), {}, {.scale = Scale::logarithmic});
  map.values[0] = 0.01f;
  map.values[1] = 1e-6f;
  EXPECT_NEAR(shade(map, 0, 0), 0.5, 1e-6);
  EXPECT_EQ(shade(map, 0, 1), 0);
}

TEST(HeatMap, weights_have_three_digits_and_small_ones_are_not_zero) {
  EXPECT_EQ(weight_text(0), "0");
  EXPECT_EQ(weight_text(0.0004), "< 0.001");
  EXPECT_EQ(weight_text(0.0006), "0.001");
  EXPECT_EQ(weight_text(0.12345), "0.123");
  EXPECT_EQ(weight_text(1), "1.000");
}

TEST(HeatMap, repeated_tokens_get_their_index) {
  Trace trace = samples::uniform(3);
  trace.source = {"n", "a", "n"};
  const HeatMap map = heat_map(trace, {});
  EXPECT_EQ(map.keys.label(0), "n₀");
  EXPECT_EQ(map.keys.label(1), "a");
  EXPECT_EQ(map.keys.label(2), "n₂");
}

TEST(HeatMap, sub_word_marks_are_cleaned_unless_raw_labels_are_asked_for) {
  Trace trace = samples::uniform(8);
  trace.source = {"▁the", "##ing", "Ġcat", "end</w>", "▁", "", "Ġ", "\n"};
  EXPECT_EQ(heat_map(trace, {}).keys.texts,
            (std::vector<std::string>{"the", "ing", "cat", "end", "␣", "∅", "Ġ", "\\n"}));
  EXPECT_EQ(heat_map(trace, {}, {.raw_labels = true}).keys.texts[1], "##ing");
}

TEST(HeatMap, labels_thin_out_in_round_steps) {
  EXPECT_EQ(label_step(60, 60), 1);
  EXPECT_EQ(label_step(61, 60), 2);
  EXPECT_EQ(label_step(100, 10), 10);
  EXPECT_EQ(label_step(101, 10), 20);
  EXPECT_EQ(label_step(1000, 3), 500);
  EXPECT_EQ(label_step(0, 0), 1);
}

TEST(HeatMap, strongest_pairs_come_in_order_without_hidden_ones) {
  HeatMap map = heat_map(samples::knot(), {AttentionKind::decoder, 0, 0});
  map.values[1] = 9;  // hidden
  const auto pairs = strongest_pairs(map, 3);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].weight, 1.0f);
  EXPECT_EQ(pairs[1].query, 1);
  EXPECT_EQ(pairs[1].key, 0);
  EXPECT_EQ(pairs[2].key, 1);
  EXPECT_EQ(strongest_keys(map, 2, 10).size(), 3u);
  EXPECT_THROW(strongest_keys(map, 4, 1), ArgumentError);
}

TEST(HeatMap, focus_is_one_for_one_key_a_row_and_zero_for_uniform_rows) {
  EXPECT_NEAR(focus(heat_map(samples::knot(), {AttentionKind::cross, 0, 0})), 1, 1e-6);
  EXPECT_NEAR(focus(heat_map(samples::knot(), {AttentionKind::cross, 0, 1})), 0, 1e-6);
  EXPECT_NEAR(focus(heat_map(samples::knot(), {AttentionKind::decoder, 0, 0})), 0, 1e-6);
  // 1/2 1/2 of four: entropy is half of log 4.
  HeatMap half = heat_map(samples::knot(), {AttentionKind::cross, 0, 1});
  for (Index cell = 0; cell < 16; ++cell) half.values[cell] = cell % 4 < 2 ? 0.5f : 0;
  EXPECT_NEAR(focus(half), 0.5, 1e-6);
}

TEST(HeatMap, attention_sink_is_named_with_its_share) {
  HeatMap map = heat_map(samples::uniform(10), {});
  EXPECT_EQ(sink_verdict(map), "");
  for (Index cell = 0; cell < 100; ++cell) map.values[cell] = cell % 10 ? 0.04222222f : 0.62f;
  EXPECT_EQ(sink_verdict(map), "62 % of the attention is on w0 (position 0)");
}

TEST(HeatMap, pooling_keeps_the_largest_visible_value) {
  HeatMap map = heat_map(samples::knot(), {AttentionKind::decoder, 0, 0});
  const HeatMap small = pooled(map, 2);
  EXPECT_EQ(small.values.shape(), (Shape{2, 2}));
  EXPECT_EQ(small.value(0, 0), 1.0f);
  EXPECT_TRUE(small.hidden(0, 1));
  EXPECT_NEAR(small.value(1, 1), 1.0 / 3, 1e-6);
  EXPECT_NE(small.caption.find("largest of 2 × 2"), std::string::npos);
  EXPECT_EQ(pooled(map, 3).keys.texts, (std::vector<std::string>{"0-2", "T"}));
  map.values[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(cell_colour(pooled(map, 2), 0, 0), invalid_colour());
}

TEST(HeatMap, rows_that_do_not_sum_to_one_are_said_to) {
  Trace trace = samples::knot();
  EXPECT_NE(scale_title(heat_map(trace, {AttentionKind::cross, 0, 0})).find("each row sums to 1"), std::string::npos);
  trace.maps[0].weights[1] = 0.25f;
  EXPECT_NE(scale_title(heat_map(trace, {AttentionKind::cross, 0, 0})).find("rows sum to 0.25 to 1"),
            std::string::npos);
}

TEST(HeatMap, what_the_numbers_are_is_said_in_title_caption_and_scale) {
  Trace norms = samples::knot();
  norms.quantity = MapQuantity::norms;
  norms.maps[0].joint = Tensor<float>({4, 4}, 0.125f);
  const HeatMap together = heat_map(norms, {AttentionKind::cross, 0, mean_of_heads});
  EXPECT_EQ(together.title, "Layer 0, 2 heads together, contribution norms");
  EXPECT_EQ(together.value(0, 0), 0.125f) << "not the mean of the heads";
  EXPECT_NE(together.caption.find("contribution norms as shares of their row's sum, in which the residual takes part"),
            std::string::npos)
      << together.caption;
  EXPECT_EQ(scale_title(together), "share of the contributions; rows sum to 0.5 to 0.5");
  EXPECT_EQ(heat_map(norms, {AttentionKind::cross, 0, 1}).title, "Layer 0, Head 1, contribution norms");
  Trace rollout = samples::knot();
  rollout.quantity = MapQuantity::rollout;
  const HeatMap rolled = heat_map(rollout, {AttentionKind::cross, 0, 0});
  EXPECT_EQ(rolled.title, "Layer 0, attention rollout");
  EXPECT_EQ(rolled.name, "L0");
  norms.maps[0].joint = Tensor<float>({4, 3});
  EXPECT_THROW(heat_map(norms, {AttentionKind::cross, 0, 0}), ArgumentError);
}

TEST(HeatMap, wrong_layer_head_or_labels_give_an_error_that_says_what_there_is) {
  const auto message = [](const Trace& trace, const MapChoice& choice) -> std::string {
    try {
      heat_map(trace, choice);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "accepted";
  };
  const Trace trace = samples::knot();
  EXPECT_NE(message(trace, {AttentionKind::cross, 7, 0}).find("layers 0 to 0"), std::string::npos);
  EXPECT_NE(message(trace, {AttentionKind::encoder, 0, 0}).find("none"), std::string::npos);
  EXPECT_NE(message(trace, {AttentionKind::cross, 0, 2}).find("heads 0 to 1"), std::string::npos);
  Trace wrong = trace;
  wrong.source.pop_back();
  EXPECT_NE(message(wrong, {AttentionKind::cross, 0, 0}).find("[2,4,4]"), std::string::npos);
  EXPECT_THROW(heat_grid(trace, AttentionKind::encoder), ArgumentError);
}

TEST(HeatMap, grid_has_layers_down_and_heads_across) {
  const HeatGrid grid = heat_grid(samples::uniform(3, "w", 2, 5), AttentionKind::encoder);
  ASSERT_EQ(grid.rows.size(), 2u);
  ASSERT_EQ(grid.rows[1].size(), 5u);
  EXPECT_EQ(grid.rows[1][4].name, "L1H4");
  EXPECT_EQ(grid.title, "Encoder self-attention");
}

}  // namespace
}  // namespace regard
