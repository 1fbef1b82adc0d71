#include "regard/decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "regard/error.h"

namespace regard {
namespace {

// One row of logits as log probabilities. NaN has no place in any order, so
// the search must never meet one.
void log_softmax(const float* logits, Index classes, double* out) {
  if (!std::all_of(logits, logits + classes, [](float x) { return std::isfinite(x); }))
    throw Error("decode: the model's logits are not finite: its weights are damaged or its training diverged");
  const double largest = static_cast<double>(*std::max_element(logits, logits + classes));
  double sum = 0;
  for (Index c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c]) - largest);
  for (Index c = 0; c < classes; ++c) out[c] = static_cast<double>(logits[c]) - largest - std::log(sum);
}

// The search over one source. Its rows in the batch are live hypotheses.
class Search {
 public:
  Search(Index beam, double penalty, Index limit) : beam_(beam), penalty_(penalty), limit_(limit) {
    live_.push_back({});
  }

  Index rows() const { return done_ ? 0 : static_cast<Index>(live_.size()); }
  std::int64_t newest(Index row) const {
    const auto& symbols = live_[static_cast<std::size_t>(row)].symbols;
    return symbols.empty() ? Vocabulary::begin : symbols.back();
  }

  // Takes the log probabilities of all live rows [rows, classes]; returns which
  // old row each new live row continues.
  std::vector<Index> advance(const std::vector<double>& log_p, Index classes);

  Hypothesis best() const {
    const auto& pool = finished_.empty() ? live_ : finished_;
    Hypothesis found = *std::max_element(pool.begin(), pool.end(),
                                         [&](const Hypothesis& a, const Hypothesis& b) { return score(a) < score(b); });
    found.truncated = finished_.empty();
    return found;
  }

 private:
  struct Candidate {
    double log_p;
    Index row;
    std::int64_t symbol;
  };
  double score(const Hypothesis& h) const {
    return h.log_probability / std::pow(static_cast<double>(h.symbols.size() + 1), penalty_);
  }
  std::vector<Candidate> candidates(const std::vector<double>& log_p, Index classes) const;

  Index beam_;
  double penalty_;
  Index limit_;
  bool done_ = false;
  std::vector<Hypothesis> live_, finished_;
};

// The 2 x beam best continuations: at most half of them can be ends.
std::vector<Search::Candidate> Search::candidates(const std::vector<double>& log_p, Index classes) const {
  std::vector<Candidate> all;
  for (Index row = 0; row < static_cast<Index>(live_.size()); ++row)
    for (std::int64_t c = 0; c < classes; ++c) {
      if (c == Vocabulary::pad || c == Vocabulary::begin || c == Vocabulary::unknown) continue;
      all.push_back(
          {live_[static_cast<std::size_t>(row)].log_probability + log_p[static_cast<std::size_t>(row * classes + c)],
           row, c});
    }
  const auto keep = std::min<std::size_t>(all.size(), static_cast<std::size_t>(2 * beam_));
  // Ties go to the smaller row and symbol, so that results never depend on the
  // sorting algorithm.
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keep), all.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.log_p != b.log_p ? a.log_p > b.log_p
                                                : std::pair(a.row, a.symbol) < std::pair(b.row, b.symbol);
                    });
  all.resize(keep);
  return all;
}

std::vector<Index> Search::advance(const std::vector<double>& log_p, Index classes) {
  std::vector<Hypothesis> next;
  std::vector<Index> origins;
  Index rank = 0;
  for (const Candidate& candidate : candidates(log_p, classes)) {
    Hypothesis grown = live_[static_cast<std::size_t>(candidate.row)];
    grown.log_probability = candidate.log_p;
    if (candidate.symbol == Vocabulary::end) {
      // An end outside the best `beam` would beat nothing that is still live.
      if (rank < beam_) finished_.push_back(std::move(grown));
    } else if (static_cast<Index>(next.size()) < beam_) {
      grown.symbols.push_back(candidate.symbol);
      next.push_back(std::move(grown));
      origins.push_back(candidate.row);
    }
    ++rank;
  }
  const bool enough = static_cast<Index>(finished_.size()) >= beam_;
  const bool full = !next.empty() && static_cast<Index>(next.front().symbols.size()) >= limit_;
  done_ = enough || full || next.empty();
  live_ = std::move(next);
  return done_ ? std::vector<Index>{} : origins;
}

Index symbol_limit(const Seq2Seq<float>& model, std::size_t source_length, const DecodingOptions& options) {
  const Index wanted = options.max_symbols > 0 ? options.max_symbols : 3 * static_cast<Index>(source_length) + 10;
  return std::min(wanted, model.config().max_length - 1);
}

// One search a source, in its length.
std::vector<Search> searches_of(const Seq2Seq<float>& model, const std::vector<std::size_t>& lengths,
                                const DecodingOptions& options) {
  if (options.beam < 1) throw ArgumentError("decode: beam must be at least 1, got " + std::to_string(options.beam));
  std::vector<Search> searches;
  for (const std::size_t length : lengths) {
    if (length == 0) throw ArgumentError("decode: a source is empty");
    searches.emplace_back(options.beam, options.length_penalty, symbol_limit(model, length, options));
  }
  return searches;
}

std::vector<Hypothesis> answers_of(Seq2Seq<float>& model, Seq2Seq<float>::State state, std::vector<Search> searches) {
  for (;;) {
    std::vector<std::int64_t> tokens;
    for (const Search& search : searches)
      for (Index row = 0; row < search.rows(); ++row) tokens.push_back(search.newest(row));
    if (tokens.empty()) break;
    const Tensor<float> logits = model.step(state, tokens);
    const Index classes = logits.size(-1);
    std::vector<Index> continued;
    Index first = 0;
    for (Search& search : searches) {
      const Index rows = search.rows();
      if (rows == 0) continue;
      std::vector<double> log_p(static_cast<std::size_t>(rows * classes));
      for (Index row = 0; row < rows; ++row)
        log_softmax(logits.data() + (first + row) * classes, classes, log_p.data() + row * classes);
      for (Index origin : search.advance(log_p, classes)) continued.push_back(first + origin);
      first += rows;
    }
    if (continued.empty()) break;
    state.select(continued);
  }
  std::vector<Hypothesis> answers;
  answers.reserve(searches.size());
  for (const Search& search : searches) answers.push_back(search.best());
  return answers;
}

}  // namespace

std::vector<Hypothesis> decode(Seq2Seq<float>& model, const std::vector<std::vector<std::int64_t>>& sources,
                               const DecodingOptions& options) {
  std::vector<std::size_t> lengths;
  for (const auto& source : sources) lengths.push_back(source.size());
  auto searches = searches_of(model, lengths, options);
  if (sources.empty()) return {};
  return answers_of(model, model.start(padded_ids(sources)), std::move(searches));
}

std::vector<Hypothesis> decode_pictures(Seq2Seq<float>& model, const std::vector<const Tensor<float>*>& pictures,
                                        const DecodingOptions& options) {
  std::vector<std::size_t> lengths;
  for (const auto* picture : pictures)
    lengths.push_back(picture->empty() ? 0 : static_cast<std::size_t>(picture->size(0)));
  auto searches = searches_of(model, lengths, options);
  if (pictures.empty()) return {};
  PaddedPatches padded = padded_patches(pictures);
  return answers_of(model, model.start({std::move(padded.present), std::move(padded.patches)}), std::move(searches));
}

Index edit_distance(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<Index> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<Index>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    Index diagonal = row[0];
    row[0] = static_cast<Index>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const Index substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

void count_errors(const std::vector<std::string>& answer, const std::vector<std::vector<std::string>>& references,
                  ErrorCounts& counts) {
  Index best_distance = std::numeric_limits<Index>::max(), best_length = 0;
  for (const auto& reference : references) {
    const Index distance = edit_distance(answer, reference), length = static_cast<Index>(reference.size());
    if (std::pair(distance, length) < std::pair(best_distance, best_length == 0 ? length + 1 : best_length)) {
      best_distance = distance;
      best_length = length;
    }
  }
  ++counts.sequences;
  counts.wrong_sequences += best_distance != 0;
  counts.symbols += best_length;
  counts.symbol_errors += best_distance;
}

}  // namespace regard
