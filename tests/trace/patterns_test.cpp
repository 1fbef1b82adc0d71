// Heads that were built to show one pattern, and a plain version of every score.
#include "regard/patterns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "regard/error.h"
#include "regard/trace.h"

namespace regard {
namespace {

// One head of n tokens: `strength` on the key that `target` names (-1: none),
// the rest spread evenly over all visible keys.
template <class F>
Tensor<float> head_of(Index n, double strength, F target, bool causal = false) {
  Tensor<float> weights({1, n, n});
  for (Index query = 0; query < n; ++query) {
    const Index seen = causal ? query + 1 : n, key = target(query);
    const double on_target = key < 0 || key >= seen ? 0 : strength;
    for (Index k = 0; k < seen; ++k)
      weights[query * n + k] = static_cast<float>((1 - on_target) / static_cast<double>(seen) + (k == key) * on_target);
  }
  return weights;
}

PatternSetting square(Index n, bool causal = false) {
  PatternSetting setting{.q_len = n, .kv_len = n};
  if (causal)
    setting.visible = [n](Index query, std::uint8_t* visible) {
      for (Index key = 0; key < n; ++key) visible[key] = key <= query;
    };
  return setting;
}

HeadPattern named(const Tensor<float>& weights, const PatternSetting& setting, const PatternOptions& options = {}) {
  return name_patterns(observe_matrix(weights, setting, options.window), setting, options).at(0);
}

TEST(Patterns, heads_built_for_a_token_nearby_are_named_with_the_share_they_were_given) {
  struct Built {
    Pattern pattern;
    Index offset;
  };
  for (const Built& built : {Built{Pattern::previous, 1}, {Pattern::self, 0}, {Pattern::next, -1}}) {
    const Index n = 10;
    const HeadPattern head = named(head_of(n, 0.8, [&](Index query) { return query - built.offset; }), square(n));
    EXPECT_EQ(head.label, built.pattern);
    // 0.8 and an even share of the rest, from every query that has such a key.
    EXPECT_NEAR(head.of(built.pattern).score, 0.8 + 0.2 / n, 1e-6);
    EXPECT_NEAR(head.of(built.pattern).uniform, 0.1, 1e-12);
    EXPECT_NEAR(head.of(built.pattern).excess(), 0.8, 1e-6);
    EXPECT_DOUBLE_EQ(head.label_score(), head.of(built.pattern).score);
  }
}

TEST(Patterns, a_query_without_a_choice_counts_nothing) {
  // Causal: query 0 sees itself only. All on the first key; then all on itself.
  const Index n = 5;
  const double uniform = (1 / 2. + 1 / 3. + 1 / 4. + 1 / 5.) / 4;
  const HeadPattern sink = named(head_of(
                                     n, 1, [](Index) { return 0; }, true),
                                 square(n, true));
  EXPECT_EQ(sink.label, Pattern::first);
  EXPECT_NEAR(sink.of(Pattern::first).score, 1, 1e-6);
  EXPECT_NEAR(sink.of(Pattern::first).uniform, uniform, 1e-12);
  // Query 1 alone has the first key right before it.
  EXPECT_NEAR(sink.of(Pattern::previous).score, 0.25, 1e-6);
  EXPECT_NEAR(sink.of(Pattern::self).score, 0, 1e-6);
  EXPECT_NEAR(sink.distance, (1 + 2 + 3 + 4) / 4., 1e-6);
  EXPECT_TRUE(std::isnan(sink.of(Pattern::next).score)) << "no query sees the next token";
  const HeadPattern own = named(head_of(
                                    n, 1, [](Index query) { return query; }, true),
                                square(n, true));
  EXPECT_EQ(own.label, Pattern::self);
  EXPECT_NEAR(own.of(Pattern::self).score, 1, 1e-6);
  EXPECT_NEAR(own.of(Pattern::first).score, 0, 1e-6);
  EXPECT_NEAR(own.of(Pattern::broad).score, 0, 1e-6);
}

TEST(Patterns, one_key_for_all_is_vertical_and_a_separator_where_it_parts) {
  const Tensor<float> weights = head_of(9, 0.7, [](Index) { return 4; });
  PatternSetting setting = square(9);
  const HeadPattern vertical = named(weights, setting);
  EXPECT_EQ(vertical.label, Pattern::vertical);
  EXPECT_EQ(vertical.vertical_key, 4);
  EXPECT_NEAR(vertical.of(Pattern::vertical).score, 0.7 + 0.3 / 9, 1e-6);
  EXPECT_TRUE(std::isnan(vertical.of(Pattern::separator).score));
  setting.separators = {4};
  const HeadPattern separator = named(weights, setting);
  EXPECT_EQ(separator.label, Pattern::separator);
  EXPECT_NEAR(separator.of(Pattern::separator).score, 0.7 + 0.3 / 9, 1e-6);
}

TEST(Patterns, weight_around_the_diagonal_is_local) {
  // A third each on two back, self and two ahead, where they are.
  const Index n = 30;
  Tensor<float> weights({1, n, n});
  for (Index query = 0; query < n; ++query) {
    float keys = 0;
    for (Index key : {query - 2, query, query + 2}) keys += key >= 0 && key < n;
    for (Index key : {query - 2, query, query + 2})
      if (key >= 0 && key < n) weights[query * n + key] = 1 / keys;
  }
  const HeadPattern head = named(weights, square(n));
  EXPECT_EQ(head.label, Pattern::local);
  EXPECT_NEAR(head.of(Pattern::local).score, 1, 1e-6);
  // 26 queries give 2/3 at distance 2; the four at the ends give half.
  EXPECT_NEAR(head.distance, (26 * 4 / 3. + 4 * 1) / 30, 1e-6);
  EXPECT_NEAR(head.uniform_distance, (30. * 30 - 1) / (3 * 30), 1e-9);  // mean of |i - j|
}

TEST(Patterns, what_most_queries_cannot_avoid_is_undefined) {
  // Four tokens, causal: only the last sees a key more than two back.
  const HeadPattern four = named(head_of(
                                     4, 1, [](Index query) { return query - 1; }, true),
                                 square(4, true));
  EXPECT_TRUE(std::isnan(four.of(Pattern::local).score));
  EXPECT_EQ(four.label, Pattern::previous);
  // Of six, three of five do.
  const HeadPattern six = named(head_of(
                                    6, 1, [](Index query) { return query - 1; }, true),
                                square(6, true));
  EXPECT_NEAR(six.of(Pattern::local).score, 1, 1e-6);
}

TEST(Patterns, even_attention_within_segments_is_block_and_over_everything_broad) {
  const Index n = 16;
  Tensor<float> blocks({1, n, n});
  for (Index query = 0; query < n; ++query)
    for (Index key = 0; key < n; ++key) blocks[query * n + key] = query / 8 == key / 8 ? 0.125f : 0.0f;
  PatternSetting setting = square(n);
  EXPECT_TRUE(std::isnan(named(blocks, setting).of(Pattern::block).score)) << "there are no segments";
  setting.q_bounds = setting.kv_bounds = {0, 8, 16};
  const HeadPattern block = named(blocks, setting);
  EXPECT_EQ(block.label, Pattern::block);
  EXPECT_NEAR(block.of(Pattern::block).score, 1, 1e-6);
  EXPECT_NEAR(block.of(Pattern::block).uniform, 0.5, 1e-12);
  EXPECT_NEAR(block.of(Pattern::broad).score, std::log(8) / std::log(16), 1e-6);
  const HeadPattern broad = named(head_of(n, 0, [](Index) { return -1; }), setting);
  EXPECT_EQ(broad.label, Pattern::broad);
  EXPECT_NEAR(broad.of(Pattern::broad).score, 1, 1e-6);
  for (Pattern pattern : {Pattern::previous, Pattern::first, Pattern::local, Pattern::block, Pattern::vertical})
    EXPECT_NEAR(broad.of(pattern).excess(), 0, 1e-6) << pattern_name(pattern);
}

TEST(Patterns, heads_that_follow_no_position_are_heterogeneous) {
  const HeadPattern head = named(head_of(16, 1, [](Index query) { return (query + 8) % 16; }), square(16));
  EXPECT_EQ(head.label, Pattern::heterogeneous);
  EXPECT_NEAR(head.label_score(), 0, 1e-6) << "the score of broad: one key a row";
  EXPECT_NEAR(head.distance, 8, 1e-6);
}

// Every score from its definition, pair by pair.
double plain(Pattern pattern, const std::vector<double>& w, const PatternSetting& s, Index window, Index vertical) {
  double mass = 0, rows = 0;
  for (Index i = 0; i < s.q_len; ++i) {
    std::vector<std::uint8_t> visible(static_cast<std::size_t>(s.kv_len), 1);
    if (s.visible) s.visible(i, visible.data());
    Index seen = 0, hits = 0;
    double row = 0, entropy = 0;
    for (Index j = 0; j < s.kv_len; ++j) {
      if (!visible[static_cast<std::size_t>(j)]) continue;
      ++seen;
      const double weight = w[static_cast<std::size_t>(i * s.kv_len + j)];
      const Index at = s.q_start + i;
      const auto in = [&](const std::vector<Index>& bounds, Index x) {
        std::size_t segment = 0;
        while (bounds[segment + 1] <= x) ++segment;
        return segment;
      };
      bool hit = false;
      switch (pattern) {
        case Pattern::previous: hit = j == at - 1; break;
        case Pattern::self: hit = j == at; break;
        case Pattern::next: hit = j == at + 1; break;
        case Pattern::first: hit = j == 0; break;
        case Pattern::separator: hit = std::count(s.separators.begin(), s.separators.end(), j) > 0; break;
        case Pattern::vertical: hit = j == vertical; break;
        case Pattern::local: hit = j >= at - window && j <= at + window; break;
        case Pattern::block: hit = in(s.q_bounds, i) == in(s.kv_bounds, j); break;
        default: hit = true;
      }
      hits += hit;
      row += hit * weight;
      if (weight > 0) entropy -= weight * std::log(weight);
    }
    if (seen < 2 || (hits == 0 && pattern != Pattern::vertical)) continue;
    mass += pattern == Pattern::broad ? entropy / std::log(static_cast<double>(seen)) : row;
    rows += 1;
  }
  return mass / rows;
}

TEST(Patterns, every_score_is_what_its_definition_gives_on_random_heads) {
  std::mt19937 random(7);
  std::exponential_distribution<double> draw(1);
  // Random masks with empty and single rows, queries in the middle of the keys.
  PatternSetting s{.q_len = 23, .kv_len = 31, .q_start = 5};
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(s.q_len * s.kv_len));
  for (auto& bit : mask) bit = random() % 3 > 0;
  for (Index j = 0; j < s.kv_len; ++j) mask[static_cast<std::size_t>(3 * s.kv_len + j)] = 0;
  for (Index j = 0; j < s.kv_len; ++j) mask[static_cast<std::size_t>(7 * s.kv_len + j)] = j == 12;
  s.visible = [&](Index query, std::uint8_t* visible) {
    std::copy_n(mask.begin() + query * s.kv_len, s.kv_len, visible);
  };
  s.separators = {4, 12, 13, 30};
  s.q_bounds = {0, 9, 9, 23};
  s.kv_bounds = {0, 5, 14, 31};
  std::vector<double> w(mask.size());
  Tensor<float> weights({1, s.q_len, s.kv_len});
  for (Index i = 0; i < s.q_len; ++i) {
    double sum = 0;
    for (Index j = 0; j < s.kv_len; ++j) {
      const auto at = static_cast<std::size_t>(i * s.kv_len + j);
      w[at] = mask[at] ? draw(random) : 0;
      sum += w[at];
    }
    for (Index j = 0; j < s.kv_len && sum > 0; ++j) w[static_cast<std::size_t>(i * s.kv_len + j)] /= sum;
  }
  for (std::size_t i = 0; i < w.size(); ++i) weights[static_cast<Index>(i)] = static_cast<float>(w[i]);
  const HeadPattern head = named(weights, s, {.window = 3});
  std::vector<double> even(w.size());
  for (Index i = 0; i < s.q_len; ++i) {
    double seen = 0;
    for (Index j = 0; j < s.kv_len; ++j) seen += mask[static_cast<std::size_t>(i * s.kv_len + j)];
    for (Index j = 0; j < s.kv_len; ++j) {
      const auto at = static_cast<std::size_t>(i * s.kv_len + j);
      even[at] = mask[at] ? 1 / seen : 0;
    }
  }
  for (std::size_t p = 0; p < scored_patterns; ++p) {
    const auto pattern = static_cast<Pattern>(p);
    EXPECT_NEAR(head.scores[p].score, plain(pattern, w, s, 3, head.vertical_key), 1e-5) << pattern_name(pattern);
    EXPECT_NEAR(head.scores[p].uniform, plain(pattern, even, s, 3, head.vertical_key), 1e-9) << pattern_name(pattern);
  }
}

TEST(Patterns, separators_are_ends_punctuation_and_spaces_and_part_segments) {
  EXPECT_EQ(separators({"Life", "is", ",", "[SEP]", "it's", "'", "▁", "...", "▁a", "</s>", "。", "(", "\n"}),
            (std::vector<Index>{2, 3, 6, 7, 9, 10, 12}));
  EXPECT_EQ(segment_bounds({2, 3, 6}, 9), (std::vector<Index>{0, 4, 7, 9}));
  EXPECT_EQ(segment_bounds({8}, 9), (std::vector<Index>{0, 9})) << "the end parts nothing";
  EXPECT_EQ(segment_bounds({}, 9), (std::vector<Index>{0, 9}));
}

TEST(Patterns, observations_that_do_not_fit_the_setting_are_refused) {
  const PatternSetting setting = square(4);
  HeadObservations seen = observe_matrix(Tensor<float>({2, 4, 4}), setting, 2);
  EXPECT_THROW(observe_matrix(Tensor<float>({2, 4, 5}), setting, 2), ArgumentError);
  try {
    observe_matrix(Tensor<float>({1, 2, 4, 4}), setting, 2);
    FAIL() << "a batch was taken";
  } catch (const ArgumentError& error) {
    EXPECT_STREQ(error.what(), "patterns: weights are [1,2,4,4], need [heads,4,4]");
  }
  EXPECT_THROW(name_patterns(seen, setting, {.window = 1}), ArgumentError);
  seen.distance = Tensor<float>({2, 3});
  EXPECT_THROW(name_patterns(seen, setting), ArgumentError);
  PatternSetting beyond = setting;
  beyond.separators = {4};
  EXPECT_THROW(observe_matrix(Tensor<float>({2, 4, 4}), beyond, 2), ArgumentError);
}

TEST(Patterns, a_trace_without_weights_and_patterns_says_so) {
  Trace trace;
  trace.source = {"a", "b"};
  trace.maps.push_back({});
  EXPECT_THROW(pattern_grid(trace, AttentionKind::encoder), ArgumentError);
  EXPECT_THROW(pattern_grid(trace, AttentionKind::cross), ArgumentError);
  trace.maps[0].weights = Tensor<float>({1, 2, 2}, 0.5f);
  EXPECT_EQ(pattern_grid(trace, AttentionKind::encoder).layers.at(0).heads.at(0).label, Pattern::broad);
}

}  // namespace
}  // namespace regard
