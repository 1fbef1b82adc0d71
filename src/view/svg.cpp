#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "regard/text_width.h"
#include "view/scene.h"

namespace regard::figure {
namespace {

// XML has no way to hold control characters, line ends aside.
std::string escape(const std::string& text) {
  const std::size_t line_end = text.find('\n');
  if (line_end != std::string::npos) return escape(text.substr(0, line_end)) + "\n" + escape(text.substr(line_end + 1));
  std::string safe;
  for (char c : printable(text)) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

// Two decimals are 1/7200 inch.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string hex(Colour colour) { return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue); }

std::string base64(const std::string& bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : digits[three >> (18 - 6 * j) & 63];
  }
  return text;
}

std::string element(const Box& box) {
  return fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="{}" shape-rendering="crispEdges"/>)",
                     number(box.x), number(box.y), number(box.width), number(box.height), hex(box.fill));
}

std::string element(const Stroke& stroke) {
  return fmt::format(R"(<path d="M{} {}L{} {}" stroke="{}" stroke-width="{}"/>)", number(stroke.x1), number(stroke.y1),
                     number(stroke.x2), number(stroke.y2), hex(stroke.colour), number(stroke.width));
}

std::string element(const Outline& outline) {
  std::string points;
  for (const auto& [x, y] : outline.points) points += fmt::format("{} {} ", number(x), number(y));
  points.pop_back();
  if (outline.width == 0) return fmt::format(R"(<polygon points="{}" fill="{}"/>)", points, hex(outline.colour));
  return fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" stroke-linejoin="round"/>)",
                     points, hex(outline.colour), number(outline.width));
}

// Some viewers smooth every image: with several pixels a cell only the cells'
// borders can blur.
Picture enlarged(const Picture& picture) {
  const int factor = std::clamp(1200 / std::max(picture.columns, picture.rows), 1, 12);
  Picture large = picture;
  large.columns *= factor;
  large.rows *= factor;
  large.pixels.clear();
  for (int row = 0; row < large.rows; ++row)
    for (int column = 0; column < large.columns; ++column)
      large.pixels.push_back(
          picture.pixels[static_cast<std::size_t>(row / factor * picture.columns + column / factor)]);
  return large;
}

// Viewers know one or another of the three names for "don't smooth".
std::string element(const Picture& picture) {
  return fmt::format(R"(<image x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" )"
                     R"(style="image-rendering:optimizeSpeed;image-rendering:crisp-edges;image-rendering:pixelated" )"
                     R"(xlink:href="data:image/png;base64,{}"/>)",
                     number(picture.x), number(picture.y), number(picture.width), number(picture.height),
                     base64(picture_png(enlarged(picture))));
}

std::string element(const Label& label) {
  std::string attributes;
  if (label.anchor == Anchor::middle) attributes += R"( text-anchor="middle")";
  if (label.anchor == Anchor::end) attributes += R"( text-anchor="end")";
  if (label.bold) attributes += R"( font-weight="bold")";
  if (label.colour != Colour{}) attributes += fmt::format(R"( fill="{}")", hex(label.colour));
  const std::string x = number(label.x), y = number(label.y);
  if (label.upwards) attributes += fmt::format(" transform=\"rotate(-90 {} {})\"", x, y);
  return fmt::format(R"(<text x="{}" y="{}" font-size="{}"{}>{}</text>)", x, y, number(label.size), attributes,
                     escape(label.text));
}

}  // namespace

std::string to_svg(const Scene& scene) {
  const std::string width = number(scene.width), height = number(scene.height);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" )"
      R"(width="{0}pt" height="{1}pt" viewBox="0 0 {0} {1}" role="img" aria-labelledby="title desc" )"
      R"(font-family="'{2}', sans-serif" xml:space="preserve">)"
      "\n<title id=\"title\">{3}</title>\n<desc id=\"desc\">{4}</desc>\n",
      width, height, escape(Typesetter(scene.font).family()), escape(scene.title), escape(scene.description));
  if (!scene.transparent) svg += element(Box{0, 0, scene.width, scene.height, {255, 255, 255}}) + "\n";
  for (const auto& item : scene.items) svg += std::visit([](const auto& one) { return element(one); }, item) + "\n";
  return svg + "</svg>\n";
}

}  // namespace regard::figure
