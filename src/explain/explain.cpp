#include "regard/explain.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "regard/error.h"

namespace regard {
namespace {

constexpr AttentionKind kinds[] = {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross};

template <class T>
const std::vector<HeadWeights<T>>& layers_of(const SeenAttention<T>& seen, AttentionKind kind) {
  return kind == AttentionKind::encoder ? seen.encoder : kind == AttentionKind::decoder ? seen.decoder : seen.cross;
}

// What the unchanged model shows of one head: sums over the queries that count.
struct HeadSums {
  Index queries = 0;
  double confidence = 0, contribution = 0;
  std::vector<double> context;  // [head_dim]
};

// |context W_O| of one head is sqrt(c^T (W W^T) c): [head_dim, head_dim] a head.
template <class T>
Tensor<double> output_gram(const MultiHeadAttention<T>& layer, Index head) {
  const Index width = layer.config.model_dim, dim = width / layer.config.heads;
  const T* rows = layer.output.weight.value.data() + head * dim * width;
  Tensor<double> gram({dim, dim});
  for (Index a = 0; a < dim; ++a)
    for (Index b = 0; b <= a; ++b) {
      double sum = 0;
      for (Index c = 0; c < width; ++c)
        sum += static_cast<double>(rows[a * width + c]) * static_cast<double>(rows[b * width + c]);
      gram[a * dim + b] = gram[b * dim + a] = sum;
    }
  return gram;
}

template <class T>
double gram_length(const Tensor<double>& gram, const T* x) {
  const Index dim = gram.size(0);
  double square = 0;
  for (Index a = 0; a < dim; ++a)
    for (Index b = 0; b < dim; ++b) square += static_cast<double>(x[a]) * gram[a * dim + b] * static_cast<double>(x[b]);
  return std::sqrt(std::max(0.0, square));
}

template <class T>
double length(const T* x, Index count) {
  double square = 0;
  for (Index i = 0; i < count; ++i) square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(square);
}

// One head of one batch, added to its sums.
template <class T>
void add_head(const FixedAnswers<T>& answers, AttentionKind kind, const HeadWeights<T>& seen, Index head,
              HeadSums& sums) {
  const Index batch = seen.weights.size(0), heads = seen.weights.size(1), q_len = seen.weights.size(2);
  const Index kv_len = seen.weights.size(3), width = seen.context->value.size(2), dim = width / heads;
  const Tensor<double> gram = output_gram(*seen.layer, head);
  sums.context.resize(static_cast<std::size_t>(dim), 0.0);
  for (Index text = 0; text < batch; ++text)
    for (Index query = 0; query < q_len; ++query) {
      if (!answers.counts(kind, text, query)) continue;
      const T* weights = seen.weights.data() + ((text * heads + head) * q_len + query) * kv_len;
      const T* context = seen.context->value.data() + (text * q_len + query) * width + head * dim;
      const double residual = length(seen.residual->value.data() + (text * q_len + query) * width, width);
      ++sums.queries;
      sums.confidence += static_cast<double>(*std::max_element(weights, weights + kv_len));
      if (residual > 0) sums.contribution += gram_length(gram, context) / residual;
      for (Index d = 0; d < dim; ++d) sums.context[static_cast<std::size_t>(d)] += static_cast<double>(context[d]);
    }
}

std::uint64_t stream_of(const AttentionPlace& place, Index draw) {
  return static_cast<std::uint64_t>((draw * 4 + static_cast<Index>(place.kind)) * 100'000 + place.layer + 1);
}

template <class T>
class Study {
 public:
  Study(Seq2Seq<T>& model, const std::vector<AnsweredText>& texts, const ExplainOptions& options)
      : model_(model), texts_(texts), options_(options), order_(texts.size()) {
    // Texts of about one length share a batch.
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return texts[a].source.size() < texts[b].source.size(); });
    found_.texts = static_cast<Index>(texts.size());
  }

  Explanation run() {
    list_tests();
    for_each_batch([&](const FixedAnswers<T>& answers) { look(answers); });
    take_means();
    for_each_batch([&](const FixedAnswers<T>& answers) {
      const Tensor<double> before = answers.probabilities();
      ablate(answers, before);
      test_weights(answers, before);
    });
    for (std::size_t at = 0; at < texts_.size(); ++at) rank_source(texts_[at], at);
    return std::move(found_);
  }

 private:
  template <class F>
  void for_each_batch(F work) const {
    const auto step = static_cast<std::size_t>(options_.batch);
    for (std::size_t first = 0; first < order_.size(); first += step) {
      std::vector<AnsweredText> part;
      for (std::size_t i = first; i < std::min(order_.size(), first + step); ++i) part.push_back(texts_[order_[i]]);
      work(FixedAnswers<T>(model_, part));
    }
  }

  void list_tests() {
    const Index counts[] = {model_.config().encoder_layers, model_.config().decoder_layers,
                            model_.config().decoder_layers};
    for (std::size_t k = 0; k < 3; ++k)
      for (Index layer = 0; layer < counts[k]; ++layer) {
        found_.tests.push_back({.kind = kinds[k], .layer = layer, .uniform = {}, .permuted = {}, .random = {}});
        for (Index head = 0; head < model_.config().layer.heads; ++head)
          found_.heads.push_back({.place = {kinds[k], layer}, .head = head, .zero = {}, .mean = {}});
      }
    for (std::size_t k = 0; k < 3; ++k)
      if (counts[k] > 0)
        found_.tests.push_back({.kind = kinds[k], .layer = {}, .uniform = {}, .permuted = {}, .random = {}});
    sums_.resize(found_.heads.size());
  }

  void look(const FixedAnswers<T>& answers) {
    SeenAttention<T> seen;
    answers.probabilities({&seen});
    for (std::size_t i = 0; i < found_.heads.size(); ++i) {
      const AttentionPlace& place = found_.heads[i].place;
      const auto& layer = layers_of(seen, place.kind)[static_cast<std::size_t>(place.layer)];
      add_head(answers, place.kind, layer, found_.heads[i].head, sums_[i]);
    }
  }

  void take_means() {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto queries = static_cast<double>(std::max<Index>(1, sums_[i].queries));
      found_.heads[i].confidence = sums_[i].confidence / queries;
      found_.heads[i].contribution = sums_[i].contribution / queries;
      means_.emplace_back();
      for (double sum : sums_[i].context) means_.back().push_back(static_cast<T>(sum / queries));
    }
  }

  OutputChange changed(const FixedAnswers<T>& answers, const Tensor<double>& before, HeadChange<T> change) const {
    return answers.compare(before, answers.probabilities({nullptr, std::move(change)}));
  }

  void ablate(const FixedAnswers<T>& answers, const Tensor<double>& before) {
    for (std::size_t i = 0; i < found_.heads.size(); ++i) {
      HeadEffect& effect = found_.heads[i];
      effect.mean += changed(answers, before, set_head<T>(effect.place, effect.head, means_[i]));
      effect.zero += changed(answers, before, set_head<T>(effect.place, effect.head, std::vector<T>(means_[i].size())));
    }
  }

  void test_weights(const FixedAnswers<T>& answers, const Tensor<double>& before) {
    for (WeightTest& test : found_.tests) {
      const auto chosen = [kind = test.kind, layer = test.layer](const AttentionPlace& place) {
        return place.kind == kind && (!layer || place.layer == *layer);
      };
      const auto with = [&](WeightRule rule) {
        return changed(answers, before, replace_weights(answers, chosen, std::move(rule)));
      };
      test.uniform += with(uniform_weights());
      const AttentionPlace place{test.kind, test.layer.value_or(-1)};
      for (Index draw = 0; draw < options_.draws; ++draw) {
        Random permuting(options_.seed, stream_of(place, 2 * draw) + (batch_ << 44)),
            drawing(options_.seed, stream_of(place, 2 * draw + 1) + (batch_ << 44));
        test.permuted += with(permuted_weights(permuting));
        test.random += with(random_weights(drawing));
      }
    }
    ++batch_;
  }

  void rank_source(const AnsweredText& text, std::size_t number) {
    const SymbolScores scores = attribute(model_, text);
    const Index symbols = scores.probabilities.size(0);
    found_.symbols += symbols;
    std::vector<Tensor<double>> rankings(scores.scores.begin(), scores.scores.end());
    Random random(options_.seed, (std::uint64_t{1} << 40) + number);
    for (Index draw = 0; draw < options_.draws; ++draw) {
      rankings.emplace_back(rankings.front().shape());
      for (double& score : rankings.back().values()) score = random.uniform_double();
    }
    const std::vector<Faithfulness> found = faithfulness(model_, text, rankings);
    for (std::size_t a = 0; a < found.size(); ++a)
      (a < attribution_count ? found_.faithfulness[a] : found_.random_ranking) += found[a];
    for (std::size_t a = 0; a < attribution_count; ++a)
      for (std::size_t b = 0; b < attribution_count; ++b)
        found_.agreement[a][b] += agreement(scores.scores[a], scores.scores[b]);
  }

  static OrderAgreement agreement(const Tensor<double>& a, const Tensor<double>& b) {
    OrderAgreement sum;
    const Index source = a.size(1);
    for (Index row = 0; row < a.size(0); ++row) {
      const std::span x(a.data() + row * source, static_cast<std::size_t>(source));
      const std::span y(b.data() + row * source, static_cast<std::size_t>(source));
      const double tau = kendall_tau(x, y);
      if (std::isnan(tau)) continue;
      ++sum.symbols;
      sum.tau += tau;
      sum.same_top +=
          std::max_element(x.begin(), x.end()) - x.begin() == std::max_element(y.begin(), y.end()) - y.begin();
    }
    return sum;
  }

  Seq2Seq<T>& model_;
  const std::vector<AnsweredText>& texts_;
  const ExplainOptions& options_;
  std::vector<std::size_t> order_;
  std::vector<HeadSums> sums_;
  std::vector<std::vector<T>> means_;
  std::uint64_t batch_ = 0;  // each draws numbers of its own
  Explanation found_;
};

// Rank correlation over heads of `value` with what mean ablation does.
template <class F>
double effect_agreement(const std::vector<HeadEffect>& heads, F value) {
  std::vector<double> said, done;
  for (const HeadEffect& head : heads) {
    said.push_back(value(head));
    done.push_back(head.mean.mean_total_variation());
  }
  return rank_correlation(said, done);
}

}  // namespace

OrderAgreement& OrderAgreement::operator+=(const OrderAgreement& more) {
  symbols += more.symbols;
  tau += more.tau;
  same_top += more.same_top;
  return *this;
}

double Explanation::confidence_agreement() const {
  return effect_agreement(heads, [](const HeadEffect& head) { return head.confidence; });
}

double Explanation::contribution_agreement() const {
  return effect_agreement(heads, [](const HeadEffect& head) { return head.contribution; });
}

template <class T>
Explanation explain(Seq2Seq<T>& model, const std::vector<AnsweredText>& texts, const ExplainOptions& options) {
  if (texts.empty()) throw ArgumentError("explain: there are no texts");
  if (options.draws < 1) throw ArgumentError("explain: draws must be at least 1, got " + std::to_string(options.draws));
  if (options.batch < 1) throw ArgumentError("explain: batch must be at least 1, got " + std::to_string(options.batch));
  return Study<T>(model, texts, options).run();
}

template Explanation explain(Seq2Seq<float>&, const std::vector<AnsweredText>&, const ExplainOptions&);
template Explanation explain(Seq2Seq<double>&, const std::vector<AnsweredText>&, const ExplainOptions&);

}  // namespace regard
