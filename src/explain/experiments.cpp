#include "regard/experiments.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "regard/error.h"

namespace regard {
namespace {

double share(double part, Index of) { return of > 0 ? part / static_cast<double>(of) : 0; }

// What greedy decoding would choose from: it never answers these three.
bool can_be_answered(std::int64_t symbol) {
  return symbol != Vocabulary::pad && symbol != Vocabulary::begin && symbol != Vocabulary::unknown;
}

Index most_probable(std::span<const double> p) {
  Index best = Vocabulary::end;
  for (Index symbol = 0; symbol < static_cast<Index>(p.size()); ++symbol)
    if (can_be_answered(symbol) && p[static_cast<std::size_t>(symbol)] > p[static_cast<std::size_t>(best)])
      best = symbol;
  return best;
}

template <class T>
void softmax(const T* logits, Index count, double* p) {
  const double top = static_cast<double>(*std::max_element(logits, logits + count));
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += p[i] = std::exp(static_cast<double>(logits[i]) - top);
  for (Index i = 0; i < count; ++i) p[i] /= sum;
}

template <class T>
Tensor<double> softmax_rows(const Tensor<T>& logits) {
  auto p = Tensor<double>::uninitialised(logits.shape());
  const Index classes = logits.size(-1);
  for (Index row = 0; row < logits.count() / classes; ++row)
    softmax(logits.data() + row * classes, classes, p.data() + row * classes);
  return p;
}

void check_text(const AnsweredText& text) {
  if (text.source.empty()) throw ArgumentError("FixedAnswers: a text is empty");
  const auto length = static_cast<Index>(text.source.size());
  if (!text.patches.empty() && (text.patches.rank() != 2 || text.patches.size(0) != length))
    throw ArgumentError("FixedAnswers: patches " + text.patches.text() + " for a source of " + std::to_string(length));
}

Batch batch_of(const std::vector<AnsweredText>& texts) {
  if (texts.empty()) throw ArgumentError("FixedAnswers: there are no texts");
  std::vector<Encoded> encoded;
  std::vector<std::vector<std::int64_t>> sources;
  for (const AnsweredText& text : texts) {
    check_text(text);
    if (text.patches.empty() != texts.front().patches.empty())
      throw ArgumentError("FixedAnswers: some texts are pictures and some are not");
    sources.push_back(text.source);
    encoded.push_back({text.source, text.answer, text.patches});
  }
  std::vector<const Encoded*> pointers;
  for (const Encoded& one : encoded) pointers.push_back(&one);
  Batch batch = make_batch(pointers);
  batch.source = padded_ids(sources);  // patches may be hidden among those that are seen
  return batch;
}

}  // namespace

AnsweredText answered_picture(Tensor<float> patches, std::vector<std::int64_t> answer) {
  std::vector<std::int64_t> present(patches.empty() ? 0 : static_cast<std::size_t>(patches.size(0)), Vocabulary::begin);
  return {std::move(present), std::move(answer), std::move(patches)};
}

OutputChange& OutputChange::operator+=(const OutputChange& more) {
  symbols += more.symbols;
  changed_symbols += more.changed_symbols;
  texts += more.texts;
  changed_texts += more.changed_texts;
  total_variation += more.total_variation;
  probability_drop += more.probability_drop;
  return *this;
}

double OutputChange::mean_total_variation() const { return share(total_variation, symbols); }
double OutputChange::mean_probability_drop() const { return share(probability_drop, symbols); }
double OutputChange::changed_symbol_share() const { return share(static_cast<double>(changed_symbols), symbols); }
double OutputChange::changed_text_share() const { return share(static_cast<double>(changed_texts), texts); }

template <class T>
FixedAnswers<T>::FixedAnswers(Seq2Seq<T>& model, const std::vector<AnsweredText>& texts)
    : model_(model), batch_(batch_of(texts)) {}

template <class T>
SourceBatch<T> FixedAnswers<T>::source() const {
  if (batch_.patches.empty()) return batch_.source;
  auto rows = Tensor<T>::uninitialised(batch_.patches.shape());
  std::copy(batch_.patches.values().begin(), batch_.patches.values().end(), rows.data());
  return {batch_.source, std::move(rows)};
}

template <class T>
Tensor<double> FixedAnswers<T>::probabilities(const Inspection<T>& inspection) const {
  Tape<T> tape;
  const auto memory = model_.encode(tape, source(), inspection);
  return softmax_rows(model_.decode(tape, memory, batch_.source, batch_.input, inspection)->value);
}

template <class T>
OutputChange FixedAnswers<T>::compare(const Tensor<double>& before, const Tensor<double>& after) const {
  if (before.shape() != after.shape())
    throw ArgumentError("FixedAnswers: probabilities " + before.text() + " and " + after.text() + " differ in shape");
  const Index length = batch_.target.size(1), classes = before.size(-1);
  OutputChange change;
  for (Index text = 0; text < batch_.target.size(0); ++text) {
    Index changed = 0;
    for (Index place = 0; place < length; ++place) {
      const std::int64_t answered = batch_.target[text * length + place];
      if (answered == Vocabulary::pad) break;
      const auto size = static_cast<std::size_t>(classes);
      const std::span p(before.data() + (text * length + place) * classes, size);
      const std::span q(after.data() + (text * length + place) * classes, size);
      for (std::size_t c = 0; c < size; ++c) change.total_variation += std::abs(p[c] - q[c]) / 2;
      change.probability_drop += p[static_cast<std::size_t>(answered)] - q[static_cast<std::size_t>(answered)];
      changed += most_probable(p) != most_probable(q);
      ++change.symbols;
    }
    change.changed_symbols += changed;
    change.changed_texts += changed > 0;
    ++change.texts;
  }
  return change;
}

template <class T>
bool FixedAnswers<T>::counts(AttentionKind kind, Index text, Index query) const {
  const Tensor<std::int64_t>& ids = kind == AttentionKind::encoder ? batch_.source : batch_.target;
  return ids[text * ids.size(1) + query] != Vocabulary::pad;
}

template <class T>
bool FixedAnswers<T>::visible(AttentionKind kind, Index text, Index query, Index key) const {
  if (kind == AttentionKind::decoder) return key <= query;
  return batch_.source[text * batch_.source.size(1) + key] != Vocabulary::pad;
}

template <class T>
HeadChange<T> set_head(const AttentionPlace& place, Index head, std::vector<T> value) {
  return [place, head, value = std::move(value)](const AttentionPlace& at, const HeadContext<T>& heads) {
    if (at != place) return;
    const Index width = heads.context.size(-1), dim = heads.heads.model_dim / heads.heads.heads;
    if (head < 0 || head >= heads.heads.heads || static_cast<Index>(value.size()) != dim)
      throw ArgumentError("set_head: head " + std::to_string(head) + " with " + std::to_string(value.size()) +
                          " values, the layer has " + std::to_string(heads.heads.heads) + " heads of " +
                          std::to_string(dim));
    for (Index row = 0; row < heads.context.count() / width; ++row)
      std::copy(value.begin(), value.end(), heads.context.data() + row * width + head * dim);
  };
}

namespace {

// One query of one head attends by `weights` [keys.size()] over `keys`.
template <class T>
void attend_anew(const HeadContext<T>& heads, const std::array<Index, 3>& at, std::span<const Index> keys,
                 std::span<const double> weights) {
  const auto& [text, head, query] = at;
  const Index width = heads.context.size(2), q_len = heads.context.size(1), kv_len = heads.key_value.size(1);
  const Index dim = width / heads.heads.heads, kv_width = heads.heads.kv_heads * dim;
  const Index group = heads.heads.heads / heads.heads.kv_heads;
  std::vector<double> sum(static_cast<std::size_t>(dim), 0.0);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const T* value = heads.key_value.data() + (text * kv_len + keys[k]) * 2 * kv_width + kv_width + head / group * dim;
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weights[k] * static_cast<double>(value[d]);
  }
  T* to = heads.context.data() + (text * q_len + query) * width + head * dim;
  for (std::size_t d = 0; d < sum.size(); ++d) to[d] = static_cast<T>(sum[d]);
}

}  // namespace

template <class T>
HeadChange<T> replace_weights(const FixedAnswers<T>& answers, std::function<bool(const AttentionPlace&)> chosen,
                              WeightRule rule) {
  return [&answers, chosen = std::move(chosen), rule = std::move(rule)](const AttentionPlace& place,
                                                                        const HeadContext<T>& heads) {
    if (!chosen(place)) return;
    const Shape& shape = heads.weights.shape();
    for (Index text = 0; text < shape[0]; ++text)
      for (Index query = 0; query < shape[2]; ++query) {
        if (!answers.counts(place.kind, text, query)) continue;
        std::vector<Index> keys;
        for (Index key = 0; key < shape[3]; ++key)
          if (answers.visible(place.kind, text, query, key)) keys.push_back(key);
        for (Index head = 0; head < shape[1]; ++head) {
          const T* row = heads.weights.data() + ((text * shape[1] + head) * shape[2] + query) * shape[3];
          std::vector<double> weights;
          for (Index key : keys) weights.push_back(static_cast<double>(row[key]));
          rule(weights);
          attend_anew(heads, {text, head, query}, keys, weights);
        }
      }
  };
}

WeightRule uniform_weights() {
  return [](std::span<double> weights) {
    std::fill(weights.begin(), weights.end(), 1 / static_cast<double>(weights.size()));
  };
}

WeightRule permuted_weights(Random& random) {
  return [&random](std::span<double> weights) {
    for (std::size_t left = weights.size(); left > 1; --left) std::swap(weights[left - 1], weights[random.below(left)]);
  };
}

WeightRule random_weights(Random& random) {
  return [&random](std::span<double> weights) {
    double sum = 0;
    for (double& weight : weights) sum += weight = -std::log(1 - random.uniform_double());
    for (double& weight : weights) weight /= sum;
  };
}

template <class T>
Tensor<double> subset_probabilities(Seq2Seq<T>& model, const AnsweredText& text,
                                    const std::vector<std::vector<std::uint8_t>>& subsets, Index batch) {
  const Index length = static_cast<Index>(text.answer.size()) + 1;
  Tensor<double> found({static_cast<Index>(subsets.size()), length});
  for (std::size_t first = 0; first < subsets.size(); first += static_cast<std::size_t>(batch)) {
    std::vector<AnsweredText> variants;
    for (std::size_t s = first; s < std::min(subsets.size(), first + static_cast<std::size_t>(batch)); ++s) {
      if (subsets[s].size() != text.source.size())
        throw ArgumentError("subset_probabilities: a subset has " + std::to_string(subsets[s].size()) +
                            " flags for a source of " + std::to_string(text.source.size()) + " symbols");
      variants.push_back(text);
      for (std::size_t j = 0; j < text.source.size(); ++j)
        if (!subsets[s][j]) variants.back().source[j] = Vocabulary::pad;
    }
    const FixedAnswers<T> run(model, variants);
    const Tensor<double> p = run.probabilities();
    const Index classes = p.size(-1);
    for (Index row = 0; row < static_cast<Index>(variants.size()) * length; ++row)
      found[static_cast<Index>(first) * length + row] = p[row * classes + run.batch().target[row]];
  }
  return found;
}

template class FixedAnswers<float>;
template class FixedAnswers<double>;
template HeadChange<float> set_head(const AttentionPlace&, Index, std::vector<float>);
template HeadChange<double> set_head(const AttentionPlace&, Index, std::vector<double>);
template HeadChange<float> replace_weights(const FixedAnswers<float>&, std::function<bool(const AttentionPlace&)>,
                                           WeightRule);
template HeadChange<double> replace_weights(const FixedAnswers<double>&, std::function<bool(const AttentionPlace&)>,
                                            WeightRule);
template Tensor<double> subset_probabilities(Seq2Seq<float>&, const AnsweredText&,
                                             const std::vector<std::vector<std::uint8_t>>&, Index);
template Tensor<double> subset_probabilities(Seq2Seq<double>&, const AnsweredText&,
                                             const std::vector<std::vector<std::uint8_t>>&, Index);

}  // namespace regard
