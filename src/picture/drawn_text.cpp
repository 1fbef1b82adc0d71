#include "regard/drawn_text.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "picture/surface.h"
#include "regard/error.h"

namespace regard {
namespace {

using detail::Surface;
using detail::Unref;
using Layout = std::unique_ptr<PangoLayout, Unref>;

// Every text is laid out at this size and scaled as it is drawn: finding a font for a
// size that was never asked for takes longer than all the rest.
constexpr double layout_size = 32;
// Pango counts 1024ths of a pixel in 31 bits: with letters of one em and four between
// them so many reach three quarters of that.
constexpr std::size_t longest_text = 10'000;

double scale_of(const TextStyle& style) { return style.size / layout_size; }

detail::FontDescription described(const std::string& font) {
  return {pango_font_description_from_string(font.c_str()), pango_font_description_free};
}

void check_range(const char* name, double value, double least, double most) {
  if (!(value >= least && value <= most))
    throw ArgumentError(std::string("drawn text: ") + name + " is " + std::to_string(value) + ", must be " +
                        std::to_string(least) + " to " + std::to_string(most));
}

void check_style(const TextStyle& style) {
  check_range("height", static_cast<double>(style.height), 1, 4096);
  check_range("size", style.size, 1, 4096);
  for (const auto& [name, value] : {std::pair{"left", style.left}, {"right", style.right}})
    check_range(name, value, 0, 4096);
  check_range("shift", style.shift, -4096, 4096);
  check_range("stretch", style.stretch, 0.1, 10);
  const double most_spacing = 4 * style.size * style.stretch;
  check_range("spacing", style.spacing, -most_spacing, most_spacing);
  check_range("slant", style.slant, -2, 2);
  check_range("angle", style.angle, -45, 45);
  check_range("blur", style.blur, 0, 20);
  for (const auto& [name, value] : {std::pair{"ink", style.ink}, {"ground", style.ground}, {"noise", style.noise}})
    check_range(name, value, 0, 1);
}

// From the layout's pixels to the picture's: scaled, widths stretched, slanted and
// turned around the left end of the line's middle.
cairo_matrix_t turned(const TextStyle& style) {
  cairo_matrix_t turn, slant;
  cairo_matrix_init_rotate(&turn, -style.angle * std::numbers::pi / 180);
  const double scale = scale_of(style);
  cairo_matrix_init(&slant, scale * style.stretch, 0, -scale * style.slant, scale, 0, 0);
  cairo_matrix_t both;
  cairo_matrix_multiply(&both, &slant, &turn);
  return both;
}

struct Placed {
  cairo_matrix_t matrix;  // of the layout, whose origin is its top left corner
  Index width = 0;        // of the picture
};

Placed place(PangoLayout* layout, const TextStyle& style) {
  PangoRectangle logical;
  pango_layout_get_extents(layout, nullptr, &logical);
  const double wide = pango_units_to_double(logical.width), high = pango_units_to_double(logical.height);
  cairo_matrix_t matrix = turned(style);
  cairo_matrix_translate(&matrix, 0, -high / 2);
  double least = 0, most = 0, top = 0, bottom = 0;
  bool first = true;
  for (const auto& [x, y] : {std::pair{0.0, 0.0}, {wide, 0.0}, {0.0, high}, {wide, high}}) {
    double to_x = x, to_y = y;
    cairo_matrix_transform_point(&matrix, &to_x, &to_y);
    least = first ? to_x : std::min(least, to_x);
    most = first ? to_x : std::max(most, to_x);
    top = first ? to_y : std::min(top, to_y);
    bottom = first ? to_y : std::max(bottom, to_y);
    first = false;
  }
  matrix.x0 += style.left - least;
  matrix.y0 += static_cast<double>(style.height) / 2 + style.shift - (top + bottom) / 2;
  const double width = std::ceil(most - least + style.left + style.right);
  check_range("the picture's width", width, 1, 32767);
  return {matrix, static_cast<Index>(width)};
}

// How much of each pixel is ink, [height, width].
Tensor<float> coverage(PangoLayout* layout, const Placed& placed, Index height) {
  const int wide = static_cast<int>(placed.width), high = static_cast<int>(height);
  const Surface surface = detail::image_surface(CAIRO_FORMAT_A8, wide, high);
  const detail::Canvas canvas = detail::canvas_on(surface.get());
  cairo_set_matrix(canvas.get(), &placed.matrix);
  pango_cairo_show_layout(canvas.get(), layout);
  detail::check(cairo_status(canvas.get()));
  cairo_surface_flush(surface.get());
  Tensor<float> ink({height, placed.width});
  for (int y = 0; y < high; ++y) {
    const unsigned char* row = detail::row_of(surface.get(), y);
    for (int x = 0; x < wide; ++x) ink[static_cast<Index>(y) * wide + x] = static_cast<float>(row[x]) / 255;
  }
  return ink;
}

std::vector<float> gaussian(double deviation) {
  const auto radius = static_cast<Index>(std::ceil(3 * deviation));
  std::vector<float> weights;
  double sum = 0;
  for (Index i = -radius; i <= radius; ++i)
    sum += std::exp(-0.5 * static_cast<double>(i * i) / (deviation * deviation));
  for (Index i = -radius; i <= radius; ++i)
    weights.push_back(static_cast<float>(std::exp(-0.5 * static_cast<double>(i * i) / (deviation * deviation)) / sum));
  return weights;
}

// Along one axis; what lies outside is no ink. `lines` start `line_step` apart, their
// pixels follow each other `step` apart.
void blur_lines(Tensor<float>& ink, const std::vector<float>& weights, bool rows) {
  const Index height = ink.size(0), width = ink.size(1), radius = static_cast<Index>(weights.size() / 2);
  const Index lines = rows ? height : width, length = rows ? width : height;
  const Index line_step = rows ? width : 1, step = rows ? 1 : width;
  std::vector<float> line(static_cast<std::size_t>(length + 2 * radius));
  for (Index l = 0; l < lines; ++l) {
    float* pixels = ink.data() + l * line_step;
    for (Index i = 0; i < length; ++i) line[static_cast<std::size_t>(i + radius)] = pixels[i * step];
    for (Index i = 0; i < length; ++i) {
      float sum = 0;
      for (std::size_t j = 0; j < weights.size(); ++j) sum += weights[j] * line[static_cast<std::size_t>(i) + j];
      pixels[i * step] = sum;
    }
  }
}

// Nearly normal, of variance 1: the sum of a word's four bytes.
float noise_of(std::uint32_t word) {
  constexpr float mean = 510, deviation = 147.8006f;  // sqrt(4 * (256^2 - 1) / 12)
  const auto sum = (word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24);
  return (static_cast<float>(sum) - mean) / deviation;
}

// Ink becomes grey: contrast, noise, and the 256 greys of a file.
Tensor<float> greyed(Tensor<float>&& ink, const TextStyle& style) {
  std::vector<std::uint32_t> words;
  if (style.noise > 0) {
    words.resize(static_cast<std::size_t>((ink.count() + 3) / 4 * 4));
    philox_words(style.seed, 0, words);
  }
  const auto ground = static_cast<float>(style.ground), contrast = static_cast<float>(style.ink - style.ground);
  const auto noise = static_cast<float>(style.noise);
  for (Index i = 0; i < ink.count(); ++i) {
    float grey = ground + contrast * ink[i];
    if (!words.empty()) grey += noise * noise_of(words[static_cast<std::size_t>(i)]);
    ink[i] = std::round(std::clamp(grey, 0.0f, 1.0f) * 255) / 255;
  }
  return std::move(ink);
}

std::vector<PixelSpan> spans_of(PangoLayout* layout, const std::string& text, const cairo_matrix_t& matrix) {
  std::vector<PixelSpan> spans;
  for (const char* at = text.c_str(); *at; at = g_utf8_next_char(at)) {
    PangoRectangle box;
    pango_layout_index_to_pos(layout, static_cast<int>(at - text.c_str()), &box);
    double left = pango_units_to_double(box.x), right = left + pango_units_to_double(box.width);
    double y = pango_units_to_double(box.y) + pango_units_to_double(box.height) / 2, same = y;
    cairo_matrix_transform_point(&matrix, &left, &y);
    cairo_matrix_transform_point(&matrix, &right, &same);
    spans.push_back({std::min(left, right), std::max(left, right)});
  }
  return spans;
}

}  // namespace

struct TextDrawer::Layouts {
  std::unique_ptr<PangoContext, Unref> context = detail::text_context();

  Layout of(const std::string& text, const TextStyle& style) const {
    Layout layout(pango_layout_new(context.get()));
    const auto font = described(style.font);
    pango_font_description_set_absolute_size(font.get(), layout_size * PANGO_SCALE);
    pango_layout_set_font_description(layout.get(), font.get());
    pango_layout_set_single_paragraph_mode(layout.get(), TRUE);
    const double spacing = style.spacing / (scale_of(style) * style.stretch);
    std::unique_ptr<PangoAttrList, decltype(&pango_attr_list_unref)> attributes(pango_attr_list_new(),
                                                                                pango_attr_list_unref);
    pango_attr_list_insert(attributes.get(), pango_attr_font_features_new("liga 0, clig 0, calt 0"));
    pango_attr_list_insert(attributes.get(), pango_attr_letter_spacing_new(static_cast<int>(spacing * PANGO_SCALE)));
    pango_layout_set_attributes(layout.get(), attributes.get());
    pango_layout_set_text(layout.get(), text.data(), static_cast<int>(text.size()));
    return layout;
  }
};

TextDrawer::TextDrawer() : layouts_(std::make_unique<Layouts>()) {}
TextDrawer::~TextDrawer() = default;
TextDrawer::TextDrawer(TextDrawer&&) noexcept = default;

void TextDrawer::require(const std::string& font) const {
  const auto asked = described(font);
  const char* family = pango_font_description_get_family(asked.get());
  if (!family) throw ArgumentError("font '" + font + "' names no family");
  std::unique_ptr<PangoFont, Unref> loaded(pango_context_load_font(layouts_->context.get(), asked.get()));
  if (!loaded) throw ArgumentError("font '" + font + "' is not installed");
  const detail::FontDescription found(pango_font_describe(loaded.get()), pango_font_description_free);
  const char* found_family = pango_font_description_get_family(found.get());
  if (g_ascii_strcasecmp(family, found_family) != 0)
    throw ArgumentError("font '" + font + "' is not installed ('" + found_family + "' would be drawn)");
}

DrawnText TextDrawer::draw(const std::string& text, const TextStyle& style) const {
  check_style(style);
  if (text.empty()) throw ArgumentError("drawn text: the text is empty");
  if (text.size() > longest_text)
    throw ArgumentError("drawn text: the text has " + std::to_string(text.size()) + " bytes, must have at most " +
                        std::to_string(longest_text));
  if (!g_utf8_validate(text.data(), static_cast<gssize>(text.size()), nullptr))
    throw ArgumentError("drawn text: the text is not valid UTF-8");
  const Layout layout = layouts_->of(text, style);
  const Placed placed = place(layout.get(), style);
  Tensor<float> ink = coverage(layout.get(), placed, style.height);
  if (style.blur > 0) {
    const auto weights = gaussian(style.blur);
    for (bool rows : {true, false}) blur_lines(ink, weights, rows);
  }
  return {greyed(std::move(ink), style), spans_of(layout.get(), text, placed.matrix)};
}

TextStyle random_style(const std::string& font, double distortion, Random& random) {
  check_range("distortion", distortion, 0, 1);
  const auto within = [&](double least, double most) {
    return distortion * (least + (most - least) * random.uniform_double());
  };
  TextStyle style{.font = font};
  style.size += within(-4, 4);
  style.left += within(-3, 3);
  style.right += within(-3, 3);
  style.shift = within(-3, 3);
  style.spacing = within(-0.3, 1.5);
  style.stretch += within(-0.15, 0.15);
  style.slant = within(-0.15, 0.15);
  style.angle = within(-2, 2);
  style.ink = within(0, 0.35);
  style.ground -= within(0, 0.35);
  style.blur = within(0, 0.8);
  style.noise = within(0, 0.1);
  style.seed = random.next_u32();
  return style;
}

}  // namespace regard
