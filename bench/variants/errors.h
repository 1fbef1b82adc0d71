// How far the approximations are from exact attention, as a function of the one
// number that buys accuracy with time.
#pragma once

#include <string>

#include "model_heads.h"
#include "table.h"

namespace regard::bench {

// What is approximated: q, k and v under one name.
struct Sample {
  std::string name;
  Heads heads;
};

// |out - exact| / |exact| in the Euclidean norm over all heads, tokens and
// elements together.
double relative_error(const Tensor<float>& out, const Tensor<float>& exact);

// q and k standard normal times `norm` / sqrt(64), so that their lengths are
// about `norm` and scores have a standard deviation of norm^2 / 64; v standard
// normal. One batch entry, 4 heads of 64, 1024 tokens.
Sample random_sample(double norm);
// The model's vectors for the words of the file, see ModelHeads: end to end to
// 1024 tokens.
Sample model_sample(ModelHeads& model, const std::string& words_path);

// Root mean square over several draws of the features. Column "single words":
// each of 200 words by itself.
Table performer_errors(const std::vector<Sample>& samples, const std::vector<Heads>& single_words);
// Projections as averages over stretches of equal length and as random normal numbers.
Table linformer_errors(const std::vector<Sample>& samples);
// Projections fitted to the model's vectors for some words, [words, heads, letters,
// head_dim], and tried on others.
Table linformer_word_errors(const Heads& training, const Heads& others);
// Against exact attention with shared queries and keys (keys of length 1, scores
// |q| cos(angle), no token to itself). The samples' k is not used.
Table reformer_errors(const std::vector<Sample>& samples);

// One row a sample: what a reader needs to judge the curves by.
struct SampleFacts {
  std::string name;
  double query_norm = 0, key_norm = 0;  // means of lengths
  double score_deviation = 0;           // standard deviation of q . k / sqrt(head_dim)
  double entropy = 0, longest = 0;      // mean over rows in nats, and the largest there can be
  double mean_error = 0;                // of answering every query with the mean of v
  double linear_error = 0;              // of linear attention, which has no knob
};
SampleFacts facts_of(const Sample& sample);

}  // namespace regard::bench
