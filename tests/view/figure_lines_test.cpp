#include <gtest/gtest.h>

#include <string>

#include "regard/error.h"
#include "regard/figure.h"
#include "view/samples.h"

namespace regard {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

HeatMap cross(Index head) { return heat_map(samples::knot(), {AttentionKind::cross, 0, head}); }

// The key under the picture shows four sample lines.
std::size_t lines_of(const HeatMap& map, double mass) {
  return count(figure_lines(map, FigureFormat::svg, {.line_mass = mass}), "<path ") - 4;
}

TEST(FigureLines, carry_the_asked_share_of_each_row) {
  EXPECT_EQ(lines_of(cross(0), 0.8), 4u);   // one key a row has it all
  EXPECT_EQ(lines_of(cross(1), 0.5), 8u);   // of four equal keys two
  EXPECT_EQ(lines_of(cross(1), 0.8), 16u);  // three are 0.75
  EXPECT_EQ(lines_of(cross(1), 1.0), 16u);
}

TEST(FigureLines, hidden_pairs_have_none) {
  const HeatMap causal = heat_map(samples::knot(), {AttentionKind::decoder, 0, 0});
  EXPECT_EQ(lines_of(causal, 1), 10u);  // 1 + 2 + 3 + 4
}

TEST(FigureLines, rows_that_sum_to_less_than_one_are_measured_by_their_own_sum) {
  Trace trace = samples::knot();
  for (Index cell = 16; cell < 32; ++cell) trace.maps[0].weights[cell] = 0.01f;
  EXPECT_EQ(lines_of(heat_map(trace, {AttentionKind::cross, 0, 1}), 0.5), 8u);
  for (Index cell = 16; cell < 32; ++cell) trace.maps[0].weights[cell] = 0;
  EXPECT_EQ(lines_of(heat_map(trace, {AttentionKind::cross, 0, 1}), 1), 0u);
}

TEST(FigureLines, labels_stand_on_both_sides_and_the_share_is_said) {
  const std::string svg = figure_lines(cross(0), FigureFormat::svg);
  for (const char* text : {">k</text>", ">AA</text>", ">symbol being produced</text>", ">Layer 0, Head 0</text>"})
    EXPECT_EQ(count(svg, text), 1u) << text;
  EXPECT_NE(svg.find("lines carry 80 % of each row"), std::string::npos);
  EXPECT_NE(svg.find("Strongest pairs: N to n: 1.000"), std::string::npos);
}

TEST(FigureLines, more_than_2000_are_refused_with_advice) {
  try {
    figure_lines(heat_map(samples::uniform(60), {}), FigureFormat::svg, {.line_mass = 1});
    FAIL();
  } catch (const ArgumentError& error) {
    // 59 even rows of 60 keys, and one row of a single key.
    EXPECT_NE(std::string(error.what()).find("3541 lines"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("lower the share"), std::string::npos) << error.what();
  }
}

TEST(FigureLines, same_input_gives_the_same_bytes_in_every_format) {
  for (FigureFormat format : {FigureFormat::svg, FigureFormat::png, FigureFormat::pdf})
    EXPECT_EQ(figure_lines(cross(1), format), figure_lines(cross(1), format));
}

TEST(FigureLines, empty_maps_and_shares_out_of_range_are_refused) {
  EXPECT_THROW(figure_lines(HeatMap{}, FigureFormat::svg), ArgumentError);
  for (double mass : {0.0, -1.0, 1.1}) EXPECT_THROW(lines_of(cross(0), mass), ArgumentError) << mass;
}

}  // namespace
}  // namespace regard
