#include "errors.h"

#include <cmath>

#include "linformer_fit.h"
#include "methods.h"
#include "regard/attend.h"
#include "regard/error.h"
#include "regard/linear_attention.h"
#include "regard/performer.h"
#include "regard/reformer.h"

namespace regard::bench {
namespace {

// Sums of squares of a difference and of what is right.
struct Squares {
  double wrong = 0, right = 0;
  void add(const Tensor<float>& out, const Tensor<float>& exact) {
    if (out.shape() != exact.shape()) throw ArgumentError("relative_error: " + out.text() + " against " + exact.text());
    for (Index i = 0; i < out.count(); ++i) {
      const double difference = double{out[i]} - double{exact[i]};
      wrong += difference * difference;
      right += double{exact[i]} * double{exact[i]};
    }
  }
  double error() const { return std::sqrt(wrong / right); }
};

Tensor<float> exact(const Heads& x) { return attend(x.q, x.k, x.v).out; }

double performer_error(const std::vector<const Heads*>& all, const std::vector<PerformerFeatures>& draws) {
  Squares squares;
  for (const Heads* x : all) {
    const Tensor<float> right = exact(*x);
    for (const PerformerFeatures& features : draws)
      squares.add(performer_attend({x->q, x->k, x->v}, features).out, right);
  }
  return squares.error();
}

double mean_norm(const Tensor<float>& x) {
  const Index dim = x.size(3), rows = x.count() / dim;
  double sum = 0;
  for (Index row = 0; row < rows; ++row) {
    double squares = 0;
    for (Index d = 0; d < dim; ++d) squares += double{x[row * dim + d]} * double{x[row * dim + d]};
    sum += std::sqrt(squares);
  }
  return sum / static_cast<double>(rows);
}

// Of all scores: the first head of every sample is enough to judge by, but all are seen.
double score_deviation(const Heads& x) {
  double sum = 0, squares = 0;
  const Index heads = x.q.size(1), length = x.q.size(2), dim = x.q.size(3);
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < length; ++i)
      for (Index j = 0; j < length; ++j) {
        const float *q = x.q.data() + (h * length + i) * dim, *k = x.k.data() + (h * length + j) * dim;
        double score = 0;
        for (Index d = 0; d < dim; ++d) score += double{q[d]} * double{k[d]};
        score /= std::sqrt(static_cast<double>(dim));
        sum += score, squares += score * score;
      }
  const auto count = static_cast<double>(heads * length * length);
  return std::sqrt(squares / count - (sum / count) * (sum / count));
}

// Every query answered alike.
Tensor<float> mean_of_values(const Heads& x) {
  const Tensor<float> zeros(x.q.shape());
  return attend(zeros, x.k, x.v).out;
}

}  // namespace

double relative_error(const Tensor<float>& out, const Tensor<float>& exact_out) {
  Squares squares;
  squares.add(out, exact_out);
  return squares.error();
}

Sample random_sample(double norm) {
  const Shape shape{1, 4, 1024, 64};
  return {"random, |q| = " + std::to_string(static_cast<int>(norm)),
          {normal(shape, 11, norm / 8), normal(shape, 12, norm / 8), normal(shape, 13)}};
}

Sample model_sample(ModelHeads& model, const std::string& words_path) {
  return {"model, words end to end", model.of_words(words_of(words_path, 3), 1024)};
}

Table performer_errors(const std::vector<Sample>& samples, const std::vector<Heads>& single_words) {
  Table table{{"features"}, {}};
  for (const Sample& sample : samples) table.columns.push_back(sample.name);
  table.columns.push_back("model, single words");
  std::vector<const Heads*> words;
  for (const Heads& word : single_words) words.push_back(&word);
  for (Index features = 16; features <= 4096; features *= 2) {
    std::vector<double> row{static_cast<double>(features)};
    const auto draws = [&](Index head_dim) {
      std::vector<PerformerFeatures> found;
      for (std::uint64_t seed = 0; seed < 5; ++seed) found.push_back(performer_features(features, head_dim, seed));
      return found;
    };
    for (const Sample& sample : samples) row.push_back(performer_error({&sample.heads}, draws(sample.heads.q.size(3))));
    row.push_back(performer_error(words, draws(single_words.at(0).q.size(3))));
    table.rows.push_back(row);
  }
  return table;
}

Table linformer_errors(const std::vector<Sample>& samples) {
  Table table{{"slots"}, {}};
  for (const Sample& sample : samples)
    for (const char* kind : {", averages", ", random projection"}) table.columns.push_back(sample.name + kind);
  for (Index slots = 16; slots <= 512; slots *= 2) {
    std::vector<double> row{static_cast<double>(slots)};
    for (const auto& [name, heads] : samples) {
      const Tensor<float> right = exact(heads);
      for (const Tensor<float>& projection :
           {averaging_projection(slots, heads.q.size(2)), random_projection(slots, heads.q.size(2))})
        row.push_back(relative_error(projected_attend(heads, {projection, projection}), right));
    }
    table.rows.push_back(row);
  }
  return table;
}

Table linformer_word_errors(const Heads& training, const Heads& others) {
  Table table{{"slots", "averages", "fitted, the words fitted to", "fitted, other words"}, {}};
  const Index length = training.q.size(2);
  for (Index slots : {1, 2, 4, 6}) {
    std::vector<double> row{static_cast<double>(slots)};
    const Tensor<float> averages = averaging_projection(slots, length);
    const Projections fitted = fitted_projections(slots, training);
    row.push_back(relative_error(projected_attend(others, {averages, averages}), exact(others)));
    row.push_back(relative_error(projected_attend(training, fitted), exact(training)));
    row.push_back(relative_error(projected_attend(others, fitted), exact(others)));
    table.rows.push_back(row);
  }
  return table;
}

Table reformer_errors(const std::vector<Sample>& samples) {
  Table table{{"rounds"}, {}};
  for (const Sample& sample : samples) table.columns.push_back(sample.name);
  for (Index rounds = 1; rounds <= 32; rounds *= 2) {
    std::vector<double> row{static_cast<double>(rounds)};
    for (const auto& [name, heads] : samples) {
      const Index length = heads.q.size(2);
      const Tensor<float> right =
          reformer_attend(heads.q, heads.v, {.buckets = 1, .rounds = 1, .chunk = length, .scale = 1}).out;
      const ReformerOptions options{.buckets = length / 64, .rounds = rounds, .chunk = 64, .scale = 1};
      row.push_back(relative_error(reformer_attend(heads.q, heads.v, options).out, right));
    }
    table.rows.push_back(row);
  }
  return table;
}

SampleFacts facts_of(const Sample& sample) {
  const Heads& x = sample.heads;
  const auto seen = attend(x.q, x.k, x.v, {.observe = {.entropy = true}});
  SampleFacts facts{.name = sample.name, .query_norm = mean_norm(x.q), .key_norm = mean_norm(x.k)};
  facts.score_deviation = score_deviation(x);
  for (float nats : seen.entropy.values()) facts.entropy += double{nats} / static_cast<double>(seen.entropy.count());
  facts.longest = std::log(static_cast<double>(x.k.size(2)));
  facts.mean_error = relative_error(mean_of_values(x), seen.out);
  facts.linear_error = relative_error(linear_attend({x.q, x.k, x.v}).out, seen.out);
  return facts;
}

}  // namespace regard::bench
