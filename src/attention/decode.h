// Few queries against many keys: one pass over keys and values for the whole
// group of query heads that share them, cut into splits of fixed length that
// threads take, merged in order.
#pragma once

#include "attention/call.h"

namespace regard::detail {

// Keys of one split. Never depends on threads, so that bits don't.
constexpr Index decode_split = 1024;

// Keys whose scores are in flight: their scores stay in the first-level cache, and each
// of the streams they are read by is long enough for the hardware to follow.
constexpr Index decode_block = 512;

// Whether a call is decoding: its query rows, over all heads of a group, are so
// few that packing keys would cost more than it saves.
bool is_decoding(const Call& call);

// Pieces of work, scratch floats of one thread, and floats of partial results.
Index decode_items(const Call& call);
Index decode_workspace(const Call& call);
Index decode_partials(const Call& call);

void run_decode(const Call& call, RowStatistics& rows, const OutputView& out);

}  // namespace regard::detail
