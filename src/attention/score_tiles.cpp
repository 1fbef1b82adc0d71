#include "attention/score_tiles.h"

#include "attention/decode.h"

namespace regard::detail {

ScoreTiles::ScoreTiles(const Call& call, Layout& layout, Index rows)
    : call_(call),
      by_dots_(is_decoding(call)),
      queries_(layout.floats(rows * call.sizes.head_dim)),
      keys_(layout.floats(by_dots_ ? 0 : call.tile_stride() * call.sizes.head_dim)) {}

void ScoreTiles::take_queries(const Spot& rows) {
  const Index depth = call_.sizes.head_dim;
  call_.kernels.widen_rows(rows_of(call_.q, rows.b, rows.h, rows.row, rows.rows), queries_, depth);
  // Packed keys hold the scale already.
  if (by_dots_) call_.kernels.scale({queries_, depth, rows.rows, depth}, call_.scale);
}

void ScoreTiles::take_keys(const Spot& keys) {
  keys_at_ = keys;
  if (!by_dots_)
    call_.kernels.pack_interleaved(rows_of(call_.k, keys.b, call_.kv_head(keys.h), keys.key, keys.keys),
                                   call_.kernels.column_tile, call_.scale, keys_);
}

void ScoreTiles::multiply(Index first, const kernels::Tile& tile) const {
  const kernels::Kernels& kernels = call_.kernels;
  const Index depth = call_.sizes.head_dim;
  const float* queries = queries_ + first * depth;
  if (by_dots_)
    kernels.dot_rows({queries, tile.rows, depth, depth, 1},
                     rows_of(call_.k, keys_at_.b, call_.kv_head(keys_at_.h), keys_at_.key, tile.keys), tile);
  else
    kernels.product({queries, depth, 1, keys_, kernels.column_tile * depth, kernels.column_tile, tile.data, tile.stride,
                     tile.rows, tile.keys, depth, false});
}

}  // namespace regard::detail
