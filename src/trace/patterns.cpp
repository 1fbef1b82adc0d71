#include "regard/patterns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "regard/error.h"

namespace regard {
namespace {

constexpr double undefined = std::numeric_limits<double>::quiet_NaN();

struct PatternWords {
  const char *name, *short_name, *meaning;
};
constexpr PatternWords words[] = {
    {"previous", "prev", "weight on the position before the query's own"},
    {"self", "self", "weight on the query's own position"},
    {"next", "next", "weight on the position after the query's own"},
    {"first", "first", "weight on the first key (a sink, where it says little)"},
    {"separator", "sep", "weight on separators: ends, punctuation, spaces"},
    {"vertical", "vert", "weight that one key gets from all queries"},
    {"local", "local", "weight within the window around the query's position"},
    {"block", "block", "weight within the query's own segment, between separators"},
    {"broad", "broad", "entropy over that of attending evenly"},
    {"heterogeneous", "mixed", "none of the others; the number is that of broad"},
};

const PatternWords& words_of(Pattern pattern) { return words[static_cast<std::size_t>(pattern)]; }

// A sum over the queries that count, for one pattern.
struct Tally {
  Index rows = 0;      // queries that see a key of the pattern
  Index choices = 0;   // of them, those that see other keys too
  double uniform = 0;  // what uniform attention would give, summed over them
};

// A query that sees one key only: what it gives there is taken off the sums.
struct Forced {
  Index query, key;
};

// All that the mask says, gathered query by query in memory linear in the lengths.
struct Ground {
  std::array<Tally, scored_patterns> tallies{};
  std::vector<double> key_uniform;  // [kv_len]
  std::vector<double> log_visible;  // [q_len], 0 for a query that does not count
  std::vector<Forced> forced;
  double rows = 0;  // queries that count
  double uniform_distance = 0;
};

Index segment_of(const std::vector<Index>& bounds, Index at) {
  return std::upper_bound(bounds.begin(), bounds.end(), at) - bounds.begin() - 1;
}

bool has_blocks(const PatternSetting& setting) {
  return setting.q_bounds.size() > 2 && setting.q_bounds.size() == setting.kv_bounds.size();
}

// Counts of visible keys, pattern by pattern, of one query.
using Counts = std::array<Index, scored_patterns>;

Index& count_of(Counts& counts, Pattern pattern) { return counts[static_cast<std::size_t>(pattern)]; }

class GroundSurvey {
 public:
  GroundSurvey(const PatternSetting& setting, Index window)
      : setting_(setting), window_(window), separates_(static_cast<std::size_t>(setting.kv_len), false) {
    for (Index key : setting.separators) separates_.at(static_cast<std::size_t>(key)) = true;
    ground_.key_uniform.assign(static_cast<std::size_t>(setting.kv_len), 0.0);
    ground_.log_visible.assign(static_cast<std::size_t>(setting.q_len), 0.0);
  }

  Ground run() {
    std::vector<std::uint8_t> visible(static_cast<std::size_t>(setting_.kv_len), 1);
    for (Index query = 0; query < setting_.q_len; ++query) {
      if (setting_.visible) setting_.visible(query, visible.data());
      add(query, visible);
    }
    return std::move(ground_);
  }

 private:
  void add(Index query, const std::vector<std::uint8_t>& visible) {
    const Index seen = std::count_if(visible.begin(), visible.end(), [](std::uint8_t v) { return v != 0; });
    if (seen == 0) return;
    if (seen == 1) {
      const auto only = std::find_if(visible.begin(), visible.end(), [](std::uint8_t v) { return v != 0; });
      ground_.forced.push_back({query, only - visible.begin()});
      return;
    }
    const Counts counts = count(query, visible, 1.0 / static_cast<double>(seen));
    ground_.rows += 1;
    ground_.log_visible[static_cast<std::size_t>(query)] = std::log(static_cast<double>(seen));
    for (std::size_t p = 0; p < scored_patterns; ++p) {
      ground_.tallies[p].rows += counts[p] > 0;
      ground_.tallies[p].choices += counts[p] > 0 && counts[p] < seen;
      ground_.tallies[p].uniform += static_cast<double>(counts[p]) / static_cast<double>(seen);
    }
  }

  Counts count(Index query, const std::vector<std::uint8_t>& visible, double share) {
    Counts counts{};
    const Index at = setting_.q_start + query;
    const bool blocks = has_blocks(setting_);
    const Index own = blocks ? segment_of(setting_.q_bounds, query) : 0;
    for (Index key = 0; key < setting_.kv_len; ++key) {
      if (!visible[static_cast<std::size_t>(key)]) continue;
      const Index offset = at - key;
      count_of(counts, Pattern::previous) += offset == 1;
      count_of(counts, Pattern::self) += offset == 0;
      count_of(counts, Pattern::next) += offset == -1;
      count_of(counts, Pattern::first) += key == 0;
      count_of(counts, Pattern::separator) += separates_[static_cast<std::size_t>(key)];
      count_of(counts, Pattern::local) += std::abs(offset) <= window_;
      count_of(counts, Pattern::block) += blocks && segment_of(setting_.kv_bounds, key) == own;
      ground_.key_uniform[static_cast<std::size_t>(key)] += share;
      ground_.uniform_distance += share * static_cast<double>(std::abs(offset));
    }
    return counts;
  }

  const PatternSetting& setting_;
  Index window_;
  std::vector<bool> separates_;
  Ground ground_;
};

// One head's sums with what forced queries gave taken off again.
class HeadSums {
 public:
  HeadSums(const HeadObservations& seen, const PatternSetting& setting, const Ground& ground, Index head)
      : seen_(seen), setting_(setting), ground_(ground), head_(head), mass_(ground.key_uniform.size()) {
    for (std::size_t key = 0; key < mass_.size(); ++key)
      mass_[key] = seen.key_mass[head * setting.kv_len + static_cast<Index>(key)];
    for (const Forced& forced : ground.forced) mass_[static_cast<std::size_t>(forced.key)] -= given(forced);
  }

  double key(Index key) const { return mass_[static_cast<std::size_t>(key)]; }
  double keys(const std::vector<Index>& keys) const {
    double sum = 0;
    for (Index key : keys) sum += this->key(key);
    return sum;
  }
  // Offsets from `first` to `last`, both included.
  double offsets(Index first, Index last) const {
    const Index count = seen_.diagonals.size(1), window = count / 2;
    double sum = 0;
    for (Index offset = first; offset <= last; ++offset) sum += seen_.diagonals[head_ * count + offset + window];
    for (const Forced& forced : ground_.forced) {
      const Index offset = setting_.q_start + forced.query - forced.key;
      if (offset >= first && offset <= last) sum -= given(forced);
    }
    return sum;
  }
  double own_segment() const {
    const Index segments = seen_.segment_sum.size(1);
    double sum = 0;
    for (Index s = 0; s < segments; ++s) sum += seen_.segment_sum[(head_ * segments + s) * segments + s];
    for (const Forced& forced : ground_.forced)
      if (segment_of(setting_.q_bounds, forced.query) == segment_of(setting_.kv_bounds, forced.key))
        sum -= given(forced);
    return sum;
  }
  // The key whose weight is farthest above its uniform share; the lower of equals.
  Index vertical() const {
    Index best = -1;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t key = 0; key < mass_.size(); ++key)
      if (const double above = mass_[key] - ground_.key_uniform[key]; above > most) {
        most = above;
        best = static_cast<Index>(key);
      }
    return best;
  }
  // Means over the queries that count.
  double mean_distance() const {
    return mean([](double distance, double) { return distance; }, seen_.distance);
  }
  double mean_breadth() const {
    return mean([](double entropy, double most) { return entropy / most; }, seen_.entropy);
  }

 private:
  double given(const Forced& forced) const { return seen_.top_weight[head_ * setting_.q_len + forced.query]; }

  template <class F>
  double mean(F of, const Tensor<float>& rows) const {
    double sum = 0;
    for (Index query = 0; query < setting_.q_len; ++query)
      if (const double most = ground_.log_visible[static_cast<std::size_t>(query)]; most > 0)
        sum += of(rows[head_ * setting_.q_len + query], most);
    return sum / ground_.rows;
  }

  const HeadObservations& seen_;
  const PatternSetting& setting_;
  const Ground& ground_;
  Index head_;
  std::vector<double> mass_;  // [kv_len]
};

Pattern label_of(const HeadPattern& head, const PatternOptions& options) {
  Pattern nearest = Pattern::previous;  // of the three that exclude each other
  for (Pattern pattern : {Pattern::self, Pattern::next})
    if (head.of(pattern).excess() > head.of(nearest).excess() || std::isnan(head.of(nearest).excess()))
      nearest = pattern;
  for (Pattern pattern :
       {nearest, Pattern::first, Pattern::separator, Pattern::vertical, Pattern::local, Pattern::block})
    if (head.of(pattern).excess() >= options.threshold) return pattern;
  return head.of(Pattern::broad).score >= options.broad_threshold ? Pattern::broad : Pattern::heterogeneous;
}

HeadPattern name_head(const HeadSums& sums, const PatternSetting& setting, const Ground& ground,
                      const PatternOptions& options) {
  HeadPattern head;
  head.scores.fill({undefined, undefined});
  if (ground.rows == 0) return head;
  const auto put = [&](Pattern pattern, double sum, double uniform, double rows) {
    head.scores[static_cast<std::size_t>(pattern)] = {sum / rows, uniform / rows};
  };
  const auto tally = [&](Pattern pattern, double sum) {
    const Tally& of = ground.tallies[static_cast<std::size_t>(pattern)];
    if (of.rows > 0 && 2 * of.choices >= of.rows) put(pattern, sum, of.uniform, static_cast<double>(of.rows));
  };
  tally(Pattern::previous, sums.offsets(1, 1));
  tally(Pattern::self, sums.offsets(0, 0));
  tally(Pattern::next, sums.offsets(-1, -1));
  tally(Pattern::first, sums.key(0));
  tally(Pattern::separator, sums.keys(setting.separators));
  tally(Pattern::local, sums.offsets(-options.window, options.window));
  if (has_blocks(setting)) tally(Pattern::block, sums.own_segment());
  head.vertical_key = sums.vertical();
  if (head.vertical_key >= 0)
    put(Pattern::vertical, sums.key(head.vertical_key), ground.key_uniform[static_cast<std::size_t>(head.vertical_key)],
        ground.rows);
  put(Pattern::broad, sums.mean_breadth() * ground.rows, ground.rows, ground.rows);
  head.distance = sums.mean_distance();
  head.uniform_distance = ground.uniform_distance / ground.rows;
  head.label = label_of(head, options);
  return head;
}

void check_shape(const char* name, const Tensor<float>& got, const Shape& wanted) {
  if (got.shape() != wanted)
    throw ArgumentError(std::string("patterns: ") + name + " is " + got.text() + ", need " + shape_text(wanted));
}

void check_setting(const PatternSetting& setting) {
  for (Index key : setting.separators)
    if (key < 0 || key >= setting.kv_len)
      throw ArgumentError("patterns: separator " + std::to_string(key) + " is none of the " +
                          std::to_string(setting.kv_len) + " keys");
}

void check(const HeadObservations& seen, const PatternSetting& setting, const PatternOptions& options) {
  if (options.window < 1)
    throw ArgumentError("patterns: the window must be at least 1, got " + std::to_string(options.window));
  check_setting(setting);
  const Index heads = seen.key_mass.rank() == 2 ? seen.key_mass.size(0) : 0;
  check_shape("key_mass", seen.key_mass, {heads, setting.kv_len});
  check_shape("diagonals", seen.diagonals, {heads, 2 * options.window + 1});
  for (const auto& [name, rows] :
       {std::pair{"distance", &seen.distance}, {"entropy", &seen.entropy}, {"top_weight", &seen.top_weight}})
    check_shape(name, *rows, {heads, setting.q_len});
  const auto segments = static_cast<Index>(setting.q_bounds.size()) - 1;
  if (has_blocks(setting)) check_shape("segment_sum", seen.segment_sum, {heads, segments, segments});
}

// Runs of one of these alone, or several of them.
bool parts(std::string_view label) {
  constexpr std::string_view marks[] = {".", ",", ";", ":",  "!",  "?",  "-",  "/",  "|",  " ",  "\t", "\n", "\r",
                                        "—", "–", "…", "。", "，", "、", "；", "：", "！", "？", "▁",  "Ġ",  "Ċ"};
  while (!label.empty()) {
    const auto found = std::find_if(std::begin(marks), std::end(marks),
                                    [&](std::string_view mark) { return label.starts_with(mark); });
    if (found == std::end(marks)) return false;
    label.remove_prefix(found->size());
  }
  return true;
}

}  // namespace

const char* pattern_name(Pattern pattern) { return words_of(pattern).name; }
const char* pattern_short_name(Pattern pattern) { return words_of(pattern).short_name; }
const char* pattern_meaning(Pattern pattern) { return words_of(pattern).meaning; }

double PatternScore::excess() const { return uniform >= 1 ? undefined : (score - uniform) / (1 - uniform); }

HeadObservations observe_matrix(const Tensor<float>& weights, const PatternSetting& setting, Index window) {
  const Index q_len = setting.q_len, kv_len = setting.kv_len;
  if (weights.rank() != 3 || weights.size(1) != q_len || weights.size(2) != kv_len)
    throw ArgumentError("patterns: weights are " + weights.text() + ", need [heads," + std::to_string(q_len) + "," +
                        std::to_string(kv_len) + "]");
  const Index heads = weights.size(0);
  check_setting(setting);
  const Index span = 2 * window + 1;
  HeadObservations seen{Tensor<float>({heads, span}),  Tensor<float>({heads, kv_len}), Tensor<float>({heads, q_len}),
                        Tensor<float>({heads, q_len}), Tensor<float>({heads, q_len}),  {}};
  const bool blocks = has_blocks(setting);
  const Index segments = blocks ? static_cast<Index>(setting.q_bounds.size()) - 1 : 0;
  if (blocks) seen.segment_sum = Tensor<float>({heads, segments, segments});
  for (Index row = 0; row < heads * q_len; ++row)
    for (Index head = row / q_len, key = 0; key < kv_len; ++key) {
      const Index query = row % q_len, offset = setting.q_start + query - key;
      const float weight = weights[row * kv_len + key];
      if (std::abs(offset) <= window) seen.diagonals[head * span + offset + window] += weight;
      seen.key_mass[head * kv_len + key] += weight;
      seen.distance[row] += weight * static_cast<float>(std::abs(offset));
      if (weight > 0) seen.entropy[row] -= weight * std::log(weight);
      seen.top_weight[row] = std::max(seen.top_weight[row], weight);
      if (blocks)
        seen.segment_sum[(head * segments + segment_of(setting.q_bounds, query)) * segments +
                         segment_of(setting.kv_bounds, key)] += weight;
    }
  return seen;
}

std::vector<HeadPattern> name_patterns(const HeadObservations& seen, const PatternSetting& setting,
                                       const PatternOptions& options) {
  check(seen, setting, options);
  const Ground ground = GroundSurvey(setting, options.window).run();
  std::vector<HeadPattern> heads;
  for (Index head = 0; head < seen.key_mass.size(0); ++head)
    heads.push_back(name_head(HeadSums(seen, setting, ground, head), setting, ground, options));
  return heads;
}

std::vector<Index> separators(const std::vector<std::string>& labels) {
  constexpr std::string_view ends[] = {"[SEP]", "</s>", "<eos>", "<sep>", "<|endoftext|>", "<|im_end|>", "[EOS]"};
  std::vector<Index> found;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& label = labels[i];
    if (label.empty()) continue;
    if (std::find(std::begin(ends), std::end(ends), label) != std::end(ends) || parts(label))
      found.push_back(static_cast<Index>(i));
  }
  return found;
}

std::vector<Index> segment_bounds(const std::vector<Index>& separators, Index length) {
  std::vector<Index> bounds{0};
  for (std::size_t i = 0; i < separators.size(); ++i) {
    const Index after = separators[i] + 1;
    const bool run_ends = i + 1 == separators.size() || separators[i + 1] != after;
    if (run_ends && after < length) bounds.push_back(after);
  }
  bounds.push_back(length);
  return bounds;
}

}  // namespace regard
