// What is shared by everything that draws: Cairo's and Pango's objects with owners.
#pragma once

#include <pango/pangocairo.h>

#include <memory>
#include <string>

namespace regard::detail {

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;
using Canvas = std::unique_ptr<cairo_t, decltype(&cairo_destroy)>;
using FontDescription = std::unique_ptr<PangoFontDescription, decltype(&pango_font_description_free)>;

struct Unref {
  void operator()(void* object) const { g_object_unref(object); }
};

Surface owned(cairo_surface_t* surface);
Canvas canvas_on(cairo_surface_t* surface);

// Throws ArgumentError when Cairo could not do what it was asked.
void check(cairo_status_t status);

// Throws ArgumentError for sizes that Cairo can't hold.
Surface image_surface(cairo_format_t format, int width, int height);

// Where row y of an image surface begins.
unsigned char* row_of(cairo_surface_t* surface, int y);

// For Cairo's writers: appends to the std::string that `closure` is.
cairo_status_t append_bytes(void* closure, const unsigned char* bytes, unsigned int count);

std::string png_bytes(cairo_surface_t* surface);

// Lays out text without hinting, so that widths scale exactly: 1 unit is 1 pixel.
std::unique_ptr<PangoContext, Unref> text_context();

}  // namespace regard::detail
