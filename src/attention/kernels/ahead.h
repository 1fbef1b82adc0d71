// Memory that will be needed after the work at hand, asked for a few cache lines
// at a time between register tiles: reading then runs beside arithmetic. Asking for
// all of it at once would wait for most of it, as only some 20 lines can be on
// their way.
#pragma once

#include <array>

#include "attention/kernels/kernels.h"

namespace regard::kernels {

class Ahead {
 public:
  // Rows that will be read. Up to `most_areas` of these and of those written are
  // taken, later ones left out.
  void read(const Matrix& rows) {
    const Index bytes = stored_bytes(rows.dtype);
    add(static_cast<const char*>(rows.data), rows.rows, rows.depth * bytes, rows.row_stride * bytes, false);
  }
  // Rows that will be written.
  void write(const StoredRows& rows, Index count, Index width) {
    const Index bytes = stored_bytes(rows.dtype);
    add(static_cast<const char*>(rows.data), count, width * bytes, rows.row_stride * bytes, true);
  }
  // All of it within `steps` steps.
  void spread_over(Index steps) { lines_ = (total_ + steps - 1) / std::max<Index>(1, steps); }

  bool finished() const { return current_ == count_; }
  void step() {
    for (Index n = 0; n < lines_ && current_ < count_; ++n) ask_for_line();
  }

 private:
  static constexpr Index line = 64, most_areas = 8;
  struct Area {
    const char* row;
    Index rows, bytes, stride;
    bool written;
  };

  void add(const char* first, Index rows, Index bytes, Index stride, bool written) {
    if (rows <= 0 || bytes <= 0 || count_ == most_areas) return;
    Area& area = areas_[static_cast<std::size_t>(count_++)];
    area = {first, rows, bytes, stride, written};
    if (stride == bytes) area = {first, 1, rows * bytes, 0, written};
    total_ += area.rows * ((area.bytes + line - 1) / line);
  }

  void ask_for_line() {
    Area& area = areas_[static_cast<std::size_t>(current_)];
    if (area.written)
      __builtin_prefetch(area.row + at_, 1, 2);
    else
      __builtin_prefetch(area.row + at_, 0, 2);
    at_ += line;
    if (at_ < area.bytes) return;
    at_ = 0;
    area.row += area.stride;
    if (--area.rows == 0) ++current_;
  }

  std::array<Area, most_areas> areas_;
  Index count_ = 0, current_ = 0, at_ = 0, total_ = 0, lines_ = 0;
};

}  // namespace regard::kernels
