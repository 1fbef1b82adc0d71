// Do the weights reflect the decision? What a model's attention says was read,
// beside what changes its answer: for source symbols, for heads, and for weights
// as a whole.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/experiments.h"

namespace regard {

// A source symbol is a symbol of a text or a patch of a picture.
// Ways to say how much each source symbol had to do with an answered symbol.
//   weights   cross-attention weights, mean over heads and decoder layers
//   norms     sizes of cross-attention contributions (contributions.h), shares of
//             each layer's sum, mean over decoder layers
//   rollout   rollout (rollout.h) of the last decoder layer
//   gradient  weight x d(log p of the symbol)/d(weight) of the cross-attention,
//             summed over heads and decoder layers; negative where against it
//   ablation  p - p', p' with that source symbol hidden: the yardstick
enum class Attribution { weights, norms, rollout, gradient, ablation };
constexpr std::size_t attribution_count = 5;
const char* attribution_name(Attribution attribution);

struct SymbolScores {
  Tensor<double> probabilities;                          // [symbols] of the answer and its end
  std::array<Tensor<double>, attribution_count> scores;  // [symbols, source]

  const Tensor<double>& of(Attribution attribution) const { return scores[static_cast<std::size_t>(attribution)]; }
};

// Leaves zeros in the gradients of the model's weights.
template <class T>
SymbolScores attribute(Seq2Seq<T>& model, const AnsweredText& text);

// Shares of the source that are taken away or left: at least one symbol, rounded up.
constexpr std::array<double, 5> erased_shares{0.01, 0.05, 0.10, 0.20, 0.50};
Index erased_count(double share, Index length);

// Sums over symbols. Source: DeYoung et al., "ERASER", 2020.
struct Faithfulness {
  Index symbols = 0;
  // p - p' without the symbols that rank highest: large where they mattered.
  std::array<double, erased_shares.size()> comprehensiveness{};
  // p - p' with nothing but them: small where they suffice.
  std::array<double, erased_shares.size()> sufficiency{};
  Faithfulness& operator+=(const Faithfulness& more);
};

// Of a ranking by `scores` [symbols, source] (of equals, the earlier symbol first).
// Of several rankings at once: subsets that they share are run once.
template <class T>
std::vector<Faithfulness> faithfulness(Seq2Seq<T>& model, const AnsweredText& text,
                                       const std::vector<Tensor<double>>& scores);

// Kendall's tau-b, 1 same order to -1 reversed; NaN where one side is all ties.
double kendall_tau(std::span<const double> a, std::span<const double> b);
// Spearman's rank correlation, ties at their mean rank; NaN where one side is constant.
double rank_correlation(std::span<const double> a, std::span<const double> b);

// How two ways order the source symbols of an answered symbol.
struct OrderAgreement {
  Index symbols = 0;   // with at least two source symbols, and both sides not all ties
  double tau = 0;      // sum of Kendall's tau over them
  Index same_top = 0;  // how often both put the same symbol first
  OrderAgreement& operator+=(const OrderAgreement& more);
};

struct HeadEffect {
  AttentionPlace place;
  Index head = 0;
  OutputChange zero, mean;  // by zero ablation and mean ablation
  double confidence = 0;    // mean largest weight of a query (Voita et al., 2019)
  double contribution = 0;  // mean size of what the head gives, over that of the residual it joins
};

// New weights for all heads of one layer, or of all layers of a kind.
struct WeightTest {
  AttentionKind kind = AttentionKind::encoder;
  std::optional<Index> layer;
  OutputChange uniform, permuted, random;  // see experiments.h; the last two over all draws
};

struct Explanation {
  Index texts = 0, symbols = 0;
  std::vector<HeadEffect> heads;  // encoder, decoder, cross; layers down
  std::vector<WeightTest> tests;  // single layers, then all of a kind
  std::array<Faithfulness, attribution_count> faithfulness{};
  Faithfulness random_ranking;  // the null: `draws` random orders a symbol
  std::array<std::array<OrderAgreement, attribution_count>, attribution_count> agreement{};

  // Over heads: rank correlation of confidence and of contribution with the total
  // variation that mean ablation brings.
  double confidence_agreement() const;
  double contribution_agreement() const;
};

struct ExplainOptions {
  std::uint64_t seed = 1;
  Index draws = 5;    // of permutations, random weights and random rankings
  Index batch = 256;  // texts run together
};

// Everything above, over texts and the model's own answers to them. Means for
// mean ablation are those over these texts. The same bits for the same texts and
// options. Throws ArgumentError for no texts, an empty one, or draws or batch below 1.
template <class T>
Explanation explain(Seq2Seq<T>& model, const std::vector<AnsweredText>& texts, const ExplainOptions& options = {});

}  // namespace regard
