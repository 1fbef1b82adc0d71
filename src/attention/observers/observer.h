// Observers: who looks at the weights while they pass. One pass computes the
// weights tile by tile, once the forward pass knows every row's maximum and
// sum, and shows each tile to everybody who wants it.
//
// To add one: a file here with a class and the function that makes it, a line
// below and one in observers.cpp; its numbers in regard/observe.h and in
// plain_observe.cpp.
#pragma once

#include <memory>
#include <vector>

#include "attention/call.h"

namespace regard::detail {

// What an observer sees: a tile of weights within a block of queries of one head.
struct Sight {
  const Spot& block;             // all keys of these rows come by, tile by tile
  const Spot& tile;              // rows of the block, some keys
  const kernels::Tile& weights;  // zeros around it, see kernels.h
  double* notes;                 // of this block
  float* scratch;                // room for a tile's row with its margins
};

// Blocks are shown at the same time by several threads: `see` and `skip` write
// only what belongs to the tile's rows, and the notes.
class Observer {
 public:
  virtual ~Observer() = default;
  // Whether the weights of these pairs matter. What nobody wants is not computed.
  virtual bool wants(const Spot&) const { return true; }
  // Numbers to keep about a block of queries while it passes; zero at first.
  virtual Index note_count(const Spot& /*block*/) const { return 0; }
  // Tiles of a row come in the order of their keys.
  virtual void see(const Sight& sight) = 0;
  // Pairs that it wants and that are hidden: all of these weights are 0.
  virtual void skip(const Spot&) {}
  // The block has passed. Blocks of one head end one after another, in order, so
  // sums over them have the same bits for any number of threads.
  virtual void end_block(const Spot& /*block*/, const double* /*notes*/) {}
  // All blocks have passed.
  virtual void end() {}
};

using Observers = std::vector<std::unique_ptr<Observer>>;

// What call.options.observe asks for of the second pass, writing into `result`.
Observers make_observers(const Call& call, const RowStatistics& rows, AttendResult& result);
// The pass.
void show_weights(const Call& call, const RowStatistics& rows, const Observers& observers);

std::unique_ptr<Observer> observe_distance(const Call& call, AttendResult& result);
std::unique_ptr<Observer> observe_top_keys(const Call& call, const RowStatistics& rows, AttendResult& result);
std::unique_ptr<Observer> observe_key_mass(const Call& call, AttendResult& result);
std::unique_ptr<Observer> observe_pooled_sum(const Call& call, AttendResult& result);
std::unique_ptr<Observer> observe_pooled_max(const Call& call, AttendResult& result);
std::unique_ptr<Observer> observe_segment_sum(const Call& call, AttendResult& result);
std::unique_ptr<Observer> observe_diagonals(const Call& call, AttendResult& result);
std::unique_ptr<Observer> observe_weights(const Call& call, AttendResult& result);

}  // namespace regard::detail
