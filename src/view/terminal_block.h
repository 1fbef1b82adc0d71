// Lines of styled text with known widths, to be set side by side.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/heatmap.h"
#include "regard/terminal.h"

namespace regard::terminal {

// One line under construction: text, its columns, and colours that are written
// only when they change.
class Line {
 public:
  explicit Line(ColourDepth depth) : depth_(depth) {}

  Line& plain(std::string_view text);
  // Text on the ground of a shade (see heatmap.h); `text` is printed as it is.
  Line& shaded(const HeatMap& map, double value, std::string_view text);
  Line& hidden(std::string_view text);
  // Two cells in one character, `upper` over `lower`; a code of -1 leaves the
  // terminal's own ground.
  Line& halves(const std::string& upper, const std::string& lower);
  Line& bold(std::string_view text);
  Line& dim(std::string_view text);
  Line& reverse(std::string_view text);
  Line& append(const Line& other);
  // Spaces up to a column.
  Line& pad(int columns);

  int columns() const { return columns_; }
  // With the colours closed.
  std::string text() const;

 private:
  Line& styled(const std::string& codes, std::string_view text);
  void switch_to(const std::string& codes);

  ColourDepth depth_;
  std::string text_;
  std::string codes_;
  int columns_ = 0;
};

using Block = std::vector<Line>;

int columns(const Block& block);
void append(Block& block, const Block& more);
// Left to right with a gap, wrapped at the width.
Block side_by_side(const std::vector<Block>& blocks, int width, ColourDepth depth);
std::string text(const Block& block);

// SGR parameters of a cell's colour as a ground: "48;2;1;2;3".
std::string ground_codes(const HeatMap& map, double value, ColourDepth depth);
std::string hidden_ground_codes(ColourDepth depth);
// Of a grey, 0 (black) to 1 (white).
std::string grey_codes(double grey, ColourDepth depth);

// The picture of one map without title and scale, at most `width` columns, and
// the scale under it.
Block picture(const HeatMap& map, int width, ColourDepth depth);
Block scale_bar(const HeatMap& map, int width, ColourDepth depth);
// Only the colours or characters of the scale, and its ticks.
Block ramp(const HeatMap& map, int width, ColourDepth depth);
// Text in lines of at most `width` columns.
Block wrapped(const std::string& text, int width, ColourDepth depth, bool bold = false);
// Title over picture.
Block titled_picture(const HeatMap& map, int width, ColourDepth depth);

}  // namespace regard::terminal
