// From a model to output symbols: greedy and beam search with caches, and error
// rates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/seq2seq.h"

namespace regard {

struct Hypothesis {
  std::vector<std::int64_t> symbols;  // without begin and end
  double log_probability = 0;         // of the symbols and, where it came, the end
  bool truncated = false;             // at the most symbols there may be: the end did not come
};

struct DecodingOptions {
  Index beam = 1;               // 1: greedy
  double length_penalty = 1.0;  // hypotheses compare by log p / length^penalty
  Index max_symbols = 0;        // 0: 3 x source length + 10; always within the model's max_length
};

// One answer a source, in order. sources hold ids without begin and end; empty
// ones are refused with ArgumentError. Answers do not depend on what else is in
// the batch. Throws Error when the model's logits are not finite.
std::vector<Hypothesis> decode(Seq2Seq<float>& model, const std::vector<std::vector<std::int64_t>>& sources,
                               const DecodingOptions& options = {});
// The same for pictures, [patches, patch size] each.
std::vector<Hypothesis> decode_pictures(Seq2Seq<float>& model, const std::vector<const Tensor<float>*>& pictures,
                                        const DecodingOptions& options = {});

// Levenshtein distance: insertions, deletions and substitutions cost 1.
Index edit_distance(const std::vector<std::string>& a, const std::vector<std::string>& b);

struct ErrorCounts {
  Index sequences = 0, wrong_sequences = 0;
  Index symbols = 0, symbol_errors = 0;  // against the nearest reference, the shorter of equals
  double sequence_error_rate() const { return sequences ? static_cast<double>(wrong_sequences) / sequences : 0; }
  double symbol_error_rate() const { return symbols ? static_cast<double>(symbol_errors) / symbols : 0; }
};

// Counts one answer against all that is right for it.
void count_errors(const std::vector<std::string>& answer, const std::vector<std::vector<std::string>>& references,
                  ErrorCounts& counts);

}  // namespace regard
