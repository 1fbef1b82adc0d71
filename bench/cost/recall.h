// Symbols to be said again after a while, by attention and by an LSTM of equal size.
#pragma once

#include <algorithm>
#include <vector>

#include "network.h"
#include "table.h"

namespace regard::bench {

struct RecallPlan {
  std::vector<Index> distances{8, 16, 32, 64, 128, 256, 512, 1024};
  Index most_steps = 4000;  // of training for each model and distance
  double enough = 0.99;     // accuracy at which training ends early

  // Processor time of training, whichever limit is reached first.
  static double most_seconds(Index distance) { return std::max(45.0, 0.12 * static_cast<double>(distance)); }
};

// A row a distance: accuracy, training steps taken and microseconds a token
// (training, and forward alone) of both models. Each is trained afresh at every
// distance. Progress goes to stderr.
Table recall_table(RecallTask task, const RecallPlan& plan);

}  // namespace regard::bench
