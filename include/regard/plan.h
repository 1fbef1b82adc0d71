// What attend would do with a call, without doing it.
#pragma once

#include <string>
#include <vector>

#include "regard/attend.h"

namespace regard {

struct AttendPlan {
  std::string kernel;              // "AVX2, register tile 6 x 16"
  std::string path;                // "streaming: ...", "regrouped: ...", "short: ..." or "decode: ..."
  std::string storage;             // "q F32, k BF16, v BF16": what is widened to float on the way
  std::vector<std::string> score;  // names of the score modifiers, in order
  Index query_block = 0;           // rows that share packed keys
  Index chunk_rows = 0;            // rows whose scores are in flight at once
  Index key_block = 0;             // keys of one tile
  Index work_items = 0;            // pieces that threads take
  int threads = 1;                 // that will take them
  // Tiles of chunk_rows x key_block over all heads: how many there are, how
  // many nobody computes, how many need the mask pair by pair.
  Index tiles = 0, skipped_tiles = 0, masked_tiles = 0;
  // Scratch memory of the pass that makes the output, all threads together. What
  // observers of a second pass note on the way is linear in q_len and kv_len.
  Index workspace_bytes = 0;
};

// Same checks and errors as attend. Asks the mask about every tile, so the cost
// grows with q_len x kv_len / 4608, not with head_dim.
AttendPlan plan_attend(const InputView& q, const InputView& k, const InputView& v, const AttendOptions& options = {});

// The plan in words, one fact a line.
std::string explain(const AttendPlan& plan);

}  // namespace regard
