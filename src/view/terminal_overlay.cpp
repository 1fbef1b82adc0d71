#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "regard/text_width.h"
#include "view/overlay.h"
#include "view/terminal_block.h"

namespace regard {
namespace {

using terminal::Block;
using terminal::Line;

// One column of the terminal stands for `unit` pixels across and twice as many down.
struct Grid {
  int left = 0;  // columns of the labels
  Index unit = 1;
  Index columns = 0;
};

Grid fit(const std::vector<HeatMap>& maps, const PatchedPicture& picture, int width) {
  Grid grid;
  for (const HeatMap& map : maps)
    for (Index row = 0; row < map.q_len(); ++row) grid.left = std::max(grid.left, text_columns(map.queries.label(row)));
  grid.left = std::min(grid.left, width / 3) + 1;
  const Index pixels = picture.pixels.size(1), room = std::max(1, width - grid.left);
  grid.unit = (pixels + room - 1) / room;
  grid.columns = (pixels + grid.unit - 1) / grid.unit;
  return grid;
}

// The mean of a block of pixels, as far as it lies on the picture.
float mean_of(const Tensor<float>& values, Index top, Index left, Index high, Index wide) {
  const Index bottom = std::min(top + high, values.size(0)), right = std::min(left + wide, values.size(1));
  float sum = 0;
  for (Index y = top; y < bottom; ++y)
    for (Index x = left; x < right; ++x) sum += values[y * values.size(1) + x];
  return bottom > top && right > left ? sum / static_cast<float>((bottom - top) * (right - left)) : 0;
}

// Ink on paper where there is colour, characters of the ramp where there is none.
Block picture_block(const PatchedPicture& picture, const Grid& grid, ColourDepth depth) {
  const Tensor<float> ink = ink_shares(picture.pixels);
  Block block;
  for (Index y = 0; y < picture.pixels.size(0); y += 2 * grid.unit) {
    block.emplace_back(depth);
    block.back().pad(grid.left);
    for (Index column = 0; column < grid.columns; ++column) {
      const Index x = column * grid.unit;
      if (depth == ColourDepth::none) {
        const float share = mean_of(ink, y, x, 2 * grid.unit, grid.unit);
        block.back().plain(std::string(1, ascii_ramp(static_cast<double>(share))));
        continue;
      }
      const auto code = [&](Index top) {
        return terminal::grey_codes(1 - static_cast<double>(mean_of(ink, top, x, grid.unit, grid.unit)), depth);
      };
      block.back().halves(code(y), y + grid.unit < picture.pixels.size(0) ? code(y + grid.unit) : "");
    }
  }
  return block;
}

// The largest weight of the patches over this column of the terminal; NaN if one is.
double strongest_shade(const HeatMap& map, const PatchedPicture& picture, Index row, Index from, Index to) {
  double most = -1;
  for (Index column = from / picture.patch_width; column <= to / picture.patch_width; ++column)
    for (Index across = 0; across < picture.rows(); ++across) {
      const double one = shade(map, row, column * picture.rows() + across);
      if (std::isnan(one)) return one;
      most = std::max(most, one);
    }
  return most;
}

Block rows_block(const HeatMap& map, const PatchedPicture& picture, const Grid& grid, ColourDepth depth) {
  Block block;
  for (Index row = 0; row < map.q_len(); ++row) {
    block.emplace_back(depth);
    block.back().plain(fit_text(map.queries.label(row), grid.left - 1, Align::right)).plain(" ");
    for (Index column = 0; column < grid.columns; ++column) {
      const Index from = column * grid.unit, to = std::min(from + grid.unit, picture.pixels.size(1)) - 1;
      const double value = strongest_shade(map, picture, row, from, to);
      if (depth == ColourDepth::none)
        block.back().plain(std::string(1, ascii_ramp(map.scale == Scale::lift ? (value + 1) / 2 : value)));
      else
        block.back().shaded(map, value, " ");
    }
  }
  return block;
}

}  // namespace

std::string terminal_overlay(const std::vector<HeatMap>& maps, const PatchedPicture& picture,
                             const TerminalOptions& options) {
  if (maps.empty()) return "";
  for (const HeatMap& map : maps) check_overlay(map, picture);
  const int width = std::max(options.width, narrowest_terminal);
  const Grid grid = fit(maps, picture, width);
  Block block = picture_block(picture, grid, options.depth);
  for (const HeatMap& map : maps) {
    terminal::append(block, terminal::wrapped(map.title, width, options.depth, true));
    terminal::append(block, rows_block(map, picture, grid, options.depth));
  }
  terminal::append(block, terminal::ramp(maps[0], width, options.depth));
  const std::string unit = grid.unit == 1 ? "a column is a pixel" : fmt::format("a column is {} pixels", grid.unit);
  terminal::append(block, terminal::wrapped(scale_title(maps[0]) + "; " + unit, width, options.depth));
  return terminal::text(block);
}

}  // namespace regard
