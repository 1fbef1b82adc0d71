// Raw scores (scale * q . k) once more, after the pass that made the output: in
// that pass's own order of sums, so that weights fit its maxima and sums to the
// last bit.
#pragma once

#include "attention/call.h"

namespace regard::detail {

class ScoreTiles {
 public:
  // For at most `rows` queries at a time against tiles of call.tiling.key_block
  // keys.
  ScoreTiles(const Call& call, Layout& layout, Index rows);

  void take_queries(const Spot& rows);
  void take_keys(const Spot& keys);
  // Scores of the tile.rows queries from `first` of those taken with the first
  // tile.keys keys.
  void multiply(Index first, const kernels::Tile& tile) const;

 private:
  const Call& call_;
  bool by_dots_;  // few queries: dot products along the depth, as decode.cpp does
  float *queries_, *keys_;
  Spot keys_at_{};
};

}  // namespace regard::detail
