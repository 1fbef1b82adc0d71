#include "regard/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "refusal.h"
#include "regard/error.h"
#include "view/chart_axis.h"
#include "view/scene.h"

namespace regard {
namespace {

Chart growth() {
  return {.title = "Growth",
          .caption = "A made-up pair of curves",
          .x = {"length", AxisScale::log2},
          .y = {"milliseconds", AxisScale::log10},
          .curves = {{"linear", {512, 1024, 2048, 4096, 8192, 16384}, {1, 2, 4, 8, 16, 32}},
                     {"quadratic", {512, 2048, 8192}, {1, 10, 100}}}};
}

struct Text {
  double x = 0, y = 0, size = 0;
  std::string anchor, words;
};

std::vector<Text> texts_of(const std::string& svg) {
  static const std::regex pattern(
      R"re(<text x="([^"]+)" y="([^"]+)" font-size="([^"]+)"(?: text-anchor="(\w+)")?( font-weight="bold")?( transform[^>]+)?>([^<]*)<)re");
  std::vector<Text> found;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at)
    if (!(*at)[6].matched)  // texts that stand upright
      found.push_back({std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3]), (*at)[4], (*at)[7]});
  return found;
}

using Points = std::vector<std::pair<double, double>>;

std::vector<Points> curves_of(const std::string& svg) {
  static const std::regex line(R"re(<polyline points="([^"]+)")re"), point(R"(([-0-9.]+) ([-0-9.]+))");
  std::vector<Points> curves;
  for (std::sregex_iterator at(svg.begin(), svg.end(), line), end; at != end; ++at) {
    const std::string numbers = (*at)[1];
    Points points;
    for (std::sregex_iterator p(numbers.begin(), numbers.end(), point); p != end; ++p)
      points.emplace_back(std::stod((*p)[1]), std::stod((*p)[2]));
    curves.push_back(points);
  }
  return curves;
}

// Where a text's ink begins and ends.
std::pair<double, double> span_of(const Text& text, const figure::Typesetter& type) {
  const double width = type.width(text.words, text.size);
  const double left = text.x - (text.anchor == "middle" ? width / 2 : text.anchor == "end" ? width : 0);
  return {left, left + width};
}

TEST(Chart, logarithmic_axes_make_straight_lines_of_powers) {
  const auto curves = curves_of(figure_chart(growth(), FigureFormat::svg));
  ASSERT_EQ(curves.size(), 2u);
  // x and y both grow by equal factors: equal steps, to the two decimals that are written.
  for (const Points& points : curves)
    for (std::size_t i = 2; i < points.size(); ++i) {
      EXPECT_NEAR(points[i].first - points[i - 1].first, points[1].first - points[0].first, 0.021);
      EXPECT_NEAR(points[i].second - points[i - 1].second, points[1].second - points[0].second, 0.021);
    }
  // Larger is further right and further up.
  EXPECT_GT(curves[0][1].first, curves[0][0].first);
  EXPECT_LT(curves[0][1].second, curves[0][0].second);
  // Both begin at the same numbers, and log10(32) is 1.505 of the steps of a decade.
  EXPECT_EQ(curves[0][0], curves[1][0]);
  EXPECT_NEAR((curves[0][5].second - curves[0][0].second) / (curves[1][1].second - curves[1][0].second), 1.50515,
              0.002);
}

TEST(Chart, ticks_stand_where_their_numbers_are) {
  const std::string svg = figure_chart(growth(), FigureFormat::svg);
  const auto curves = curves_of(svg);
  int found = 0;
  for (const Text& text : texts_of(svg))
    for (std::size_t i = 0; i < curves[0].size(); ++i)
      if (text.words == std::to_string(512 << i)) {
        EXPECT_NEAR(text.x, curves[0][i].first, 0.011);
        ++found;
      }
  EXPECT_EQ(found, 6);
}

TEST(Chart, labels_never_touch_however_narrow_and_stay_on_the_page) {
  Chart chart = growth();
  for (int i = 0; i < 6; ++i)
    chart.curves.push_back({"another curve " + std::to_string(i), {512, 16384}, {0.0123, 4567}});
  const figure::Typesetter type("sans-serif");
  for (const double inches : {1.2, 2.0, 3.25, 6.75})
    for (AxisScale scale : {AxisScale::linear, AxisScale::log2, AxisScale::log10}) {
      chart.x.scale = chart.y.scale = scale;
      const std::string svg = figure_chart(chart, FigureFormat::svg, {.width_inches = inches});
      const double page = std::stod(svg.substr(svg.find("width=\"") + 7));
      const auto texts = texts_of(svg);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto [left, right] = span_of(texts[i], type);
        EXPECT_GE(left, 0) << texts[i].words;
        EXPECT_LE(right, page) << texts[i].words << " at " << inches;
        for (std::size_t j = 0; j < i; ++j) {
          const auto [other_left, other_right] = span_of(texts[j], type);
          const bool beside = right <= other_left || other_right <= left;
          const bool above = std::abs(texts[i].y - texts[j].y) >= std::min(texts[i].size, texts[j].size);
          EXPECT_TRUE(beside || above) << texts[i].words << " on " << texts[j].words << " at " << inches;
        }
      }
    }
}

TEST(Chart, a_linear_axis_begins_at_zero_unless_something_is_negative) {
  const auto always = [](const figure::Tick&, const figure::Tick&) { return true; };
  const figure::AxisRange positive(AxisScale::linear, {3, 10}), both(AxisScale::linear, {-3, 10});
  EXPECT_EQ(positive.place(0), 0);
  EXPECT_EQ(positive.ticks(always).front().value, 0);
  EXPECT_GT(both.place(-3), 0);
  EXPECT_LT(both.place(-3), 0.1);
}

TEST(Chart, one_point_and_equal_numbers_still_make_an_axis) {
  const std::string svg = figure_chart(
      {.title = "t", .x = {"x"}, .y = {"y", AxisScale::log10}, .curves = {{"one", {7}, {0.5}}}}, FigureFormat::svg);
  const auto curves = curves_of(svg);
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_TRUE(std::isfinite(curves[0][0].first) && std::isfinite(curves[0][0].second));
}

// Theory's line is drawn thin, its points are marked and not joined, and both lie
// on one pair of axes.
TEST(Chart, theory_is_a_thin_line_beside_its_points) {
  Chart chart{.title = "t",
              .x = {"x", AxisScale::log2},
              .y = {"y", AxisScale::log10},
              .curves = {{.name = "one", .x = {2, 8}, .y = {10, 1000}, .theory_x = {1, 16}, .theory_y = {1, 10000}},
                         {.name = "two", .x = {1, 16}, .y = {1, 10000}}}};
  const std::string svg = figure_chart(chart, FigureFormat::svg);
  const auto curves = curves_of(svg);
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0], curves[1]);  // from corner to corner, both
  static const std::regex width(R"re(<polyline [^>]*stroke-width="([^"]+)")re");
  std::vector<double> widths;
  for (std::sregex_iterator at(svg.begin(), svg.end(), width), end; at != end; ++at)
    widths.push_back(std::stod((*at)[1]));
  ASSERT_EQ(widths.size(), 2u);
  EXPECT_LT(widths[0], widths[1]);
  chart.curves[0].theory_y.pop_back();
  EXPECT_EQ(testing::message_of([&] { figure_chart(chart, FigureFormat::svg); }),
            "figure_chart: curve 'one' has 2 theory_x and 1 theory_y");
}

// Text leaves its pen where it ends: a line drawn next begins at its own first point.
TEST(Chart, lines_begin_where_they_begin_whatever_was_drawn_before) {
  const figure::Label label{.x = 60, .y = 80, .text = "x"};
  const figure::Outline line{.points = {{10, 20}, {90, 20}}, .width = 1};
  figure::Scene text_first{.width = 100, .height = 100, .font = "sans-serif"}, line_first = text_first;
  text_first.add(label);
  text_first.add(line);
  line_first.add(line);
  line_first.add(label);
  EXPECT_EQ(figure::to_png(text_first, 72), figure::to_png(line_first, 72));
}

TEST(Chart, numbers_on_ticks_are_short) {
  EXPECT_EQ(figure::tick_text(0), "0");
  EXPECT_EQ(figure::tick_text(0.05), "0.05");
  EXPECT_EQ(figure::tick_text(16384), "16384");
  EXPECT_EQ(figure::tick_text(1e-5), "10⁻⁵");
  EXPECT_EQ(figure::tick_text(2e7), "2·10⁷");
}

TEST(Chart, curves_keep_their_lightness_apart_in_neighbours) {
  for (int i = 0; i < curve_colours; ++i)
    for (int j = 0; j < i; ++j) EXPECT_NE(curve_colour(i), curve_colour(j));
  // Dark enough for thin lines on white paper.
  for (int i = 0; i < curve_colours; ++i) EXPECT_LT(lightness(curve_colour(i)), 75);
}

TEST(Chart, same_chart_gives_the_same_bytes_and_describes_its_ends) {
  for (FigureFormat format : {FigureFormat::svg, FigureFormat::png, FigureFormat::pdf})
    EXPECT_EQ(figure_chart(growth(), format), figure_chart(growth(), format));
  EXPECT_NE(figure_chart(growth(), FigureFormat::svg).find("linear: 1 at 512 to 32 at 16384."), std::string::npos);
}

TEST(Chart, what_cannot_be_drawn_is_refused_by_name) {
  const auto refused = [](auto change) {
    Chart chart = growth();
    change(chart);
    return testing::message_of([&] { figure_chart(chart, FigureFormat::svg); });
  };
  EXPECT_EQ(refused([](Chart& c) { c.curves.clear(); }), "figure_chart: 0 curves, there must be 1 to 8");
  EXPECT_EQ(refused([](Chart& c) { c.curves.resize(9, c.curves[0]); }), "figure_chart: 9 curves, there must be 1 to 8");
  EXPECT_EQ(refused([](Chart& c) { c.curves[1].y.pop_back(); }), "figure_chart: curve 'quadratic' has 3 x and 2 y");
  EXPECT_EQ(refused([](Chart& c) { c.curves[0].y[2] = 0; }),
            "figure_chart: curve 'linear' has y = 0, a logarithmic axis needs more than 0");
  EXPECT_EQ(refused([](Chart& c) { c.curves[0].x[2] = std::numeric_limits<double>::quiet_NaN(); }),
            "figure_chart: curve 'linear' has x = nan");
}

}  // namespace
}  // namespace regard
