#include "view/overlay.h"

#include <algorithm>
#include <cmath>

#include "regard/error.h"
#include "regard/ink.h"
#include "view/figure_parts.h"

namespace regard {
namespace figure {
namespace {

constexpr double gap = 3;            // between bands
constexpr double largest_pixel = 2;  // points: small pictures don't need posters
constexpr double label_gap = 2.5;
constexpr Colour frame_colour{204, 51, 17};

// Bands of one size under each other: the picture, then a row of the map each.
struct Bands {
  double left = 0, top = 0;
  double pixel = 0;  // points of one
  double width = 0, height = 0;

  double y(Index band) const { return top + static_cast<double>(band) * (height + gap); }
};

double widest_row_label(const Typesetter& type, const HeatMap& map, double font) {
  double most = type.width("picture", font);
  for (Index row = 0; row < map.q_len(); ++row) most = std::max(most, type.width(map.queries.label(row), font));
  return most + label_gap;
}

Bands fit_bands(const Scene& scene, const Typesetter& type, const HeatMap& map, const PatchedPicture& picture,
                double font) {
  const auto wide = static_cast<double>(picture.pixels.size(1)), high = static_cast<double>(picture.pixels.size(0));
  Bands bands;
  bands.left = margin + font * 1.4 + widest_row_label(type, map, font);
  bands.top = margin + font * 3.9;
  const double room = std::max(scene.width - bands.left - margin, narrowest_plot);
  const double tallest = tallest_plot / static_cast<double>(map.q_len() + 1) - gap;
  bands.pixel = std::min({room / wide, tallest / high, largest_pixel});
  bands.width = bands.pixel * wide;
  bands.height = bands.pixel * high;
  return bands;
}

Colour mixed(Colour ground, Colour ink, float share) {
  const auto part = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(static_cast<float>(from) + share * static_cast<float>(to - from)));
  };
  return {part(ground.red, ink.red), part(ground.green, ink.green), part(ground.blue, ink.blue)};
}

// One band; row -1 is the picture as it is.
Picture band_of(const HeatMap& map, const PatchedPicture& picture, const Tensor<float>& ink, Index row) {
  const Index height = ink.size(0), width = ink.size(1);
  Picture band{.columns = static_cast<int>(width), .rows = static_cast<int>(height)};
  for (Index y = 0; y < height; ++y)
    for (Index x = 0; x < width; ++x) {
      const Index patch = x / picture.patch_width * picture.rows() + y / picture.patch_height;
      const float grey = std::clamp(picture.pixels[y * width + x], 0.0f, 1.0f);
      const Colour ground = row < 0 ? Colour{0, 0, 0} : cell_colour(map, row, patch);
      band.pixels.push_back(row < 0 ? mixed(ground, {255, 255, 255}, grey)
                                    : mixed(ground, text_colour_on(ground), ink[y * width + x]));
    }
  return band;
}

void draw_band(Scene& scene, const Bands& bands, Index number, Picture band) {
  band.x = bands.left;
  band.y = bands.y(number);
  band.width = bands.width;
  band.height = bands.height;
  scene.add(std::move(band));
  draw_frame(scene, bands.left, bands.y(number), bands.width, bands.height);
}

// Around the patch of the row's largest weight, as far as it lies on the picture.
void mark_peak(Scene& scene, const Bands& bands, const HeatMap& map, const PatchedPicture& picture, Index row) {
  const auto peak = strongest_keys(map, row, 1);
  if (peak.empty()) return;
  const Index column = peak[0].key / picture.rows(), across = peak[0].key % picture.rows();
  const double x = bands.left + static_cast<double>(column * picture.patch_width) * bands.pixel;
  const double y = bands.y(row + 1) + static_cast<double>(across * picture.patch_height) * bands.pixel;
  const double right = std::min(x + static_cast<double>(picture.patch_width) * bands.pixel, bands.left + bands.width);
  const double bottom = y + static_cast<double>(picture.patch_height) * bands.pixel;
  scene.add(Outline{
      .points = {{x, y}, {right, y}, {right, bottom}, {x, bottom}, {x, y}}, .width = 0.8, .colour = frame_colour});
}

void draw_row_name(Scene& scene, const Bands& bands, Index number, const std::string& text, double font) {
  scene.add(Label{.x = bands.left - label_gap,
                  .y = bands.y(number) + bands.height / 2 + 0.36 * font,
                  .text = text,
                  .size = font,
                  .anchor = Anchor::end});
}

// The number of every n-th pixel column over the bands.
void draw_columns(Scene& scene, const Typesetter& type, const Bands& bands, Index width, double font) {
  const double size = smaller_font(font);
  const double widest = type.width(std::to_string(width), size) + 2 * label_gap;
  const Index step = label_step(width, std::max<Index>(1, static_cast<Index>(bands.width / widest)));
  for (Index x = 0; x < width; x += step) {
    const double at = bands.left + static_cast<double>(x) * bands.pixel;
    const std::string text = std::to_string(x);
    if (x > 0 && at + type.width(text, size) / 2 > bands.left + bands.width) break;
    scene.add(Stroke{at, bands.top - 2, at, bands.top, 0.5, {90, 90, 90}});
    scene.add(Label{
        .x = at, .y = bands.top - 3, .text = text, .size = size, .anchor = x > 0 ? Anchor::middle : Anchor::start});
  }
}

void draw_overlay_titles(Scene& scene, const Bands& bands, const HeatMap& map, double bottom, double font) {
  const double middle = scene.width / 2, size = smaller_font(font);
  scene.add(
      Label{.x = middle, .y = margin + font, .text = map.title, .size = font, .anchor = Anchor::middle, .bold = true});
  scene.add(Label{.x = bands.left, .y = margin + font * 2.4, .text = map.keys.title, .size = size});
  scene.add(Label{.x = margin + font,
                  .y = (bands.y(1) + bottom) / 2,
                  .text = map.queries.title,
                  .size = size,
                  .anchor = Anchor::middle,
                  .upwards = true});
}

}  // namespace

Scene overlay_scene(const HeatMap& map, const PatchedPicture& picture, const FigureOptions& options) {
  const double font = options.font_points;
  const Typesetter type(options.font);
  Scene scene = new_scene(options, type, map.title);
  const Bands bands = fit_bands(scene, type, map, picture, font);
  const double titles = bands.left + type.width(map.keys.title, smaller_font(font)) + margin;
  scene.width = std::max({scene.width, bands.left + bands.width + margin, titles});
  const Tensor<float> ink = ink_shares(picture.pixels);
  for (Index row = -1; row < map.q_len(); ++row) {
    draw_band(scene, bands, row + 1, band_of(map, picture, ink, row));
    draw_row_name(scene, bands, row + 1, row < 0 ? "picture" : map.queries.label(row), font);
    if (row >= 0) mark_peak(scene, bands, map, picture, row);
  }
  draw_columns(scene, type, bands, picture.pixels.size(1), font);
  // Few low bands leave less room than the title of their axis needs.
  const double half = type.width(map.queries.title, smaller_font(font)) / 2;
  const double bottom = std::max(bands.y(map.q_len()) + bands.height, bands.y(1) + 2 * half);
  draw_overlay_titles(scene, bands, map, bottom, font);
  scene.height = bottom;
  return scene;
}

}  // namespace figure

void check_overlay(const HeatMap& map, const PatchedPicture& picture) {
  if (picture.pixels.rank() != 2 || picture.pixels.empty() || picture.patch_height < 1 || picture.patch_width < 1 ||
      picture.pixels.size(0) % picture.patch_height != 0)
    throw ArgumentError("overlay: the picture " + picture.pixels.text() + " does not come in patches of " +
                        std::to_string(picture.patch_height) + " x " + std::to_string(picture.patch_width));
  if (map.q_len() < 1 || map.kv_len() != picture.rows() * picture.columns())
    throw ArgumentError("overlay: " + std::to_string(map.q_len()) + " queries and " + std::to_string(map.kv_len()) +
                        " keys for " + std::to_string(picture.rows() * picture.columns()) + " patches");
}

Tensor<float> ink_shares(const Tensor<float>& pixels) {
  const Ink ink = ink_of(pixels);
  double most = 0;
  for (float grey : pixels.values()) most = std::max(most, ink.above(grey));
  Tensor<float> shares(pixels.shape());
  for (Index i = 0; i < pixels.count() && most > 0; ++i)
    shares[i] = static_cast<float>(std::max(0.0, ink.above(pixels[i]) / most));
  return shares;
}

std::string figure_overlay(const HeatMap& map, const PatchedPicture& picture, FigureFormat format,
                           const FigureOptions& options) {
  figure::check_options(options);
  check_overlay(map, picture);
  const figure::Typesetter type(options.font);
  figure::Scene scene = figure::overlay_scene(map, picture, options);
  const double font = options.font_points, x = figure::margin, room = scene.width - 2 * figure::margin;
  double y = figure::draw_scale(scene, type, map, {x, scene.height + 7, room}, font);
  y = figure::draw_text(scene, type, "framed: the largest weight of the row", {x, y, room}, figure::smaller_font(font));
  if (options.caption) y = figure::draw_text(scene, type, map.caption, {x, y + 3, room}, figure::smaller_font(font));
  scene.height = y + figure::margin;
  scene.description = figure::description(map.caption, {&map});
  return figure::rendered(scene, format, options);
}

}  // namespace regard
