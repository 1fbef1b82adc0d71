// A drawing in points, before it becomes SVG, PNG or PDF. y grows downwards.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "picture/surface.h"
#include "regard/figure.h"

namespace regard::figure {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  Colour fill{};
};

struct Stroke {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0, width = 0.5;
  Colour colour{};
};

// One pixel a cell, never smoothed.
struct Picture {
  double x = 0, y = 0, width = 0, height = 0;
  int columns = 0, rows = 0;
  std::vector<Colour> pixels{};  // [rows, columns]
};

// Straight lines through points (at least one): drawn `width` wide, or, at width 0, closed and
// filled.
struct Outline {
  std::vector<std::pair<double, double>> points{};
  double width = 0;
  Colour colour{};
};

enum class Anchor { start, middle, end };

struct Label {
  double x = 0, y = 0;  // on the baseline, where `anchor` says
  std::string text{};
  double size = 8;
  Anchor anchor = Anchor::start;
  bool upwards = false;  // turned by 90 degrees, read from below
  bool bold = false;
  Colour colour{};
};

struct Scene {
  double width = 0, height = 0;
  std::string title{}, description{}, font{};
  bool transparent = false;
  std::vector<std::variant<Box, Stroke, Outline, Picture, Label>> items{};

  template <class Item>
  void add(Item item) {
    items.emplace_back(std::move(item));
  }
};

using detail::Unref;

// Lays out text as the figures draw it: 1 unit is 1 point, no hinting, so that
// widths scale exactly.
class Typesetter {
 public:
  explicit Typesetter(const std::string& font);
  // Of the ink's advance, in points.
  double width(const std::string& text, double size, bool bold = false) const;
  std::unique_ptr<PangoLayout, Unref> layout(const std::string& text, double size, bool bold) const;
  // The installed family that the font's name stands for.
  std::string family() const;
  // Broken at spaces, and inside words that are wider than `room` by themselves.
  std::vector<std::string> lines(const std::string& text, double size, double room) const;

 private:
  std::string font_;
  std::unique_ptr<PangoContext, Unref> context_;
};

std::string to_svg(const Scene& scene);
std::string to_pdf(const Scene& scene);
std::string to_png(const Scene& scene, double dpi);
// One pixel a cell, as a PNG file.
std::string picture_png(const Picture& picture);

}  // namespace regard::figure
