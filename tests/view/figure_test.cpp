#include "regard/figure.h"

#include <cairo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "regard/error.h"
#include "regard/view_json.h"
#include "view/figure_parts.h"
#include "view/samples.h"

namespace regard {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

HeatMap cross() { return heat_map(samples::knot(), {AttentionKind::cross, 0, 0}); }
HeatMap causal() { return heat_map(samples::knot(), {AttentionKind::decoder, 0, 0}); }

TEST(Figure, same_input_gives_the_same_bytes_without_dates) {
  for (FigureFormat format : {FigureFormat::svg, FigureFormat::png, FigureFormat::pdf}) {
    const std::string bytes = figure_matrix(causal(), format);
    EXPECT_EQ(bytes, figure_matrix(causal(), format));
    EXPECT_FALSE(contains(bytes, "Date"));
  }
}

TEST(Figure, formats_start_with_their_signatures) {
  EXPECT_TRUE(figure_matrix(cross(), FigureFormat::svg).starts_with("<svg xmlns="));
  EXPECT_TRUE(figure_matrix(cross(), FigureFormat::png).starts_with("\x89PNG\r\n"));
  EXPECT_TRUE(figure_matrix(cross(), FigureFormat::pdf).starts_with("%PDF-"));
  EXPECT_EQ(figure_format("a/b.svg"), FigureFormat::svg);
  EXPECT_EQ(figure_format("x.png"), FigureFormat::png);
  EXPECT_EQ(figure_format("x.pdf"), FigureFormat::pdf);
  EXPECT_THROW(figure_format("x.jpg"), ArgumentError);
}

TEST(Figure, svg_keeps_text_as_text_with_title_and_description) {
  const std::string svg = figure_matrix(cross(), FigureFormat::svg);
  EXPECT_TRUE(contains(svg, ">Layer 0, Head 0</text>"));
  EXPECT_TRUE(contains(svg, ">AA</text>"));
  EXPECT_TRUE(contains(svg, "&lt;/s&gt;</text>"));
  EXPECT_TRUE(contains(svg, ">attention weight; each row sums to 1</text>"));
  EXPECT_TRUE(contains(svg, "<title id=\"title\">Layer 0, Head 0</title>"));
  EXPECT_TRUE(contains(svg, "Strongest pairs: N to n: 1.000, AA to o: 1.000, T to t: 1.000"));
}

TEST(Figure, presets_set_the_width_in_points) {
  EXPECT_TRUE(contains(figure_matrix(cross(), FigureFormat::svg), "width=\"234pt\""));  // 3.25 x 72
  EXPECT_TRUE(contains(figure_matrix(cross(), FigureFormat::svg, {.width_inches = page_inches}), "width=\"486pt\""));
}

TEST(Figure, png_has_300_dots_an_inch_and_carries_its_resolution) {
  const std::string png = figure_matrix(cross(), FigureFormat::png);
  const auto number = [&](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png[at + i]);
    return value;
  };
  EXPECT_EQ(number(16), 975u);  // 3.25 x 300
  const auto chunk = png.find("pHYs");
  ASSERT_NE(chunk, std::string::npos);
  EXPECT_EQ(number(chunk + 4), 11811u);  // 300 / 0.0254
}

TEST(Figure, png_with_its_added_chunks_can_be_read) {
  std::string png = figure_matrix(cross(), FigureFormat::png);
  struct Source {
    const std::string* bytes;
    std::size_t at;
  } source{&png, 0};
  const auto read = [](void* closure, unsigned char* to, unsigned int length) {
    auto* from = static_cast<Source*>(closure);
    if (from->at + length > from->bytes->size()) return CAIRO_STATUS_READ_ERROR;
    from->bytes->copy(reinterpret_cast<char*>(to), length, from->at);
    from->at += length;
    return CAIRO_STATUS_SUCCESS;
  };
  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> image(
      cairo_image_surface_create_from_png_stream(read, &source), cairo_surface_destroy);
  EXPECT_EQ(cairo_surface_status(image.get()), CAIRO_STATUS_SUCCESS);
  EXPECT_EQ(cairo_image_surface_get_width(image.get()), 975);
}

TEST(Figure, ground_is_white_unless_transparent) {
  const std::string white = "fill=\"#ffffff\" shape-rendering=\"crispEdges\"/>";
  EXPECT_TRUE(contains(figure_matrix(cross(), FigureFormat::svg), white));
  EXPECT_FALSE(contains(figure_matrix(cross(), FigureFormat::svg, {.transparent = true}), white));
}

TEST(Figure, no_cell_with_room_for_a_number_is_blank) {
  HeatMap map = cross();
  map.values[0] = 0.0001f;
  map.values[1] = 0.9999f;
  const std::string svg = figure_matrix(map, FigureFormat::svg);
  EXPECT_EQ(count(svg, ">&lt;.001</text>"), 1u);
  EXPECT_EQ(count(svg, ">1.00</text>"), 4u);
  EXPECT_EQ(count(svg, ">0</text>"), 12u);  // eleven cells and the scale's end
}

TEST(Figure, hidden_cells_are_grey_and_explained) {
  const std::string svg = figure_matrix(causal(), FigureFormat::svg);
  EXPECT_TRUE(contains(svg, "#d6d6d6"));
  EXPECT_TRUE(contains(svg, ">hidden by the mask</text>"));
  EXPECT_EQ(count(svg, "stroke=\"#969696\""), 7u);  // six hidden cells and the key
  EXPECT_FALSE(contains(figure_matrix(cross(), FigureFormat::svg), "hidden by the mask"));
}

TEST(Figure, cells_are_vectors_up_to_64_and_one_image_above) {
  // The scale bar is an image in both.
  EXPECT_EQ(count(figure_matrix(heat_map(samples::uniform(64), {}), FigureFormat::svg), "<image "), 1u);
  EXPECT_EQ(count(figure_matrix(heat_map(samples::uniform(65), {}), FigureFormat::svg), "<image "), 2u);
}

TEST(Figure, grid_names_layers_and_heads_and_has_one_scale) {
  const HeatGrid grid = heat_grid(samples::uniform(6, "w", 2, 3), AttentionKind::encoder);
  const std::string svg = figure_grid(grid, FigureFormat::svg, {.width_inches = page_inches});
  for (const char* name : {">Layer 0<", ">Layer 1<", ">Head 0<", ">Head 2<"}) EXPECT_EQ(count(svg, name), 1u) << name;
  EXPECT_EQ(count(svg, "attention weight;"), 1u);
  EXPECT_TRUE(contains(svg, "Strongest pairs: L0H0 w5 to w0: 1.000"));
}

// Every label of an SVG as the box it fills.
struct LabelBox {
  std::string text;
  double left, top, right, bottom;
};

// The value of name="value" in one element, "" where it is missing.
std::string attribute(const std::string& element, const std::string& name) {
  const auto at = element.find(" " + name + "=\"");
  if (at == std::string::npos) return "";
  const auto begin = at + name.size() + 3;
  return element.substr(begin, element.find('"', begin) - begin);
}

double size_of(const std::string& svg, const std::string& name) { return std::stod(attribute(svg, name)); }

std::string unescaped(std::string text) {
  for (const auto& [name, sign] : {std::pair("&lt;", "<"), {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}})
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
      text.replace(at, std::string(name).size(), sign);
  return text;
}

LabelBox label_box(const figure::Typesetter& type, const std::string& element) {
  const double x = size_of(element, "x"), y = size_of(element, "y"), size = size_of(element, "font-size");
  const auto begin = element.find('>') + 1;
  const std::string text = unescaped(element.substr(begin, element.find('<', begin) - begin));
  const double width = type.width(text, size, attribute(element, "font-weight") == "bold");
  const std::string anchor = attribute(element, "text-anchor");
  const double shift = anchor == "middle" ? width / 2 : anchor == "end" ? width : 0;
  // From the baseline: letters reach about 0.76 up and 0.1 down without counting tails.
  if (attribute(element, "transform").starts_with("rotate"))
    return {text, x - 0.76 * size, y + shift - width, x + 0.1 * size, y + shift};
  return {text, x - shift, y - 0.76 * size, x - shift + width, y + 0.1 * size};
}

std::vector<LabelBox> label_boxes(const std::string& svg) {
  const figure::Typesetter type("sans-serif");
  std::vector<LabelBox> boxes;
  std::istringstream lines(svg);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("<text ")) boxes.push_back(label_box(type, line));
  return boxes;
}

void expect_labels_apart(const std::string& svg) {
  const double width = size_of(svg, "width"), height = size_of(svg, "height");
  const auto boxes = label_boxes(svg);
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const LabelBox& a = boxes[i];
    EXPECT_TRUE(a.left >= -0.1 && a.top >= -0.1 && a.right <= width + 0.1 && a.bottom <= height + 0.1)
        << "cut: " << a.text;
    for (std::size_t j = 0; j < i; ++j) {
      const LabelBox& b = boxes[j];
      const bool apart =
          a.right <= b.left + 0.05 || b.right <= a.left + 0.05 || a.bottom <= b.top + 0.05 || b.bottom <= a.top + 0.05;
      EXPECT_TRUE(apart) << a.text << " and " << b.text;
    }
  }
}

TEST(Figure, labels_of_a_matrix_never_overlap_and_are_never_cut) {
  for (Index tokens : {1, 2, 9, 17, 40, 60, 61, 300})
    for (double inches : {1.0, column_inches, page_inches})
      for (double font : {6.0, 8.0, 12.0})
        for (const char* token : {"", "北京", "a-very-long-token"}) {
          if (tokens > 100 && inches == page_inches) continue;  // the same plan, slower
          SCOPED_TRACE(testing::Message() << tokens << " tokens " << token << ", " << inches << " in, " << font);
          const HeatMap map = heat_map(samples::uniform(tokens, token), {});
          expect_labels_apart(
              figure_matrix(map, FigureFormat::svg, {.width_inches = inches, .font_points = font, .numbers = true}));
        }
}

TEST(Figure, labels_of_a_grid_never_overlap_and_are_never_cut) {
  struct Case {
    Index tokens, layers, heads;
  };
  for (const Case& size :
       {Case{4, 1, 2}, Case{9, 4, 4}, Case{30, 3, 8}, Case{12, 12, 12}, Case{80, 2, 12}, Case{1, 2, 30}, Case{4, 1, 1}})
    for (double inches : {1.0, column_inches, page_inches})
      for (const char* token : {"", "北京", "long-token"}) {
        if (size.tokens > 60 && inches == page_inches) continue;
        SCOPED_TRACE(testing::Message() << size.tokens << " tokens " << token << ", " << inches << " in, "
                                        << size.layers << " x " << size.heads);
        const Trace trace = samples::uniform(size.tokens, token, size.layers, size.heads);
        expect_labels_apart(
            figure_grid(heat_grid(trace, AttentionKind::encoder), FigureFormat::svg, {.width_inches = inches}));
      }
}

TEST(Figure, labels_of_lines_never_overlap_and_are_never_cut) {
  for (Index tokens : {1, 9, 40})
    for (double inches : {1.0, column_inches, page_inches})
      for (double font : {6.0, 8.0, 12.0})
        for (const char* token : {"", "北京", "a-very-long-token"}) {
          SCOPED_TRACE(testing::Message() << tokens << " tokens " << token << ", " << inches << " in, " << font);
          const HeatMap map = heat_map(samples::uniform(tokens, token), {});
          expect_labels_apart(
              figure_lines(map, FigureFormat::svg, {.width_inches = inches, .font_points = font, .line_mass = 0.5}));
        }
}

// What the labels of an SVG say in all, without spaces.
std::string all_text(const std::string& svg) {
  std::string text;
  for (const LabelBox& box : label_boxes(svg)) text += box.text;
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

TEST(Figure, every_word_of_a_caption_is_shown_however_long_it_is) {
  const std::string words = "regard view " + std::string(300, 'x') + " 'two  words' --model /" + std::string(90, 'W');
  HeatMap map = causal();
  HeatGrid grid = heat_grid(samples::knot(), AttentionKind::decoder);
  map.caption += "; " + words;
  grid.caption += "; " + words;
  std::string whole = words;
  whole.erase(std::remove(whole.begin(), whole.end(), ' '), whole.end());
  for (double inches : {1.0, 1.5, column_inches, page_inches})
    for (Scale scale : {Scale::linear, Scale::lift, Scale::logarithmic}) {
      SCOPED_TRACE(testing::Message() << inches << " in");
      map.scale = grid.rows[0][0].scale = scale;
      for (const std::string& svg : {figure_matrix(map, FigureFormat::svg, {.width_inches = inches}),
                                     figure_grid(grid, FigureFormat::svg, {.width_inches = inches}),
                                     figure_lines(map, FigureFormat::svg, {.width_inches = inches})}) {
        expect_labels_apart(svg);
        EXPECT_TRUE(contains(all_text(svg), whole));
      }
    }
}

TEST(Figure, long_and_lopsided_maps_stay_on_a_page) {
  Trace trace = samples::knot();
  trace.target.assign(1000, "x");
  trace.produced = trace.target;
  trace.maps.resize(1);
  trace.maps[0].weights = Tensor<float>({1, 1000, 4}, 0.25f);
  const std::string svg = figure_matrix(heat_map(trace, {AttentionKind::cross, 0, 0}), FigureFormat::svg);
  EXPECT_LT(size_of(svg, "height"), 10 * 72);
}

TEST(Figure, control_characters_and_markup_in_labels_are_harmless) {
  Trace trace = samples::uniform(3);
  trace.source = {"<b>&\"", "\x1b[2J", "\xff"};
  const std::string svg = figure_matrix(heat_map(trace, {}), FigureFormat::svg);
  EXPECT_TRUE(contains(svg, "&lt;b&gt;&amp;&quot;"));
  EXPECT_TRUE(contains(svg, "\\x1b[2J"));
  EXPECT_TRUE(contains(svg, "\uFFFD"));
  EXPECT_FALSE(contains(svg, "\x1b"));
}

TEST(Figure, options_out_of_range_and_empty_maps_are_refused) {
  EXPECT_THROW(figure_matrix(cross(), FigureFormat::svg, {.width_inches = 0}), ArgumentError);
  EXPECT_THROW(figure_matrix(cross(), FigureFormat::svg, {.font_points = 0}), ArgumentError);
  EXPECT_THROW(figure_matrix(cross(), FigureFormat::png, {.dpi = 1e9}), ArgumentError);
  EXPECT_THROW(figure_matrix(cross(), FigureFormat::png, {.width_inches = 100, .dpi = 2400}), ArgumentError);
  EXPECT_THROW(figure_matrix(HeatMap{}, FigureFormat::svg), ArgumentError);
  EXPECT_THROW(figure_grid(HeatGrid{}, FigureFormat::svg), ArgumentError);
}

TEST(ViewJson, holds_labels_weights_and_nulls_for_hidden_cells) {
  const auto json = nlohmann::json::parse(heat_maps_json({causal()}));
  const auto& map = json["maps"][0];
  EXPECT_EQ(map["name"], "L0H0");
  EXPECT_EQ(map["scale"], "linear");
  EXPECT_EQ(map["queries"], (std::vector<std::string>{"<s>", "N", "AA", "T"}));
  EXPECT_EQ(map["weights"][1][0], 0.5);
  EXPECT_TRUE(map["weights"][0][1].is_null());
  EXPECT_EQ(map["strongest"][0]["weight"], 1.0);
}

TEST(ViewJson, weights_are_written_as_short_as_they_read_back) {
  HeatMap map = cross();
  map.values[0] = 0.1f;
  EXPECT_TRUE(contains(heat_maps_json({map}), "[[0.1,1.0,0.0,0.0]"));
}

TEST(ViewJson, grid_lists_every_head) {
  const HeatGrid grid = heat_grid(samples::uniform(2, "w", 2, 3), AttentionKind::encoder);
  EXPECT_EQ(nlohmann::json::parse(heat_grid_json(grid))["maps"].size(), 6u);
}

}  // namespace
}  // namespace regard
