// What a head's attention looks like, named from numbers: previous token, self,
// next token, first token (sink), separators, one key (vertical), local, block,
// broad. The numbers are sums that observers keep in the pass (observe.h), linear
// in the lengths; no matrix is needed.
//
// Sources of the kinds: Clark et al., "What does BERT look at?", 2019; Kovaleva et
// al., "Revealing the dark secrets of BERT", 2019. The thresholds are ours.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard {

// In the order in which they are tried: a head that looks at the previous token
// is local too, and bears the narrower name.
enum class Pattern { previous, self, next, first, separator, vertical, local, block, broad, heterogeneous };
constexpr std::size_t scored_patterns = 9;  // all but heterogeneous, which is what none of them names

// "previous"; "prev", at most 5 characters; one line that says what is counted.
const char* pattern_name(Pattern pattern);
const char* pattern_short_name(Pattern pattern);
const char* pattern_meaning(Pattern pattern);

// A share of the attention, and the share it would be if every query attended
// evenly to all that it may see. NaN where the pattern can't occur.
struct PatternScore {
  double score;
  double uniform;
  // How far the score is from uniform (0) towards all of the attention (1), as
  // Cohen's kappa corrects for chance; below 0 for less than uniform. NaN where
  // uniform attention already is the pattern.
  double excess() const;
};

struct HeadPattern {
  Pattern label = Pattern::heterogeneous;
  std::array<PatternScore, scored_patterns> scores;
  double distance = 0;          // mean |query position - key| under the attention, in positions
  double uniform_distance = 0;  // the same under uniform attention
  Index vertical_key = -1;      // the key that the vertical score is about

  const PatternScore& of(Pattern pattern) const { return scores[static_cast<std::size_t>(pattern)]; }
  // What is printed beside the label: its score; for heterogeneous, that of broad.
  double label_score() const { return of(label == Pattern::heterogeneous ? Pattern::broad : label).score; }
};

struct PatternOptions {
  Index window = 2;              // local: at most so many positions away, on either side
  double threshold = 0.5;        // of the excess that a label takes
  double broad_threshold = 0.9;  // of entropy / log(visible keys)
  bool operator==(const PatternOptions&) const = default;
};

// One layer's map, apart from its weights.
struct PatternSetting {
  Index q_len = 0, kv_len = 0;
  Index q_start = 0;  // where query 0 stands among the keys
  // Writes 1 for every key (of kv_len) that a query may see, else 0. Empty: all.
  std::function<void(Index query, std::uint8_t* visible)> visible = {};
  std::vector<Index> separators = {};  // keys
  // Segments, as in SegmentBounds; blocks need as many of queries as of keys, and two at least.
  std::vector<Index> q_bounds = {}, kv_bounds = {};
};

// What the scores are made of: the observers' results for one batch entry.
struct HeadObservations {
  Tensor<float> diagonals;    // [heads, 2 * window + 1], weight at offsets -window to window
  Tensor<float> key_mass;     // [heads, kv_len]
  Tensor<float> distance;     // [heads, q_len]
  Tensor<float> entropy;      // [heads, q_len], nats
  Tensor<float> top_weight;   // [heads, q_len], the largest weight of each query
  Tensor<float> segment_sum;  // [heads, q segments, key segments]; may be empty
};

// The same read off a whole matrix [heads, q_len, kv_len]. Throws ArgumentError
// for another shape than the setting's.
HeadObservations observe_matrix(const Tensor<float>& weights, const PatternSetting& setting, Index window);

// One entry a head. A query that sees one key has no choice and counts nothing; of the others, those count that see a
// key of the pattern. Where more than half of these see nothing else, the score is undefined: of four tokens, all are
// local. previous, self, next: weight at that offset. first: on key 0. separator: on all separators. vertical: on the
// one key with most weight above its uniform share. local: within `window`. block: within the query's own segment.
// broad: entropy / log(visible keys).
// Throws ArgumentError when observations and setting disagree.
std::vector<HeadPattern> name_patterns(const HeadObservations& seen, const PatternSetting& setting,
                                       const PatternOptions& options = {});

// Labels that end or part something: "[SEP]", "</s>" and their like, white space,
// and punctuation that parts words or sentences (not quotes, brackets and apostrophes).
std::vector<Index> separators(const std::vector<std::string>& labels);
// Segments that end with each run of separators, as bounds from 0 to `length`.
std::vector<Index> segment_bounds(const std::vector<Index>& separators, Index length);

}  // namespace regard
