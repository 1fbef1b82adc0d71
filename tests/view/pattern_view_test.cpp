// Overviews of patterns: every label with its score, nothing cut, at any width.
#include "regard/pattern_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "regard/error.h"
#include "regard/text_width.h"
#include "view/samples.h"

namespace regard {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Sixteen heads a layer, alternately on the previous token and on the first.
Trace two_kinds(Index heads = 16, Index layers = 2) {
  const Index n = 8;
  Trace trace;
  trace.model = "toy";
  for (Index i = 0; i < n; ++i) trace.source.push_back(std::string(1, static_cast<char>('a' + i)));
  for (Index layer = 0; layer < layers; ++layer) {
    AttentionMap map{.layer = layer};
    map.weights = Tensor<float>({heads, n, n});
    for (Index head = 0; head < heads; ++head)
      for (Index i = 0; i < n; ++i) {
        const Index key = head % 2 ? 0 : std::max<Index>(0, i - 1);
        for (Index j = 0; j < n; ++j) map.weights[(head * n + i) * n + j] = 0.025f + 0.8f * (j == key);
      }
    trace.maps.push_back(map);
  }
  return trace;
}

int widest_line(const std::string& text) {
  int widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, text_columns(line));
  return widest;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PatternView, every_head_stands_in_the_overview_with_label_and_score_at_any_width) {
  const PatternGrid grid = pattern_grid(two_kinds(), AttentionKind::encoder);
  for (int width : {20, 31, 48, 80, 200}) {
    const std::string text = terminal_patterns(grid, {.width = width});
    EXPECT_LE(widest_line(text), width);
    // 0.825 on the target from every query that has one.
    EXPECT_EQ(occurrences(text, "prev   .82") + occurrences(text, "prev   .83"), 16u) << text;
    EXPECT_EQ(occurrences(text, "first  .82") + occurrences(text, "first  .83"), 16u) << text;
    for (int head = 0; head < 16; ++head)
      EXPECT_TRUE(contains(text, std::string("H").append(std::to_string(head)))) << width;
  }
}

TEST(PatternView, all_scores_are_listed_at_any_width) {
  const PatternGrid grid = pattern_grid(two_kinds(3, 1), AttentionKind::encoder);
  for (int width : {20, 40, 72, 100}) {
    const std::string text = terminal_pattern_scores(grid, {.width = width});
    EXPECT_LE(widest_line(text), width);
    for (const char* words : {"L0H0", "L0H2", "prev", "local", "block", "broad"}) EXPECT_TRUE(contains(text, words));
  }
}

TEST(PatternView, figures_say_every_label_and_score_and_grow_where_cells_would_cut_them) {
  const PatternGrid grid = pattern_grid(two_kinds(), AttentionKind::encoder);
  const std::string svg = figure_patterns(grid, pattern_caption(grid), FigureFormat::svg);
  EXPECT_EQ(occurrences(svg, ">prev</text>"), 16u);
  EXPECT_EQ(occurrences(svg, ">first</text>"), 16u);
  EXPECT_TRUE(contains(svg, "L1H15 first"));
  EXPECT_TRUE(contains(svg, ">Layer 1</text>"));
  // 16 cells as wide as "broad" and more need more than one column of a paper.
  const auto at = svg.find("width=\"") + 7;
  EXPECT_GT(std::stod(svg.substr(at)), column_inches * 72);
  EXPECT_EQ(svg, figure_patterns(grid, pattern_caption(grid), FigureFormat::svg)) << "same input, same bytes";
  EXPECT_EQ(figure_patterns(grid, "", FigureFormat::png).substr(1, 3), "PNG");
  EXPECT_EQ(figure_patterns(grid, "", FigureFormat::pdf).substr(0, 4), "%PDF");
  EXPECT_THROW(figure_patterns({}, "", FigureFormat::svg), ArgumentError);
}

TEST(PatternView, json_has_all_scores_and_null_where_there_is_none) {
  const PatternGrid grid = pattern_grid(two_kinds(2, 1), AttentionKind::encoder);
  const auto json = nlohmann::json::parse(patterns_json({grid}));
  ASSERT_EQ(json["patterns"].size(), 2u);
  const auto& head = json["patterns"][1];
  EXPECT_EQ(head["label"], "first");
  EXPECT_EQ(head["kind"], "encoder");
  EXPECT_NEAR(head["score"].get<double>(), 0.825, 1e-5);
  EXPECT_NEAR(head["scores"]["first"]["uniform"].get<double>(), 0.125, 1e-9);
  EXPECT_TRUE(head["scores"]["block"]["score"].is_null());
  EXPECT_EQ(head["vertical_key"], 0);
}

TEST(PatternView, scores_are_written_in_two_digits) {
  EXPECT_EQ(score_text(0.934), ".93");
  EXPECT_EQ(score_text(1), "1.00");
  EXPECT_EQ(score_text(0.999), "1.00");
  EXPECT_EQ(score_text(0), ".00");
  EXPECT_EQ(score_text(std::nan("")), "-");
}

}  // namespace
}  // namespace regard
