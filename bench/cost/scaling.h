// Why scores are divided by sqrt(d_k), and what clipping gradients does: measured.
#pragma once

#include "table.h"

namespace regard::bench {

// A row for each d_k from 8 to 1024, for random q, k, v of variance 1 and 512
// keys: the variance of the scores, the mean entropy of a row of weights in nats,
// mean and median of the Euclidean norm of a row's gradient with respect to its
// scores, and the share of rows whose largest weight exceeds 0.99; each without
// the division and with it.
Table scaling_table();

// A row for every ten steps of training (recall at distance 16, learning rate
// 0.01, no warm-up, post-norm): the mean loss of ten runs, without clipping and
// with gradients clipped to a norm of 1.
Table clipping_table();

}  // namespace regard::bench
