// Explanations of models of pictures. A model of text is a model of pictures whose
// patches have one bright pixel each, at the place of the symbol: both must be
// explained alike.
#include <algorithm>
#include <cmath>

#include "explain/small_model.h"
#include "regard/error.h"
#include "regard/explain.h"

namespace regard {
namespace {

using namespace testing;

// The network with its source embeddings as the weights of patches.
std::unique_ptr<Network> reading_pictures(Network& of_text) {
  Seq2SeqConfig config = small_sizes();
  config.patches = {small_vocabulary, small_vocabulary, 1};
  auto network = std::make_unique<Network>(config, 0, small_vocabulary, 1);
  for (Parameter<double>* parameter : network->parameters()) {
    if (parameter->name == "encoder.patches.bias") {
      parameter->value.fill(0);
    } else if (parameter->name == "encoder.patches.weight") {
      const Tensor<double>& embedding = weight_named(of_text, "encoder.embedding").value;
      EXPECT_EQ(parameter->value.shape(), embedding.shape());
      for (Index at = 0; at < embedding.count(); ++at)
        parameter->value[at] = embedding[at] * std::sqrt(static_cast<double>(small_width));
    } else {
      parameter->value = weight_named(of_text, parameter->name).value;
    }
  }
  return network;
}

AnsweredText as_picture(const AnsweredText& text) {
  Tensor<float> patches({static_cast<Index>(text.source.size()), small_vocabulary});
  for (std::size_t i = 0; i < text.source.size(); ++i)
    patches[static_cast<Index>(i) * small_vocabulary + text.source[i]] = 1;
  return answered_picture(std::move(patches), text.answer);
}

class PictureExplain : public ::testing::Test {
 protected:
  PictureExplain() : of_text_(small_network()), of_pictures_(reading_pictures(*of_text_)) {
    for (const AnsweredText& text : texts_) pictures_.push_back(as_picture(text));
  }

  std::unique_ptr<Network> of_text_, of_pictures_;
  std::vector<AnsweredText> texts_ = small_texts(), pictures_;
};

void expect_near(const Tensor<double>& got, const Tensor<double>& wanted) {
  ASSERT_EQ(got.shape(), wanted.shape());
  for (Index at = 0; at < got.count(); ++at) ASSERT_NEAR(got[at], wanted[at], 1e-9) << at;
}

TEST_F(PictureExplain, scores_of_patches_are_those_of_the_symbols_they_stand_for) {
  const SymbolScores got = attribute(*of_pictures_, pictures_[0]), wanted = attribute(*of_text_, texts_[0]);
  expect_near(got.probabilities, wanted.probabilities);
  for (std::size_t a = 0; a < attribution_count; ++a) {
    SCOPED_TRACE(attribution_name(static_cast<Attribution>(a)));
    expect_near(got.scores[a], wanted.scores[a]);
  }
}

// The middle of a picture hidden, not only its end.
TEST_F(PictureExplain, hidden_patches_are_as_hidden_symbols) {
  const std::vector<std::vector<std::uint8_t>> subsets{{1, 1, 1, 1, 1}, {1, 0, 1, 1, 0}, {0, 0, 0, 0, 0}};
  expect_near(subset_probabilities(*of_pictures_, pictures_[0], subsets),
              subset_probabilities(*of_text_, texts_[0], subsets));
}

TEST_F(PictureExplain, a_whole_study_of_pictures_of_several_widths_says_the_same) {
  const Explanation got = explain(*of_pictures_, pictures_), wanted = explain(*of_text_, texts_);
  EXPECT_EQ(got.texts, 3);
  EXPECT_EQ(got.symbols, wanted.symbols);
  ASSERT_EQ(got.heads.size(), wanted.heads.size());
  for (std::size_t i = 0; i < got.heads.size(); ++i) {
    EXPECT_NEAR(got.heads[i].zero.total_variation, wanted.heads[i].zero.total_variation, 1e-9);
    EXPECT_NEAR(got.heads[i].mean.total_variation, wanted.heads[i].mean.total_variation, 1e-9);
    EXPECT_NEAR(got.heads[i].contribution, wanted.heads[i].contribution, 1e-9);
  }
  for (std::size_t i = 0; i < got.tests.size(); ++i) {
    EXPECT_NEAR(got.tests[i].uniform.total_variation, wanted.tests[i].uniform.total_variation, 1e-9);
    EXPECT_NEAR(got.tests[i].random.total_variation, wanted.tests[i].random.total_variation, 1e-9);
  }
  for (std::size_t s = 0; s < erased_shares.size(); ++s)
    EXPECT_NEAR(got.random_ranking.comprehensiveness[s], wanted.random_ranking.comprehensiveness[s], 1e-9);
}

TEST_F(PictureExplain, what_does_not_fit_is_refused) {
  AnsweredText wrong = pictures_[0];
  wrong.source.pop_back();
  EXPECT_THROW(FixedAnswers<double>(*of_pictures_, {wrong}), ArgumentError);
  EXPECT_THROW(FixedAnswers<double>(*of_pictures_, {pictures_[0], texts_[0]}), ArgumentError);
  EXPECT_THROW(FixedAnswers<double>(*of_pictures_, {texts_[0]}).probabilities(), ArgumentError);
  EXPECT_THROW(FixedAnswers<double>(*of_pictures_, {answered_picture({}, {4})}), ArgumentError);
}

}  // namespace
}  // namespace regard
