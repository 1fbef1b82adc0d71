// The published sizes, built, counted and timed.
#pragma once

#include "table.h"

namespace regard::bench {

// A row for Base (width 512) and Large (1024), 6 + 6 layers over one vocabulary of
// 37,000: weights by formula and by counting; milliseconds of a forward pass and
// of a training step (forward, loss, backward, clipping, AdamW), the better of
// two, for 8 pairs of 32 and 32 tokens; MiB of memory once built (weights and
// gradients), with the optimiser, and what a training step takes besides at most.
Table published_table();

}  // namespace regard::bench
