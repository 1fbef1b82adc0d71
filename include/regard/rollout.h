// Attention rollout: how much of an output position comes from each input token
// when attention is followed through all layers, half of every layer passing by
// on the residual.
//
// Every self-attention layer mixes positions by (W + I) / 2, W the mean of the
// heads' weights; the product of these matrices is the rollout. A decoder layer
// also takes half from the encoder's output, by its cross-attention. Feed-forward
// layers move nothing between positions.
// Source: Abnar and Zuidema, "Quantifying attention flow in Transformers", 2020;
// the same rule followed through cross-attention is ours.
#pragma once

#include <vector>

#include "regard/trace.h"

namespace regard {

// Shares of the input tokens in one position; together they sum to 1 where rows
// of weights do.
struct RolloutRow {
  std::vector<double> source;  // [source length]
  std::vector<double> target;  // [target length]; empty for an encoder's position
};

// Of one position after `layer` of the encoder (kind encoder) or of the decoder
// (decoder or cross). A row vector goes down through the layers: memory of one
// row, time of one pass over the weights. Throws ArgumentError for a layer or row
// that the trace lacks, or a layer below it without weights.
RolloutRow rollout(const Trace& trace, AttentionKind kind, Index layer, Index row);

// Every position of every layer: a trace whose maps hold one matrix each instead
// of heads. Cross maps hold what comes from the source, decoder maps what comes
// from the target.
Trace rollout_trace(const Trace& trace);

}  // namespace regard
