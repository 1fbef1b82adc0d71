// Experiments against changes of the weights that must have the same effect.
#include "regard/experiments.h"

#include <cmath>
#include <numeric>

#include "explain/small_model.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing;

void expect_same(const Tensor<double>& a, const Tensor<double>& b, double tolerance = 1e-12) {
  ASSERT_EQ(a.shape(), b.shape());
  for (Index i = 0; i < a.count(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

// Prefix of a place's weights in the model: "decoder.1.cross".
std::string name_of(const AttentionPlace& place) {
  const std::string layer = "." + std::to_string(place.layer);
  if (place.kind == AttentionKind::encoder) return "encoder" + layer + ".self";
  return "decoder" + layer + (place.kind == AttentionKind::cross ? ".cross" : ".self");
}

std::vector<AttentionPlace> places() {
  std::vector<AttentionPlace> all;
  for (AttentionKind kind : {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross})
    for (Index layer = 0; layer < 2; ++layer) all.push_back({kind, layer});
  return all;
}

TEST(Experiments, batches_give_each_text_what_it_gets_alone) {
  const auto network = small_network();
  const auto texts = small_texts();
  const FixedAnswers<double> answers(*network, texts);
  const Tensor<double> p = answers.probabilities();
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const auto right = alone(*network, texts[t].source, texts[t].answer);
    for (std::size_t i = 0; i < right.size(); ++i)
      for (Index c = 0; c < small_vocabulary; ++c)
        EXPECT_NEAR(p[(static_cast<Index>(t) * p.size(1) + static_cast<Index>(i)) * small_vocabulary + c],
                    right[i][static_cast<std::size_t>(c)], 1e-12);
  }
}

// A head that gives a constant is a head whose rows of W_O are 0, with the
// constant through them in the bias.
TEST(Experiments, ablated_heads_equal_heads_taken_out_of_the_output_projection) {
  const auto network = small_network();
  const FixedAnswers<double> answers(*network, small_texts());
  for (const AttentionPlace& place : places())
    for (Index head = 0; head < small_heads; ++head)
      for (const std::vector<double>& value :
           {std::vector<double>(small_dim, 0.0), std::vector<double>{0.5, -1.0, 2.0, 0.25}}) {
        const Tensor<double> got = answers.probabilities({nullptr, set_head<double>(place, head, value)});
        const auto other = small_network();
        Tensor<double>& weight = weight_named(*other, name_of(place) + ".output.weight").value;
        Tensor<double>& bias = weight_named(*other, name_of(place) + ".output.bias").value;
        for (Index d = 0; d < small_dim; ++d)
          for (Index c = 0; c < small_width; ++c) {
            double& w = weight[(head * small_dim + d) * small_width + c];
            bias[c] += value[static_cast<std::size_t>(d)] * w;
            w = 0;
          }
        expect_same(got, FixedAnswers<double>(*other, small_texts()).probabilities());
      }
}

// Queries of zero attend evenly.
TEST(Experiments, uniform_weights_equal_queries_of_zero) {
  const auto network = small_network();
  const FixedAnswers<double> answers(*network, small_texts());
  for (const AttentionPlace& place : places()) {
    const Tensor<double> got = answers.probabilities(
        {nullptr, replace_weights<double>(
                      answers, [&](const AttentionPlace& at) { return at == place; }, uniform_weights())});
    const auto other = small_network();
    weight_named(*other, name_of(place) + ".query.weight").value.fill(0);
    weight_named(*other, name_of(place) + ".query.bias").value.fill(0);
    const FixedAnswers<double> even(*other, small_texts());
    const Tensor<double> right = even.probabilities();
    // Rows beyond a text's answer are padding and go their own ways.
    EXPECT_LT(answers.compare(got, right).mean_total_variation(), 1e-12) << name_of(place);
    EXPECT_GT(answers.compare(got, answers.probabilities()).mean_total_variation(), 1e-6) << name_of(place);
  }
}

TEST(Experiments, weights_left_as_they_are_change_nothing) {
  const auto network = small_network();
  const FixedAnswers<double> answers(*network, small_texts());
  const auto change = replace_weights<double>(
      answers, [](const AttentionPlace&) { return true; }, [](std::span<double>) {});
  EXPECT_LT(answers.compare(answers.probabilities(), answers.probabilities({nullptr, change})).total_variation, 1e-12);
}

// Values that are all alike make weights irrelevant, whatever they are.
TEST(Experiments, no_weights_matter_where_all_values_are_alike) {
  const auto network = small_network();
  for (const AttentionPlace& place : places()) {
    Tensor<double>& weight = weight_named(*network, name_of(place) + ".key_value.weight").value;
    for (Index row = 0; row < small_width; ++row)
      for (Index c = small_width; c < 2 * small_width; ++c) weight[row * 2 * small_width + c] = 0;
  }
  const FixedAnswers<double> answers(*network, small_texts());
  Random random(1);
  for (const WeightRule& rule : {uniform_weights(), permuted_weights(random), random_weights(random)}) {
    const auto change = replace_weights<double>(
        answers, [](const AttentionPlace&) { return true; }, rule);
    const OutputChange moved = answers.compare(answers.probabilities(), answers.probabilities({nullptr, change}));
    EXPECT_LT(moved.total_variation, 1e-12);
    EXPECT_EQ(moved.changed_symbols, 0);
    EXPECT_EQ(moved.symbols, 4 + 5 + 2);
    EXPECT_EQ(moved.texts, 3);
  }
}

TEST(Experiments, rules_permute_and_draw_rows_that_sum_to_one) {
  Random random(5);
  const std::vector<double> row{0.5, 0.3, 0.15, 0.05};
  std::vector<double> firsts;
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<double> weights = row;
    permuted_weights(random)(weights);
    firsts.push_back(weights[0]);
    std::sort(weights.begin(), weights.end(), std::greater<>());
    ASSERT_EQ(weights, row);
    random_weights(random)(weights);
    ASSERT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-12);
    ASSERT_GE(*std::min_element(weights.begin(), weights.end()), 0);
  }
  // Every value comes first a quarter of the time: 500 of 2000, standard deviation 19.4.
  for (double value : row) EXPECT_NEAR(std::count(firsts.begin(), firsts.end(), value), 500, 100);
}

TEST(Experiments, changes_are_counted_as_defined) {
  const auto network = small_network();
  const FixedAnswers<double> answers(*network, {{{4}, {5}}, {{5}, {}}});
  Tensor<double> before({2, 2, small_vocabulary}), after = before;
  const auto put = [](Tensor<double>& p, Index row, Index symbol, double value) {
    p[row * small_vocabulary + symbol] = value;
  };
  put(before, 0, 5, 0.7), put(before, 0, 6, 0.3);
  put(after, 0, 5, 0.4), put(after, 0, 6, 0.6);  // another symbol
  put(before, 1, 2, 1), put(after, 1, 2, 1);
  put(before, 2, 2, 0.4), put(before, 2, 4, 0.6);
  put(after, 2, 2, 0.1), put(after, 2, 4, 0.5), put(after, 2, 3, 0.4);
  put(after, 3, 4, 1);  // padding: the second text has one symbol, its end
  const OutputChange change = answers.compare(before, after);
  EXPECT_EQ(change.symbols, 3);
  EXPECT_EQ(change.changed_symbols, 1);
  EXPECT_EQ(change.texts, 2);
  EXPECT_EQ(change.changed_texts, 1);
  EXPECT_NEAR(change.total_variation, 0.3 + 0.4, 1e-12);
  EXPECT_NEAR(change.probability_drop, (0.7 - 0.4) + (0.4 - 0.1), 1e-12);
  EXPECT_NEAR(change.changed_symbol_share(), 1 / 3., 1e-12);
  EXPECT_NEAR(change.mean_total_variation(), 0.7 / 3, 1e-12);
}

TEST(Experiments, hidden_source_symbols_are_as_if_padded_and_the_rest_keep_their_places) {
  const auto network = small_network();
  const AnsweredText text = small_texts()[0];
  const std::vector<std::vector<std::uint8_t>> subsets{
      {1, 1, 1, 1, 1}, {1, 0, 1, 1, 0}, {0, 0, 0, 0, 0}, {1, 1, 0, 0, 0}};
  const Tensor<double> got = subset_probabilities(*network, text, subsets, 3);
  for (std::size_t s = 0; s < subsets.size(); ++s) {
    auto source = text.source;
    for (std::size_t j = 0; j < source.size(); ++j)
      if (!subsets[s][j]) source[j] = Vocabulary::pad;
    const auto right = alone(*network, source, text.answer);
    for (std::size_t i = 0; i < right.size(); ++i)
      EXPECT_NEAR(got[static_cast<Index>(s * right.size() + i)], right[i][static_cast<std::size_t>(answered(text, i))],
                  1e-12);
  }
  // A tail that is hidden is a tail that is not there.
  const auto shorter = alone(*network, {4, 5}, text.answer);
  for (std::size_t i = 0; i < shorter.size(); ++i)
    EXPECT_NEAR(got[static_cast<Index>(3 * shorter.size() + i)],
                shorter[i][static_cast<std::size_t>(answered(text, i))], 1e-12);
}

TEST(Experiments, what_does_not_fit_is_refused) {
  const auto network = small_network();
  EXPECT_THROW(FixedAnswers<double>(*network, {}), ArgumentError);
  EXPECT_THROW(FixedAnswers<double>(*network, {{{}, {4}}}), ArgumentError);
  const FixedAnswers<double> answers(*network, small_texts());
  const AttentionPlace place{AttentionKind::cross, 0};
  EXPECT_THROW(answers.probabilities({nullptr, set_head<double>(place, 2, std::vector<double>(4))}), ArgumentError);
  EXPECT_THROW(answers.probabilities({nullptr, set_head<double>(place, 0, std::vector<double>(3))}), ArgumentError);
  EXPECT_THROW(subset_probabilities(*network, small_texts()[0], {{1, 1}}), ArgumentError);
}

}  // namespace
}  // namespace regard
