// Experiments on a trained model: its answers fixed, its heads or its source
// changed, and what that does to the probabilities of the answers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "regard/dataset.h"
#include "regard/random.h"
#include "regard/seq2seq.h"

namespace regard {

// A text, or a picture, and the model's own answer to it, ids without begin and end.
struct AnsweredText {
  std::vector<std::int64_t> source, answer;
  // [patches, patch size], of a picture (Model::patches): `source` then has any id but
  // Vocabulary::pad for each patch.
  Tensor<float> patches = {};
};
AnsweredText answered_picture(Tensor<float> patches, std::vector<std::int64_t> answer);

// How far outputs moved: sums over symbols (answers with their end) and texts.
struct OutputChange {
  Index symbols = 0, changed_symbols = 0;  // changed: another symbol is the most probable one
  Index texts = 0, changed_texts = 0;      // changed: some symbol is, so that greedy decoding would answer otherwise
  double total_variation = 0;              // of the distribution of a symbol: sum |p - p'| / 2
  double probability_drop = 0;             // of the symbol answered: p - p'

  OutputChange& operator+=(const OutputChange& more);
  // Means a symbol, and shares; 0 of none.
  double mean_total_variation() const;
  double mean_probability_drop() const;
  double changed_symbol_share() const;
  double changed_text_share() const;
};

// Texts with their answers fixed, run as one batch, changed or not. The model and
// the texts must outlive it.
template <class T>
class FixedAnswers {
 public:
  // Throws ArgumentError for no texts, a text without source, and a picture whose
  // patches are not one for each of its source.
  FixedAnswers(Seq2Seq<T>& model, const std::vector<AnsweredText>& texts);

  // Of every symbol at every place, [texts, longest answer + 1, target vocabulary].
  Tensor<double> probabilities(const Inspection<T>& inspection = {}) const;
  OutputChange compare(const Tensor<double>& before, const Tensor<double>& after) const;

  // Whether a query stands for a symbol, not for padding, and may see a key.
  bool counts(AttentionKind kind, Index text, Index query) const;
  bool visible(AttentionKind kind, Index text, Index query, Index key) const;
  const Batch& batch() const { return batch_; }
  SourceBatch<T> source() const;  // as Seq2Seq::encode takes it

 private:
  Seq2Seq<T>& model_;
  Batch batch_;
};

// Ablation: the head gives `value` [head_dim] whatever it attends to; zeros for
// zero ablation, its mean over some data for mean ablation.
// Source: Michel et al., "Are sixteen heads really better than one?", 2019.
template <class T>
HeadChange<T> set_head(const AttentionPlace& place, Index head, std::vector<T> value);

// What becomes of one query's weights over the keys it may see.
using WeightRule = std::function<void(std::span<double> weights)>;

// Every head of the layers that `chosen` names attends by new weights, each
// query's made by `rule` from its own. Values stay.
template <class T>
HeadChange<T> replace_weights(const FixedAnswers<T>& answers, std::function<bool(const AttentionPlace&)> chosen,
                              WeightRule rule);

// The same for every key; a random order of the query's own (Jain and Wallace,
// "Attention is not explanation", 2019); weights that know nothing, drawn evenly
// from all there could be (the null). `random` must outlive the rule.
WeightRule uniform_weights();
WeightRule permuted_weights(Random& random);
WeightRule random_weights(Random& random);

// Probabilities of a text's answered symbols [subsets, answer + 1] where only the
// source symbols of a subset can be seen: the others become padding, so that the
// rest keep their positions. A subset holds one flag a source symbol, 1 = seen.
// Runs `batch` subsets at a time.
template <class T>
Tensor<double> subset_probabilities(Seq2Seq<T>& model, const AnsweredText& text,
                                    const std::vector<std::vector<std::uint8_t>>& subsets, Index batch = 256);

}  // namespace regard
