#include "view/overlay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

// Ten pixels wide, 4 high, in patches of 2 x 4: three columns of two. One pixel of ink
// at (1, 5): in patch 2, which is column 1, row 0.
Trace dotted() {
  Trace trace;
  trace.source = {"0,0", "0,2", "4,0", "4,2", "8,0", "8,2"};
  trace.target = {"<s>", "a"};
  trace.produced = {"a", "</s>"};
  trace.picture = PatchedPicture{Tensor<float>({4, 10}, 1.0f), 2, 4};
  trace.picture->pixels[1 * 10 + 5] = 0;
  AttentionMap map{.kind = AttentionKind::cross};
  map.weights = Tensor<float>({1, 2, 6}, {0.1f, 0, 0.7f, 0, 0, 0.2f, 0, 0, 0, 0, 0, 1.0f});
  trace.maps.push_back(std::move(map));
  return trace;
}

HeatMap map_of(const Trace& trace) { return heat_map(trace, {AttentionKind::cross, 0, 0}); }

template <class Item>
std::vector<Item> items_of(const figure::Scene& scene) {
  std::vector<Item> found;
  for (const auto& item : scene.items)
    if (const auto* one = std::get_if<Item>(&item)) found.push_back(*one);
  return found;
}

TEST(Overlay, each_row_colours_the_pixels_of_its_patches) {
  const Trace trace = dotted();
  const HeatMap map = map_of(trace);
  const auto scene = figure::overlay_scene(map, *trace.picture, {});
  const auto bands = items_of<figure::Picture>(scene);
  ASSERT_EQ(bands.size(), 3u);  // the picture, a, the end
  const auto pixel = [&](std::size_t band, int y, int x) {
    return bands[band].pixels[static_cast<std::size_t>(y * 10 + x)];
  };
  EXPECT_EQ(pixel(0, 1, 5), (Colour{0, 0, 0}));
  EXPECT_EQ(pixel(0, 0, 5), (Colour{255, 255, 255}));
  EXPECT_EQ(pixel(1, 0, 0), sequential_colour(0.1f));
  EXPECT_EQ(pixel(1, 2, 0), sequential_colour(0));
  EXPECT_EQ(pixel(1, 0, 4), sequential_colour(0.7f));
  EXPECT_EQ(pixel(1, 1, 7), sequential_colour(0.7f));
  EXPECT_EQ(pixel(1, 2, 4), sequential_colour(0));
  EXPECT_EQ(pixel(1, 3, 9), sequential_colour(0.2f));
  EXPECT_EQ(pixel(2, 2, 8), sequential_colour(1));
  // Ink is black or white, whichever reads better on its ground.
  EXPECT_EQ(pixel(1, 1, 5), text_colour_on(sequential_colour(0.7f)));
  EXPECT_EQ(pixel(2, 1, 5), text_colour_on(sequential_colour(0)));
}

TEST(Overlay, the_frame_is_around_the_largest_weight_and_ends_with_the_picture) {
  const Trace trace = dotted();
  const auto scene = figure::overlay_scene(map_of(trace), *trace.picture, {});
  const auto bands = items_of<figure::Picture>(scene);
  const auto frames = items_of<figure::Outline>(scene);
  ASSERT_EQ(frames.size(), 2u);
  const double unit = bands[1].width / 10;
  EXPECT_NEAR(bands[1].height, 4 * unit, 1e-9);
  // Row a: patch 2, from pixel (0, 4) to (2, 8).
  EXPECT_NEAR(frames[0].points[0].first, bands[1].x + 4 * unit, 1e-9);
  EXPECT_NEAR(frames[0].points[0].second, bands[1].y, 1e-9);
  EXPECT_NEAR(frames[0].points[2].first, bands[1].x + 8 * unit, 1e-9);
  EXPECT_NEAR(frames[0].points[2].second, bands[1].y + 2 * unit, 1e-9);
  // The end: patch 5 from (2, 8) to the picture's edge at 10, not to 12.
  EXPECT_NEAR(frames[1].points[0].second, bands[2].y + 2 * unit, 1e-9);
  EXPECT_NEAR(frames[1].points[2].first, bands[2].x + 10 * unit, 1e-9);
  // Bands stand under each other without touching.
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_GT(bands[i].y, bands[i - 1].y + bands[i - 1].height);
    EXPECT_EQ(bands[i].x, bands[0].x);
  }
}

TEST(Overlay, nothing_lies_outside_the_figure_however_wide_or_narrow_the_picture) {
  for (Index columns : {1, 3, 90})
    for (Index symbols : {1, 12}) {
      Trace trace;
      trace.picture = PatchedPicture{Tensor<float>({32, 4 * columns}, 1.0f), 32, 4};
      for (Index i = 0; i < columns; ++i) trace.source.push_back(std::to_string(4 * i));
      trace.target.assign(static_cast<std::size_t>(symbols), "x");
      trace.produced = trace.target;
      AttentionMap map{.kind = AttentionKind::cross};
      map.weights = Tensor<float>({1, symbols, columns}, 1.0f / static_cast<float>(columns));
      trace.maps.push_back(std::move(map));
      const auto scene = figure::overlay_scene(map_of(trace), *trace.picture, {});
      for (const auto& band : items_of<figure::Picture>(scene)) {
        EXPECT_GE(band.x, 0);
        EXPECT_LE(band.x + band.width, scene.width);
        EXPECT_LE(band.y + band.height, scene.height + 1e-9);
      }
      EXPECT_LT(scene.height, 11 * 72);  // a page
    }
}

TEST(Overlay, figures_say_what_they_show) {
  const Trace trace = dotted();
  const std::string svg = figure_overlay(map_of(trace), *trace.picture, FigureFormat::svg);
  for (const char* text : {"Layer 0, Head 0", "attends to the patch at pixel column", "symbol being produced", ">a<",
                           "&lt;/s&gt;<", "attention weight; each row sums to 1", "framed: the largest weight"})
    expect_contains(svg, text);
  expect_contains(svg, "Strongest pairs: &lt;/s&gt; to 8,2: 1.000");
  EXPECT_EQ(svg, figure_overlay(map_of(trace), *trace.picture, FigureFormat::svg));
}

// Without escape sequences, which end in m; a half block of three bytes is one column.
int columns_of(const std::string& line) {
  int columns = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b')
      i = line.find('m', i);
    else
      columns += (static_cast<unsigned char>(line[i]) & 0xc0) != 0x80;
  }
  return columns;
}

TEST(Overlay, in_a_terminal_weights_stand_below_their_pixels) {
  const Trace trace = dotted();
  const std::string text = terminal_overlay({map_of(trace)}, *trace.picture, {.width = 40});
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  // Labels take four columns and a space; one pixel a column, two a line.
  ASSERT_GE(lines.size(), 5u);
  EXPECT_EQ(lines[0].find_first_not_of(' '), 5u + 5u);
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[2], "Layer 0, Head 0");
  const std::string ramp = std::string(4, ascii_ramp(double{0.1f})) + std::string(4, ascii_ramp(double{0.7f})) +
                           std::string(2, ascii_ramp(double{0.2f}));
  EXPECT_EQ(lines[3], "   a " + ramp);
  EXPECT_EQ(lines[4], "</s> " + std::string(8, ' ') + std::string(2, ascii_ramp(1)));
  for (int width : {20, 25, 60})
    for (ColourDepth depth : {ColourDepth::none, ColourDepth::truecolour}) {
      std::istringstream narrow(terminal_overlay({map_of(trace)}, *trace.picture, {.width = width, .depth = depth}));
      for (std::string line; std::getline(narrow, line);) EXPECT_LE(columns_of(line), width) << line;
    }
}

TEST(Overlay, maps_of_other_sizes_are_refused) {
  Trace trace = dotted();
  const HeatMap map = map_of(trace);
  trace.picture->patch_width = 2;
  expect_contains(message_of([&] { terminal_overlay({map}, *trace.picture); }), "6 keys for 10 patches");
  trace.picture->patch_height = 3;
  expect_contains(message_of([&] { figure_overlay(map, *trace.picture, FigureFormat::svg); }), "patches of 3 x 2");
}

TEST(Overlay, ink_is_the_rarer_of_light_and_dark) {
  const auto shares = ink_shares(Tensor<float>({1, 5}, {0.25f, 0.25f, 0.25f, 1.0f, 0.625f}));
  EXPECT_FLOAT_EQ(shares[0], 0);
  EXPECT_FLOAT_EQ(shares[3], 1);
  EXPECT_FLOAT_EQ(shares[4], 0.5f);
  const Tensor<float> flat = ink_shares(Tensor<float>({2, 2}, 0.5f));
  for (float share : flat.values()) EXPECT_EQ(share, 0);
  // What is on the other side of the background is no ink.
  const auto both = ink_shares(Tensor<float>({1, 5}, {0.5f, 0.5f, 0.5f, 0.25f, 1.0f}));
  EXPECT_EQ(both[3], 0);
  EXPECT_EQ(both[4], 1);
}

TEST(Overlay, a_weight_that_is_no_number_is_shown_as_such_in_a_terminal) {
  Trace trace = dotted();
  trace.maps[0].weights[2] = NAN;  // of row a, in the middle of three columns of patches
  const std::string text = terminal_overlay({map_of(trace)}, *trace.picture, {.width = 40});
  expect_contains(text, "   a " + std::string(4, ascii_ramp(double{0.1f})) + "????" +
                            std::string(2, ascii_ramp(double{0.2f})) + "\n");
}

}  // namespace
}  // namespace regard
