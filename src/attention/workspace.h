// Scratch memory of one thread: grows to what a call needs and is kept for the
// next one, so that short calls allocate nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/tensor.h"

namespace regard::detail {

// Hands out aligned arrays one after the other; without memory it only counts,
// so that one list of arrays serves both to measure and to lay out.
class Layout {
 public:
  Layout() = default;
  explicit Layout(float* memory) : memory_(memory) {}
  // `count` uninitialised floats.
  float* floats(Index count) {
    float* start = memory_ ? memory_ + used_ : nullptr;
    used_ += (count + 15) / 16 * 16;
    return start;
  }
  double* doubles(Index count) { return reinterpret_cast<double*>(floats(2 * count)); }
  std::uint8_t* bytes(Index count) { return reinterpret_cast<std::uint8_t*>(floats((count + 3) / 4)); }
  Index used() const { return used_; }  // floats so far

 private:
  float* memory_ = nullptr;
  Index used_ = 0;
};

class Workspace {
 public:
  // What `carve(layout)` returns when it asks for its arrays; valid until the
  // thread's next carving.
  template <class Carve>
  static auto carved(Carve carve) {
    Layout counting;
    carve(counting);
    Layout layout(room_for(counting.used()));
    return carve(layout);
  }

 private:
  static float* room_for(Index floats) {
    thread_local AlignedVector<float> memory;
    if (static_cast<Index>(memory.size()) < floats) {
      memory = {};  // never both at once
      memory.resize(static_cast<std::size_t>(floats));
    }
    return memory.data();
  }
};

}  // namespace regard::detail
