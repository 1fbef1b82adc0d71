#include "regard/decoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regard/error.h"

namespace regard {
namespace {

using Symbols = std::vector<std::string>;
using Sources = std::vector<std::vector<std::int64_t>>;

// Untrained networks with large weights: answers that differ from source to
// source.
std::unique_ptr<Seq2Seq<float>> network(std::uint64_t seed = 1) {
  Seq2SeqConfig config;
  config.layer = {.model_dim = 16, .heads = 2, .hidden = 16};
  config.encoder_layers = config.decoder_layers = 1;
  config.max_length = 12;
  auto model = std::make_unique<Seq2Seq<float>>(config, 9, 8, seed);
  for (auto* parameter : model->parameters())
    if (parameter->decays)
      for (float& value : parameter->value.values()) value *= 1.5f;
  return model;
}

// log p of a whole answer, from one uncached pass.
double log_probability(Seq2Seq<float>& model, const std::vector<std::int64_t>& source,
                       std::vector<std::int64_t> answer) {
  std::vector<std::int64_t> input{Vocabulary::begin};
  input.insert(input.end(), answer.begin(), answer.end());
  answer.push_back(Vocabulary::end);
  Tape<float> tape;
  const auto ids = padded_ids({source});
  const auto logits = model.decode(tape, model.encode(tape, ids), ids, padded_ids({input}))->value;
  double total = 0;
  for (std::size_t t = 0; t < answer.size(); ++t) {
    double sum = 0;
    for (Index c = 0; c < 8; ++c) sum += std::exp(static_cast<double>(logits[static_cast<Index>(t) * 8 + c]));
    total += static_cast<double>(logits[static_cast<Index>(t) * 8 + answer[t]]) - std::log(sum);
  }
  return total;
}

TEST(Decode, reports_the_probability_that_an_uncached_pass_gives) {
  const auto model = network();
  for (Index beam : {1, 4}) {
    const auto answers = decode(*model, Sources{{4, 5, 6}, {7}}, {.beam = beam, .max_symbols = 8});
    for (std::size_t i = 0; i < 2; ++i)
      if (answers[i].symbols.size() < 8) {  // ended by itself
        EXPECT_NEAR(answers[i].log_probability, log_probability(*model, Sources{{4, 5, 6}, {7}}[i], answers[i].symbols),
                    1e-4);
      }
  }
}

TEST(Decode, answers_do_not_depend_on_the_company) {
  const auto model = network();
  const Sources sources{{4, 5, 6, 7, 8}, {7}, {8, 8, 4}, {5, 6}};
  for (Index beam : {1, 3}) {
    const auto together = decode(*model, sources, {.beam = beam});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto alone = decode(*model, {sources[i]}, {.beam = beam});
      EXPECT_EQ(alone[0].symbols, together[i].symbols);
      EXPECT_NEAR(alone[0].log_probability, together[i].log_probability, 1e-4);
    }
  }
}

// With at most two symbols of four possible ones there are 1 + 4 answers that
// end in time; a beam wider than all of them must find the best.
TEST(Decode, a_wide_beam_finds_the_best_of_all_answers) {
  for (std::uint64_t seed : {1, 2, 3, 4}) {
    const auto model = network(seed);
    const std::vector<std::int64_t> source{4, 6};
    double best = log_probability(*model, source, {});
    std::vector<std::int64_t> right;
    for (std::int64_t symbol = 4; symbol < 8; ++symbol) {
      const double log_p = log_probability(*model, source, {symbol}) / 2;
      if (log_p > best) {
        best = log_p;
        right = {symbol};
      }
    }
    const auto found = decode(*model, {source}, {.beam = 40, .max_symbols = 2});
    EXPECT_EQ(found[0].symbols, right) << "seed " << seed;
  }
}

TEST(Decode, never_answers_with_specials_nor_beyond_the_limit) {
  const auto model = network(7);
  for (Index beam : {1, 5})
    for (const auto& answer : decode(*model, Sources{{4}, {5, 5}, {8, 7, 6}}, {.beam = beam, .max_symbols = 4})) {
      EXPECT_LE(answer.symbols.size(), 4u);
      for (std::int64_t symbol : answer.symbols) EXPECT_GE(symbol, 4);
    }
}

// What ends within eight symbols is whole; with room for no more than its symbols
// the same answer lacks its end.
TEST(Decode, says_whether_the_end_came_within_the_limit) {
  int whole = 0, cut = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto model = network(seed);
    for (std::int64_t symbol = 4; symbol < 9; ++symbol) {
      const auto answer = decode(*model, {{symbol}}, {.max_symbols = 8})[0];
      EXPECT_EQ(answer.truncated, answer.symbols.size() == 8);
      cut += answer.truncated;
      if (answer.truncated || answer.symbols.empty()) continue;
      ++whole;
      const auto shorter = decode(*model, {{symbol}}, {.max_symbols = static_cast<Index>(answer.symbols.size())})[0];
      EXPECT_TRUE(shorter.truncated);
      EXPECT_EQ(shorter.symbols, answer.symbols);
    }
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(cut, 0);
}

TEST(Decode, refuses_an_empty_source_and_a_beam_of_none) {
  const auto model = network();
  EXPECT_THROW(decode(*model, Sources{{4}, {}}), ArgumentError);
  EXPECT_THROW(decode(*model, Sources{{4}}, {.beam = 0}), ArgumentError);
  EXPECT_TRUE(decode(*model, {}).empty());
}

TEST(Decode, refuses_logits_that_are_not_finite) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const Index beam : {1, 4}) {
      const auto model = network();
      for (auto* parameter : model->parameters())
        if (parameter->name == "decoder.norm.bias") parameter->value[3] = value;
      try {
        decode(*model, Sources{{4, 5, 6}, {7}}, {.beam = beam});
        FAIL() << value;
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "decode: the model's logits are not finite: its weights are damaged or its training diverged");
      }
    }
}

TEST(EditDistance, has_its_known_values) {
  const auto distance = [](const std::string& a, const std::string& b) {
    return edit_distance(characters(a), characters(b));
  };
  EXPECT_EQ(distance("kitten", "sitting"), 3);
  EXPECT_EQ(distance("intention", "execution"), 5);
  EXPECT_EQ(distance("", "abc"), 3);
  EXPECT_EQ(distance("abc", ""), 3);
  EXPECT_EQ(distance("abc", "abc"), 0);
}

TEST(CountErrors, the_nearest_reference_counts_and_any_equal_one_is_right) {
  ErrorCounts counts;
  count_errors({"A", "B"}, {{"A", "B", "C", "D"}, {"A", "B"}}, counts);
  EXPECT_EQ(counts.wrong_sequences, 0);
  EXPECT_EQ(counts.symbols, 2);
  count_errors({"A", "B"}, {{"X", "Y", "Z"}, {"A", "C", "D"}}, counts);
  EXPECT_EQ(counts.sequences, 2);
  EXPECT_EQ(counts.wrong_sequences, 1);
  EXPECT_EQ(counts.symbols, 5);
  EXPECT_EQ(counts.symbol_errors, 2);
  EXPECT_DOUBLE_EQ(counts.symbol_error_rate(), 0.4);
  EXPECT_DOUBLE_EQ(counts.sequence_error_rate(), 0.5);
}

TEST(CountErrors, of_equally_near_references_the_shorter_one_counts) {
  for (const auto& references : {std::vector<Symbols>{{"A"}, {"A", "B", "C"}}, {{"A", "B", "C"}, {"A"}}}) {
    ErrorCounts counts;
    count_errors({"A", "B"}, references, counts);
    EXPECT_EQ(counts.symbols, 1);
    EXPECT_EQ(counts.symbol_errors, 1);
  }
}

}  // namespace
}  // namespace regard
