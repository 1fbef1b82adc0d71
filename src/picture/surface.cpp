#include "picture/surface.h"

#include "regard/error.h"

namespace regard::detail {

cairo_status_t append_bytes(void* closure, const unsigned char* bytes, unsigned int count) {
  static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(bytes), count);
  return CAIRO_STATUS_SUCCESS;
}

Surface owned(cairo_surface_t* surface) { return {surface, cairo_surface_destroy}; }

Canvas canvas_on(cairo_surface_t* surface) { return {cairo_create(surface), cairo_destroy}; }

void check(cairo_status_t status) {
  if (status != CAIRO_STATUS_SUCCESS)
    throw ArgumentError(std::string("can't be drawn: ") + cairo_status_to_string(status));
}

Surface image_surface(cairo_format_t format, int width, int height) {
  Surface surface = owned(cairo_image_surface_create(format, width, height));
  check(cairo_surface_status(surface.get()));
  return surface;
}

unsigned char* row_of(cairo_surface_t* surface, int y) {
  return cairo_image_surface_get_data(surface) +
         static_cast<std::ptrdiff_t>(y) * cairo_image_surface_get_stride(surface);
}

std::string png_bytes(cairo_surface_t* surface) {
  std::string bytes;
  check(cairo_surface_write_to_png_stream(surface, append_bytes, &bytes));
  return bytes;
}

std::unique_ptr<PangoContext, Unref> text_context() {
  std::unique_ptr<PangoContext, Unref> context(pango_font_map_create_context(pango_cairo_font_map_get_default()));
  pango_cairo_context_set_resolution(context.get(), 72);
  std::unique_ptr<cairo_font_options_t, decltype(&cairo_font_options_destroy)> options(cairo_font_options_create(),
                                                                                       cairo_font_options_destroy);
  cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
  pango_cairo_context_set_font_options(context.get(), options.get());
  pango_context_set_round_glyph_positions(context.get(), FALSE);
  return context;
}

}  // namespace regard::detail
