#include "regard/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

#include "regard/error.h"
#include "regard/text_width.h"
#include "view/samples.h"

namespace regard {
namespace {

// What is left on the screen: without the colour sequences.
std::string without_colours(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = text.find('m', i);
    else
      plain += text[i];
  }
  return plain;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_within(const std::string& text, int width) {
  for (const std::string& line : lines(without_colours(text))) EXPECT_LE(text_columns(line), width) << line;
}

TEST(Terminal, ability_follows_the_environment) {
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "xterm-256color", .colour_term = "truecolor"}),
            ColourDepth::truecolour);
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "xterm", .colour_term = "24bit"}), ColourDepth::truecolour);
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "screen-256color"}), ColourDepth::indexed);
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "linux"}), ColourDepth::sixteen);
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "dumb", .colour_term = "truecolor"}), ColourDepth::none);
  EXPECT_EQ(colour_depth({.is_terminal = true}), ColourDepth::none);
}

TEST(Terminal, pipes_and_no_color_get_no_colour) {
  EXPECT_EQ(colour_depth({.is_terminal = false, .term = "xterm-256color", .colour_term = "truecolor"}),
            ColourDepth::none);
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "xterm-256color", .no_colour = "1"}), ColourDepth::none);
  EXPECT_EQ(colour_depth({.is_terminal = true, .term = "xterm-256color", .no_colour = ""}), ColourDepth::indexed);
}

TEST(Terminal, plain_text_holds_numbers_and_no_escape) {
  const std::string text = terminal_heat_map(heat_map(samples::knot(), {AttentionKind::cross, 0, 0}));
  EXPECT_FALSE(contains(text, "\x1b"));
  EXPECT_TRUE(contains(text, "   N      0 1.000     0     0\n"));
  EXPECT_TRUE(contains(text, "each row sums to 1"));
}

TEST(Terminal, hidden_cells_are_no_zeros_in_plain_text) {
  const std::string text = terminal_heat_map(heat_map(samples::knot(), {AttentionKind::decoder, 0, 0}));
  EXPECT_TRUE(contains(text, "<s>  1.000     -     -     -\n"));
}

TEST(Terminal, small_maps_have_two_columns_a_cell_in_the_colour_of_their_weight) {
  const HeatMap map = heat_map(samples::knot(), {AttentionKind::decoder, 0, 0});
  const std::string text = terminal_heat_map(map, {.width = 80, .depth = ColourDepth::truecolour});
  const Colour full = sequential_colour(1);
  const std::string ground =
      "48;2;" + std::to_string(full.red) + ";" + std::to_string(full.green) + ";" + std::to_string(full.blue);
  EXPECT_TRUE(contains(text, ground));
  // The first row: its label, one full cell, three hidden ones.
  EXPECT_TRUE(contains(without_colours(text), "<s>   ······\n"));
}

TEST(Terminal, every_depth_writes_its_own_codes) {
  const HeatMap map = heat_map(samples::knot(), {AttentionKind::cross, 0, 0});
  EXPECT_TRUE(contains(terminal_heat_map(map, {80, ColourDepth::truecolour}), "48;2;"));
  EXPECT_TRUE(contains(terminal_heat_map(map, {80, ColourDepth::indexed}), "48;5;"));
  EXPECT_TRUE(contains(terminal_heat_map(map, {80, ColourDepth::sixteen}), "44;97m"));  // blue: the full weight
}

TEST(Terminal, long_inputs_use_half_blocks_two_rows_a_line) {
  const HeatMap map = heat_map(samples::uniform(60), {});
  const auto text = lines(without_colours(terminal_heat_map(map, {100, ColourDepth::truecolour})));
  int blocks = 0;
  for (const std::string& line : text) blocks += contains(line, "▀");
  EXPECT_EQ(blocks, 30);
}

TEST(Terminal, no_line_is_wider_than_asked_for) {
  for (Index tokens : {1, 4, 24, 25, 60, 65, 300})
    for (int width : {20, 33, 80, 200})
      for (ColourDepth depth : {ColourDepth::none, ColourDepth::sixteen, ColourDepth::truecolour})
        for (const char* token : {"w", "北京", "a-very-long-token-that-never-ends"}) {
          const HeatMap map = heat_map(samples::uniform(tokens, token), {});
          expect_within(terminal_heat_map(map, {width, depth}), width);
          if (tokens <= 60) expect_within(terminal_heat_maps({map, map, map}, {width, depth}), width);
        }
}

TEST(Terminal, heads_stand_side_by_side_while_there_is_room) {
  const HeatGrid grid = heat_grid(samples::knot(), AttentionKind::cross);
  const std::string wide = without_colours(terminal_heat_grid(grid, {80, ColourDepth::truecolour}));
  EXPECT_EQ(wide.find("Layer 0, Head 1"), wide.find("Layer 0, Head 0") + 18);
  const std::string narrow = without_colours(terminal_heat_grid(grid, {20, ColourDepth::truecolour}));
  EXPECT_TRUE(contains(narrow, "Layer 0, Head 0\n"));
}

TEST(Terminal, a_map_without_tokens_says_so) {
  Trace trace = samples::uniform(1);
  trace.source.clear();
  trace.maps[0].weights = Tensor<float>({1, 0, 0});
  EXPECT_TRUE(contains(terminal_heat_map(heat_map(trace, {})), "nothing to show"));
}

TEST(Terminal, tables_align_their_columns_and_become_paragraphs_where_they_do_not_fit) {
  const std::vector<std::vector<std::string>> rows{
      {"head", "mean", "长"}, {"L0H0", "0.5", "1"}, {"L10H1", "12.25", "22"}};
  EXPECT_EQ(terminal_table(rows, 40),
            "head    mean  长\n"
            "L0H0     0.5   1\n"
            "L10H1  12.25  22\n");
  EXPECT_EQ(terminal_table({{"a", "a longer heading"}, {"row", "1"}}, 20), "row: a longer\nheading 1\n");
  EXPECT_EQ(terminal_table({}, 40), "");
}

TEST(FirstScreen, starts_with_the_first_produced_symbol_of_an_encoder_decoder) {
  const std::string text = terminal_first_screen(samples::knot());
  EXPECT_TRUE(contains(text, "while producing N (position 0)?"));
  EXPECT_TRUE(contains(text, "[N]"));
  EXPECT_TRUE(contains(text, "n(62)"));  // the mean of 1 and 0.25 is 0.625
  // rank, token, position, weight, head: head 0 is all on "n".
  EXPECT_TRUE(contains(text, "   1 n            1   0.625  L0H0 (1.000)"));
  EXPECT_TRUE(contains(text, "L0  1.000     0"));  // focus of the two heads
  EXPECT_TRUE(contains(text, "Layer 0, Head 0"));
  EXPECT_TRUE(contains(text, "toy, cross-attention, layer 0, mean over 2 heads"));
}

TEST(FirstScreen, decoders_start_with_the_last_token_and_encoders_with_the_first) {
  EXPECT_TRUE(
      contains(terminal_first_screen(samples::knot(), {.kind = AttentionKind::decoder}), "from T (position 3)"));
  EXPECT_TRUE(contains(terminal_first_screen(samples::uniform(3)), "from w0 (position 0)"));
}

TEST(FirstScreen, chosen_query_and_head_are_shown) {
  const std::string text = terminal_first_screen(samples::knot(), {.head = 1, .query = 2});
  EXPECT_TRUE(contains(text, "[T]"));
  EXPECT_TRUE(contains(text, "Layer 0, Head 1"));
  EXPECT_TRUE(contains(text, "0.250"));
}

TEST(FirstScreen, fits_every_width) {
  for (int width : {20, 27, 28, 40, 47, 48, 80, 120})
    for (ColourDepth depth : {ColourDepth::none, ColourDepth::sixteen, ColourDepth::indexed, ColourDepth::truecolour}) {
      expect_within(terminal_first_screen(samples::knot(), {.width = width, .depth = depth}), width);
      expect_within(terminal_first_screen(samples::uniform(100, "北京", 3, 16), {.width = width, .depth = depth}),
                    width);
    }
}

TEST(FirstScreen, what_is_not_in_the_trace_is_refused) {
  EXPECT_THROW(terminal_first_screen(Trace{}), ArgumentError);
  EXPECT_THROW(terminal_first_screen(samples::knot(), {.layer = 3}), ArgumentError);
  EXPECT_THROW(terminal_first_screen(samples::knot(), {.head = 2}), ArgumentError);
  EXPECT_THROW(terminal_first_screen(samples::knot(), {.query = 4}), ArgumentError);
  EXPECT_THROW(terminal_first_screen(samples::knot(), {.query = -1}), ArgumentError);
}

}  // namespace
}  // namespace regard
