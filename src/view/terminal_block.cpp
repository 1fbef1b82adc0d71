#include "view/terminal_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/palette.h"
#include "regard/text_width.h"
#include "view/wrap.h"

namespace regard::terminal {
namespace {

std::string rgb(const char* prefix, Colour colour) {
  return fmt::format("{};2;{};{};{}", prefix, colour.red, colour.green, colour.blue);
}

std::string ground_of(Colour colour, ColourDepth depth) {
  if (depth == ColourDepth::truecolour) return rgb("48", colour);
  if (depth == ColourDepth::indexed) return fmt::format("48;5;{}", nearest_256(colour));
  return "";
}

// Entries 8 to 15 have their own codes.
std::string ground_16(int entry) { return fmt::format("{}", entry < 8 ? 40 + entry : 100 + entry - 8); }

std::string ink_on(Colour ground) { return text_colour_on(ground) == Colour{0, 0, 0} ? "30" : "97"; }

Colour shade_colour(const HeatMap& map, double value) {
  return map.scale == Scale::lift ? diverging_colour(value) : sequential_colour(value);
}

// The foreground code that paints what a ground code would.
std::string as_ink(const std::string& ground) {
  if (ground.starts_with("48;")) return "38" + ground.substr(2);
  const int code = std::stoi(ground);
  return std::to_string(code - 10);
}

}  // namespace

void Line::switch_to(const std::string& codes) {
  if (depth_ == ColourDepth::none || codes == codes_) return;
  text_ += codes.empty() ? "\x1b[0m" : (codes_.empty() ? "\x1b[" : "\x1b[0;") + codes + "m";
  codes_ = codes;
}

Line& Line::styled(const std::string& codes, std::string_view text) {
  switch_to(codes);
  text_ += text;
  columns_ += text_columns(text);
  return *this;
}

Line& Line::plain(std::string_view text) { return styled("", text); }
Line& Line::bold(std::string_view text) { return styled("1", text); }
Line& Line::dim(std::string_view text) { return styled("2", text); }
Line& Line::reverse(std::string_view text) { return styled("1;7", text); }

Line& Line::shaded(const HeatMap& map, double value, std::string_view text) {
  std::string codes = ground_codes(map, value, depth_);
  const bool dark_16 = depth_ == ColourDepth::sixteen && value > 0.7;
  const std::string ink = depth_ == ColourDepth::sixteen ? (dark_16 ? "97" : "30") : ink_on(shade_colour(map, value));
  return styled(codes + ";" + ink, text);
}

Line& Line::hidden(std::string_view text) { return styled("2", text); }

Line& Line::halves(const std::string& upper, const std::string& lower) {
  return styled(as_ink(upper) + (lower.empty() ? "" : ";" + lower), "▀");
}

Line& Line::append(const Line& other) {
  switch_to("");
  text_ += other.text();
  columns_ += other.columns_;
  return *this;
}

Line& Line::pad(int columns) {
  if (columns > columns_) plain(std::string(static_cast<std::size_t>(columns - columns_), ' '));
  return *this;
}

std::string Line::text() const { return codes_.empty() ? text_ : text_ + "\x1b[0m"; }

int columns(const Block& block) {
  int most = 0;
  for (const Line& line : block) most = std::max(most, line.columns());
  return most;
}

void append(Block& block, const Block& more) { block.insert(block.end(), more.begin(), more.end()); }

Block side_by_side(const std::vector<Block>& blocks, int width, ColourDepth depth) {
  constexpr int gap = 3;
  Block all;
  std::size_t next = 0;
  while (next < blocks.size()) {
    const std::size_t top = all.size();
    if (top > 0) all.emplace_back(depth);
    const std::size_t first_line = all.size();
    int left = 0;
    for (; next < blocks.size(); ++next) {
      const int wide = columns(blocks[next]);
      if (left > 0 && left + gap + wide > width) break;
      const int at = left > 0 ? left + gap : 0;
      while (all.size() < first_line + blocks[next].size()) all.emplace_back(depth);
      for (std::size_t i = 0; i < blocks[next].size(); ++i) all[first_line + i].pad(at).append(blocks[next][i]);
      left = at + wide;
    }
  }
  return all;
}

std::string text(const Block& block) {
  std::string all;
  for (const Line& line : block) {
    std::string one = line.text();
    one.erase(one.find_last_not_of(' ') + 1);
    all += one + "\n";
  }
  return all;
}

std::string ground_codes(const HeatMap& map, double value, ColourDepth depth) {
  if (depth == ColourDepth::sixteen)
    return ground_16(map.scale == Scale::lift ? diverging_16(value) : sequential_16(value));
  return ground_of(shade_colour(map, value), depth);
}

// Darker than in figures: on a dark screen a light grey would pass for a weight.
std::string hidden_ground_codes(ColourDepth depth) {
  return depth == ColourDepth::sixteen ? ground_16(8) : ground_of({96, 96, 96}, depth);
}

std::string grey_codes(double grey, ColourDepth depth) {
  if (depth == ColourDepth::sixteen) return ground_16(grey < 0.25 ? 0 : grey < 0.5 ? 8 : grey < 0.75 ? 7 : 15);
  const auto part = static_cast<std::uint8_t>(std::lround(std::clamp(grey, 0.0, 1.0) * 255));
  return ground_of({part, part, part}, depth);
}

Block wrapped(const std::string& text, int width, ColourDepth depth, bool bold) {
  Block block;
  for (const std::string& line :
       wrap_text(text, [&](const std::string& line) { return text_columns(line) <= width; })) {
    block.emplace_back(depth);
    bold ? block.back().bold(line) : block.back().plain(line);
  }
  return block;
}

}  // namespace regard::terminal
