// PNG and PDF of a scene.
#include <cairo-pdf.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "picture/surface.h"
#include "regard/error.h"
#include "view/scene.h"

namespace regard::figure {
namespace {

using detail::append_bytes;
using detail::check;
using detail::owned;
using detail::png_bytes;
using detail::Surface;

Surface image_surface(int width, int height) { return detail::image_surface(CAIRO_FORMAT_ARGB32, width, height); }

void set_colour(cairo_t* context, Colour colour) {
  cairo_set_source_rgb(context, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0);
}

Surface pixels_of(const Picture& picture) {
  Surface surface = image_surface(picture.columns, picture.rows);
  cairo_surface_flush(surface.get());
  unsigned char* data = cairo_image_surface_get_data(surface.get());
  const int stride = cairo_image_surface_get_stride(surface.get());
  for (int row = 0; row < picture.rows; ++row) {
    auto* line = reinterpret_cast<std::uint32_t*>(data + static_cast<std::ptrdiff_t>(row) * stride);
    for (int column = 0; column < picture.columns; ++column) {
      const Colour c = picture.pixels[static_cast<std::size_t>(row) * static_cast<std::size_t>(picture.columns) +
                                      static_cast<std::size_t>(column)];
      line[column] = 0xff000000u | std::uint32_t{c.red} << 16 | std::uint32_t{c.green} << 8 | c.blue;
    }
  }
  cairo_surface_mark_dirty(surface.get());
  return surface;
}

// Draws the items one after the other.
class Painter {
 public:
  Painter(cairo_t* context, const Typesetter& typesetter) : context_(context), typesetter_(typesetter) {}

  // Without smoothing, so that neighbouring cells leave no seam between them.
  void operator()(const Box& box) const {
    set_colour(context_, box.fill);
    cairo_set_antialias(context_, CAIRO_ANTIALIAS_NONE);
    cairo_rectangle(context_, box.x, box.y, box.width, box.height);
    cairo_fill(context_);
    cairo_set_antialias(context_, CAIRO_ANTIALIAS_DEFAULT);
  }

  void operator()(const Stroke& stroke) const {
    set_colour(context_, stroke.colour);
    cairo_set_line_width(context_, stroke.width);
    cairo_move_to(context_, stroke.x1, stroke.y1);
    cairo_line_to(context_, stroke.x2, stroke.y2);
    cairo_stroke(context_);
  }

  void operator()(const Outline& outline) const {
    set_colour(context_, outline.colour);
    cairo_new_path(context_);  // text leaves a point behind, from which a line would come
    for (const auto& [x, y] : outline.points) cairo_line_to(context_, x, y);
    if (outline.width == 0) return cairo_fill(context_);
    cairo_set_line_width(context_, outline.width);
    cairo_set_line_join(context_, CAIRO_LINE_JOIN_ROUND);
    cairo_stroke(context_);
  }

  void operator()(const Picture& picture) const {
    const Surface pixels = pixels_of(picture);
    cairo_save(context_);
    cairo_translate(context_, picture.x, picture.y);
    cairo_scale(context_, picture.width / picture.columns, picture.height / picture.rows);
    cairo_set_source_surface(context_, pixels.get(), 0, 0);
    cairo_pattern_set_filter(cairo_get_source(context_), CAIRO_FILTER_NEAREST);
    cairo_rectangle(context_, 0, 0, picture.columns, picture.rows);
    cairo_fill(context_);
    cairo_restore(context_);
  }

  void operator()(const Label& label) const {
    const auto layout = typesetter_.layout(label.text, label.size, label.bold);
    PangoRectangle logical;
    pango_layout_get_extents(layout.get(), nullptr, &logical);
    const double width = static_cast<double>(logical.width) / PANGO_SCALE;
    const double baseline = static_cast<double>(pango_layout_get_baseline(layout.get())) / PANGO_SCALE;
    const double shift = label.anchor == Anchor::start ? 0 : label.anchor == Anchor::middle ? width / 2 : width;
    cairo_save(context_);
    set_colour(context_, label.colour);
    cairo_translate(context_, label.x, label.y);
    if (label.upwards) cairo_rotate(context_, -std::numbers::pi / 2);
    cairo_move_to(context_, -shift, -baseline);
    pango_cairo_show_layout(context_, layout.get());
    cairo_restore(context_);
  }

 private:
  cairo_t* context_;
  const Typesetter& typesetter_;
};

void paint(const Scene& scene, cairo_surface_t* surface, double scale) {
  const Typesetter typesetter(scene.font);
  const detail::Canvas context = detail::canvas_on(surface);
  cairo_scale(context.get(), scale, scale);
  if (!scene.transparent) {
    cairo_set_source_rgb(context.get(), 1, 1, 1);
    cairo_paint(context.get());
  }
  const Painter painter(context.get(), typesetter);
  for (const auto& item : scene.items) std::visit(painter, item);
  check(cairo_status(context.get()));
}

std::uint32_t crc(const std::string& bytes) {
  std::uint32_t value = 0xffffffffu;
  for (unsigned char byte : bytes) {
    value ^= byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
  }
  return ~value;
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

std::string png_chunk(const std::string& name, const std::string& content) {
  return big_endian(static_cast<std::uint32_t>(content.size())) + name + content + big_endian(crc(name + content));
}

std::string png_text(const std::string& keyword, const std::string& text) {
  // Uncompressed UTF-8 without a language: the zeros are those fields.
  return png_chunk("iTXt", keyword + std::string(5, '\0') + text);
}

}  // namespace

std::string picture_png(const Picture& picture) { return png_bytes(pixels_of(picture).get()); }

std::string to_png(const Scene& scene, double dpi) {
  const double scale = dpi / 72;
  // A hundred-millionth of a pixel too much is rounding, not a column of its own.
  const double width = std::ceil(scene.width * scale - 1e-6), height = std::ceil(scene.height * scale - 1e-6);
  constexpr double cairo_limit = 32767;
  if (width > cairo_limit || height > cairo_limit)
    throw ArgumentError(
        fmt::format("figure: a PNG of {:.0f} x {:.0f} pixels, at most 32767 x 32767; lower dpi", width, height));
  const Surface surface = image_surface(static_cast<int>(width), static_cast<int>(height));
  paint(scene, surface.get(), scale);
  std::string bytes = png_bytes(surface.get());
  // Cairo leaves out the resolution, by which papers size an image. The header
  // chunk always ends at byte 33.
  const std::string per_metre = big_endian(static_cast<std::uint32_t>(std::lround(dpi / 0.0254)));
  bytes.insert(33, png_chunk("pHYs", per_metre + per_metre + std::string(1, '\1')) + png_text("Title", scene.title) +
                       png_text("Description", scene.description));
  return bytes;
}

std::string to_pdf(const Scene& scene) {
  std::string bytes;
  {
    const Surface surface = owned(cairo_pdf_surface_create_for_stream(append_bytes, &bytes, scene.width, scene.height));
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_TITLE, scene.title.c_str());
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_SUBJECT, scene.description.c_str());
    // An empty date is left out, so that the same picture gives the same bytes.
    cairo_pdf_surface_set_metadata(surface.get(), CAIRO_PDF_METADATA_CREATE_DATE, "");
    paint(scene, surface.get(), 1);
    cairo_surface_finish(surface.get());
    check(cairo_surface_status(surface.get()));
  }
  return bytes;
}

}  // namespace regard::figure
