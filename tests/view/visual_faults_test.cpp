// Faults that other tools' users reported, as whole kinds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "regard/error.h"
#include "regard/figure.h"
#include "regard/terminal.h"
#include "regard/text_width.h"
#include "regard/view_json.h"
#include "view/samples.h"

namespace regard {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Trace with_tokens(const std::vector<std::string>& tokens) {
  Trace trace = samples::uniform(static_cast<Index>(tokens.size()));
  trace.source = tokens;
  return trace;
}

// Every tag is closed by its own name, in order.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const auto close = xml.find('>', at);
    if (close == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, close - at - 1);
    if (tag.empty()) return false;
    if (tag.back() == '/') continue;
    const std::string name = tag.substr(0, tag.find_first_of(" \n"));
    if (name[0] != '/')
      open.push_back(name);
    else if (open.empty() || name.substr(1) != open.back())
      return false;
    else
      open.pop_back();
  }
  return open.empty();
}

TEST(VisualFaults, many_long_heads_give_a_bounded_file_that_says_what_a_cell_is) {
  const HeatGrid grid = heat_grid(samples::uniform(512, "w", 1, 8), AttentionKind::encoder);
  const std::string svg = figure_grid(grid, FigureFormat::svg);
  EXPECT_TRUE(contains(svg, "each cell shows the largest of 2 × 2 weights"));
  EXPECT_LT(svg.size(), 2'000'000u);
  // Two heads have room for every cell.
  const HeatGrid small = heat_grid(samples::uniform(512, "w", 1, 2), AttentionKind::encoder);
  EXPECT_FALSE(contains(figure_grid(small, FigureFormat::svg), "largest of"));
}

TEST(VisualFaults, batch_axis_gives_one_clear_error) {
  Trace trace = samples::knot();
  trace.maps[0].weights.reshape({1, 2, 4, 4});
  for (auto draw : {+[](const Trace& t) {
                      heat_map(t, {AttentionKind::cross, 0, 0});
                    },
                    +[](const Trace& t) { heat_grid(t, AttentionKind::cross); },
                    +[](const Trace& t) { terminal_first_screen(t); }}) {
    try {
      draw(trace);
      FAIL();
    } catch (const ArgumentError& error) {
      EXPECT_TRUE(contains(error.what(), "[1,2,4,4], need [heads,4,4]")) << error.what();
    }
  }
}

TEST(VisualFaults, tokens_that_are_parts_of_one_character_keep_their_own_cells) {
  // U+1F4A9 in three byte-level tokens.
  const HeatMap map = heat_map(with_tokens({"\xf0\x9f", "\x92", "\xa9"}), {});
  ASSERT_EQ(map.kv_len(), 3);
  for (Index key = 0; key < 3; ++key) EXPECT_TRUE(contains(map.keys.label(key), "\uFFFD"));
}

TEST(VisualFaults, labels_and_names_cannot_send_codes_to_the_terminal) {
  Trace trace = with_tokens({"\x1b[2J", "\u202e", "\n",
                             "\x9b"
                             "31m"});
  trace.model = "\x1b]0;title\x07";
  for (const std::string& text :
       {terminal_heat_map(heat_map(trace, {})), terminal_first_screen(trace), terminal_contents(trace)})
    for (const char* code : {"\x1b", "\x07", "\x9b", "\u202e", "\u009b"}) EXPECT_FALSE(contains(text, code));
}

TEST(VisualFaults, any_label_gives_well_formed_svg_and_valid_json) {
  Trace trace = with_tokens({"\xff", "\x01", "]]>", "\"'", "\xef\xbf\xbe", "", "<!--", "\xed\xa0\x80"});
  trace.model = "a & b <\x02>";
  const HeatMap map = heat_map(trace, {});
  for (const std::string& svg : {figure_matrix(map, FigureFormat::svg), figure_lines(map, FigureFormat::svg),
                                 figure_grid(heat_grid(trace, AttentionKind::encoder), FigureFormat::svg)}) {
    EXPECT_TRUE(well_formed(svg));
    for (const char* refused : {"\x01", "\x02", "\xef\xbf\xbe", "\xff"}) EXPECT_FALSE(contains(svg, refused));
  }
  EXPECT_TRUE(nlohmann::json::accept(heat_maps_json({map})));
  for (FigureFormat format : {FigureFormat::png, FigureFormat::pdf}) EXPECT_FALSE(figure_matrix(map, format).empty());
}

TEST(VisualFaults, rows_of_cells_begin_in_one_column_under_any_script) {
  const std::vector<std::string> tokens{"我们", "e\u0301", "👨‍👩‍👧", "שלום", "नमस्ते", "x"};
  const std::string text = terminal_heat_map(heat_map(with_tokens(tokens), {}), {.depth = ColourDepth::indexed});
  std::istringstream stream(text);
  int rows = 0;
  for (std::string line; std::getline(stream, line);) {
    const auto cells = line.find("\x1b[48;5;");
    if (cells == std::string::npos || cells == 0) continue;     // the scale bar begins at once
    EXPECT_EQ(text_columns(line.substr(0, cells)), 5) << line;  // the widest label (4) and a space
    ++rows;
  }
  EXPECT_EQ(rows, 6);
}

TEST(VisualFaults, weights_that_are_no_numbers_are_shown_as_such) {
  Trace trace = samples::knot();
  trace.maps[0].weights[0] = std::numeric_limits<float>::quiet_NaN();
  const HeatMap map = heat_map(trace, {AttentionKind::cross, 0, 0});
  EXPECT_TRUE(std::isnan(shade(map, 0, 0)));
  EXPECT_EQ(cell_colour(map, 0, 0), invalid_colour());
  EXPECT_EQ(strongest_pairs(map, 99).size(), 15u);
  EXPECT_TRUE(contains(terminal_heat_map(map), "nan"));
  EXPECT_TRUE(nlohmann::json::parse(heat_maps_json({map}))["maps"][0]["weights"][0][0].is_null());
  EXPECT_FALSE(figure_matrix(map, FigureFormat::svg).empty());
}

}  // namespace
}  // namespace regard
