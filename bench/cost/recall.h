// Symbols to be said again after a while, by attention and by an LSTM of equal size.
#pragma once

#include <string>
#include <vector>

#include "network.h"
#include "table.h"

namespace regard::bench {

struct RecallPlan {
  std::vector<Index> distances{8, 16, 32, 64, 128, 256, 512, 1024};
  Index most_steps = 4000;   // of training for each model and distance
  double most_seconds = 45;  // alike, whichever is reached first
  double enough = 0.99;      // accuracy at which training ends early
};

// A row a distance: accuracy, training steps taken and microseconds a token
// (training, and forward alone) of both models. Each is trained afresh at every
// distance. Progress goes to stderr.
Table recall_table(RecallTask task, const RecallPlan& plan);

}  // namespace regard::bench
