#include <algorithm>

#include "view/scene.h"
#include "view/wrap.h"

namespace regard::figure {
namespace {

using Description = detail::FontDescription;

Description describe(const std::string& font, double size, bool bold) {
  Description description(pango_font_description_new(), pango_font_description_free);
  pango_font_description_set_family(description.get(), font.c_str());
  pango_font_description_set_absolute_size(description.get(), size * PANGO_SCALE);
  if (bold) pango_font_description_set_weight(description.get(), PANGO_WEIGHT_BOLD);
  return description;
}

}  // namespace

Typesetter::Typesetter(const std::string& font) : font_(font), context_(detail::text_context()) {}

std::unique_ptr<PangoLayout, Unref> Typesetter::layout(const std::string& text, double size, bool bold) const {
  std::unique_ptr<PangoLayout, Unref> layout(pango_layout_new(context_.get()));
  pango_layout_set_font_description(layout.get(), describe(font_, size, bold).get());
  pango_layout_set_single_paragraph_mode(layout.get(), TRUE);
  pango_layout_set_text(layout.get(), text.data(), static_cast<int>(text.size()));
  return layout;
}

double Typesetter::width(const std::string& text, double size, bool bold) const {
  PangoRectangle ink, logical;
  pango_layout_get_extents(layout(text, size, bold).get(), &ink, &logical);
  return static_cast<double>(std::max(logical.width, ink.x + ink.width)) / PANGO_SCALE;
}

std::string Typesetter::family() const {
  std::unique_ptr<PangoFont, Unref> font(pango_context_load_font(context_.get(), describe(font_, 8, false).get()));
  if (!font) return font_;
  Description found(pango_font_describe(font.get()), pango_font_description_free);
  return pango_font_description_get_family(found.get());
}

std::vector<std::string> Typesetter::lines(const std::string& text, double size, double room) const {
  return wrap_text(text, [&](const std::string& line) { return width(line, size) <= room; });
}

}  // namespace regard::figure
