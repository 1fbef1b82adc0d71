// Scores of source symbols for one text, and whether they are faithful.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "regard/contributions.h"
#include "regard/error.h"
#include "regard/explain.h"
#include "regard/rollout.h"

namespace regard {
namespace {

using Subset = std::vector<std::uint8_t>;

struct Lengths {
  Index symbols, source;
};

Lengths lengths_of(const AnsweredText& text) {
  return {static_cast<Index>(text.answer.size()) + 1, static_cast<Index>(text.source.size())};
}

// Mean of [1, heads, symbols, source] over layers and heads.
template <class T>
Tensor<double> mean_weights(const std::vector<HeadWeights<T>>& cross, const Lengths& n) {
  Tensor<double> mean({n.symbols, n.source});
  const Index cells = mean.count();
  for (const HeadWeights<T>& layer : cross) {
    const double part = 1.0 / static_cast<double>(static_cast<Index>(cross.size()) * layer.weights.size(1));
    for (Index at = 0; at < layer.weights.count(); ++at)
      mean[at % cells] += part * static_cast<double>(layer.weights[at]);
  }
  return mean;
}

template <class T>
Tensor<double> mean_norms(const std::vector<HeadWeights<T>>& cross, const Lengths& n) {
  Tensor<double> mean({n.symbols, n.source});
  for (const HeadWeights<T>& layer : cross) {
    const Tensor<T> joint = contribution_norms(layer, false).joint;
    for (Index row = 0; row < n.symbols; ++row) {
      const T* sizes = joint.data() + row * n.source;
      const double sum = std::accumulate(sizes, sizes + n.source, 0.0);
      for (Index j = 0; j < n.source && sum > 0; ++j)
        mean[row * n.source + j] += static_cast<double>(sizes[j]) / sum / static_cast<double>(cross.size());
    }
  }
  return mean;
}

template <class T>
void add_maps(Trace& trace, AttentionKind kind, const std::vector<HeadWeights<T>>& layers) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Tensor<T>& weights = layers[layer].weights;
    AttentionMap map{.kind = kind, .layer = static_cast<Index>(layer)};
    map.weights = Tensor<float>({weights.size(1), weights.size(2), weights.size(3)});
    std::transform(weights.values().begin(), weights.values().end(), map.weights.data(),
                   [](T weight) { return static_cast<float>(weight); });
    trace.maps.push_back(std::move(map));
  }
}

template <class T>
Tensor<double> rollout_of(const SeenAttention<T>& seen, const Lengths& n) {
  Trace trace;
  trace.source.assign(static_cast<std::size_t>(n.source), "");
  trace.target.assign(static_cast<std::size_t>(n.symbols), "");
  add_maps(trace, AttentionKind::encoder, seen.encoder);
  add_maps(trace, AttentionKind::decoder, seen.decoder);
  add_maps(trace, AttentionKind::cross, seen.cross);
  Tensor<double> shares({n.symbols, n.source});
  for (Index row = 0; row < n.symbols; ++row) {
    const auto found = rollout(trace, AttentionKind::cross, trace.layers(AttentionKind::cross) - 1, row);
    std::copy(found.source.begin(), found.source.end(), shares.data() + row * n.source);
  }
  return shares;
}

// One batch entry a symbol: each goes back from its own log-probability.
template <class T>
Tensor<double> gradient_scores(Seq2Seq<T>& model, const AnsweredText& text, const Lengths& n) {
  const FixedAnswers<T> answers(model, std::vector<AnsweredText>(static_cast<std::size_t>(n.symbols), text));
  const Batch& batch = answers.batch();
  SeenAttention<T> seen;
  auto tape = Tape<T>::differentiating();
  const auto memory = model.encode(tape, answers.source(), {&seen});
  const auto logits = model.decode(tape, memory, batch.source, batch.input, {&seen});
  const Tensor<double> p = answers.probabilities();
  Tensor<T> slope(logits->value.shape());
  const Index classes = slope.size(2);
  for (Index i = 0; i < n.symbols; ++i) {
    const Index row = i * n.symbols + i;
    for (Index c = 0; c < classes; ++c) slope[row * classes + c] = static_cast<T>(-p[row * classes + c]);
    slope[row * classes + batch.target[row]] += T{1};
  }
  tape.backward(logits, std::move(slope));
  for (Parameter<T>* parameter : model.parameters()) parameter->gradient.fill(T{0});
  Tensor<double> scores({n.symbols, n.source});
  for (const HeadWeights<T>& layer : seen.cross) {
    const Tensor<T> products = gradient_times_weight(layer);
    const Index heads = products.size(1);
    for (Index i = 0; i < n.symbols; ++i)
      for (Index head = 0; head < heads; ++head)
        for (Index j = 0; j < n.source; ++j)
          scores[i * n.source + j] +=
              static_cast<double>(products[((i * heads + head) * n.symbols + i) * n.source + j]);
  }
  return scores;
}

Tensor<double> drops(const Tensor<double>& whole, const Tensor<double>& without, const Lengths& n) {
  Tensor<double> scores({n.symbols, n.source});
  for (Index i = 0; i < n.symbols; ++i)
    for (Index j = 0; j < n.source; ++j) scores[i * n.source + j] = whole[i] - without[j * n.symbols + i];
  return scores;
}

// Subsets by number, each run once however often it is asked for.
class Subsets {
 public:
  Index number(const Subset& subset) {
    const auto [at, fresh] =
        numbers_.try_emplace(std::string(subset.begin(), subset.end()), static_cast<Index>(list_.size()));
    if (fresh) list_.push_back(subset);
    return at->second;
  }
  const std::vector<Subset>& list() const { return list_; }

 private:
  std::map<std::string, Index> numbers_;  // by their flags as bytes
  std::vector<Subset> list_;
};

// 1 for the `count` highest of a row.
Subset highest(const double* scores, Index length, Index count) {
  std::vector<Index> order(static_cast<std::size_t>(length));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return scores[a] > scores[b]; });
  Subset subset(static_cast<std::size_t>(length), 0);
  for (Index i = 0; i < count; ++i) subset[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = 1;
  return subset;
}

Subset opposite(Subset subset) {
  for (std::uint8_t& flag : subset) flag = !flag;
  return subset;
}

}  // namespace

const char* attribution_name(Attribution attribution) {
  switch (attribution) {
    case Attribution::weights: return "weights";
    case Attribution::norms: return "norms";
    case Attribution::rollout: return "rollout";
    case Attribution::gradient: return "gradient";
    case Attribution::ablation: return "ablation";
  }
  throw ArgumentError("Attribution: no such attribution: " + std::to_string(static_cast<int>(attribution)));
}

template <class T>
SymbolScores attribute(Seq2Seq<T>& model, const AnsweredText& text) {
  const Lengths n = lengths_of(text);
  SeenAttention<T> seen;
  FixedAnswers<T>(model, {text}).probabilities({&seen});
  if (seen.cross.empty()) throw ArgumentError("attribute: the model has no cross-attention");
  std::vector<Subset> subsets{Subset(text.source.size(), 1)};
  for (std::size_t j = 0; j < text.source.size(); ++j) {
    subsets.emplace_back(text.source.size(), 1);
    subsets.back()[j] = 0;
  }
  const Tensor<double> p = subset_probabilities(model, text, subsets);
  Tensor<double> whole({n.symbols}), without({n.source, n.symbols});
  std::copy_n(p.data(), n.symbols, whole.data());
  std::copy_n(p.data() + n.symbols, without.count(), without.data());
  SymbolScores found;
  found.scores = {mean_weights(seen.cross, n), mean_norms(seen.cross, n), rollout_of(seen, n),
                  gradient_scores(model, text, n), drops(whole, without, n)};
  found.probabilities = std::move(whole);
  return found;
}

Index erased_count(double share, Index length) {
  // A hair less, so that 10 % of 10 is 1 whatever the share's last bit.
  return std::max<Index>(1, static_cast<Index>(std::ceil(share * static_cast<double>(length) - 1e-9)));
}

Faithfulness& Faithfulness::operator+=(const Faithfulness& more) {
  symbols += more.symbols;
  for (std::size_t s = 0; s < erased_shares.size(); ++s) {
    comprehensiveness[s] += more.comprehensiveness[s];
    sufficiency[s] += more.sufficiency[s];
  }
  return *this;
}

template <class T>
std::vector<Faithfulness> faithfulness(Seq2Seq<T>& model, const AnsweredText& text,
                                       const std::vector<Tensor<double>>& scores) {
  const Lengths n = lengths_of(text);
  Subsets subsets;
  const Index whole = subsets.number(Subset(text.source.size(), 1));
  struct Pair {
    Index without, only;
  };
  std::vector<Pair> wanted;  // [rankings, symbols, shares]
  for (const Tensor<double>& ranking : scores) {
    if (ranking.shape() != Shape{n.symbols, n.source})
      throw ArgumentError("faithfulness: scores " + ranking.text() + ", need " + shape_text({n.symbols, n.source}));
    for (Index i = 0; i < n.symbols; ++i)
      for (double share : erased_shares) {
        const Subset top = highest(ranking.data() + i * n.source, n.source, erased_count(share, n.source));
        wanted.push_back({subsets.number(opposite(top)), subsets.number(top)});
      }
  }
  const Tensor<double> p = subset_probabilities(model, text, subsets.list());
  std::vector<Faithfulness> found(scores.size());
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    const std::size_t s = at % erased_shares.size(), row = at / erased_shares.size();
    const Index i = static_cast<Index>(row) % n.symbols;
    Faithfulness& to = found[row / static_cast<std::size_t>(n.symbols)];
    to.symbols += s == 0;
    to.comprehensiveness[s] += p[whole * n.symbols + i] - p[wanted[at].without * n.symbols + i];
    to.sufficiency[s] += p[whole * n.symbols + i] - p[wanted[at].only * n.symbols + i];
  }
  return found;
}

template SymbolScores attribute(Seq2Seq<float>&, const AnsweredText&);
template SymbolScores attribute(Seq2Seq<double>&, const AnsweredText&);
template std::vector<Faithfulness> faithfulness(Seq2Seq<float>&, const AnsweredText&,
                                                const std::vector<Tensor<double>>&);
template std::vector<Faithfulness> faithfulness(Seq2Seq<double>&, const AnsweredText&,
                                                const std::vector<Tensor<double>>&);

}  // namespace regard
