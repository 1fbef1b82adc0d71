// Scratch memory of one thread: grows to what a call needs and is kept for the
// next one, so that short calls allocate nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/tensor.h"

namespace regard::detail {

class Workspace {
 public:
  // Forgets everything carved so far; room for `floats` more without moving.
  void begin(Index floats) {
    used_ = 0;
    if (static_cast<Index>(memory_.size()) < floats) {
      memory_ = {};
      memory_.resize(static_cast<std::size_t>(floats));
    }
  }
  // An aligned array of `count` uninitialised floats, valid until begin().
  float* floats(Index count) {
    float* start = memory_.data() + used_;
    used_ += aligned(count);
    return start;
  }
  double* doubles(Index count) { return reinterpret_cast<double*>(floats(2 * count)); }
  std::uint8_t* bytes(Index count) { return reinterpret_cast<std::uint8_t*>(floats((count + 3) / 4)); }

  static Index aligned(Index count) { return (count + 15) / 16 * 16; }

  static Workspace& of_this_thread() {
    thread_local Workspace workspace;
    return workspace;
  }

 private:
  AlignedVector<float> memory_;
  Index used_ = 0;
};

}  // namespace regard::detail
