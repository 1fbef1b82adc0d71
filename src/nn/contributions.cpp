#include "regard/contributions.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace {

template <class T>
void check_seen(const char* call, const HeadWeights<T>& seen) {
  const auto need = [&](bool there, const char* what) {
    if (!there) throw ArgumentError(std::string(call) + ": the layer was run without recording its " + what);
  };
  need(seen.weights.rank() == 4, "weights");
  need(seen.layer && seen.key_value && seen.context, "values");
}

struct Sizes {
  Index batch, heads, kv_heads, q_len, kv_len, dim, width;
};

template <class T>
Sizes sizes_of(const HeadWeights<T>& seen) {
  const MultiHeadConfig& config = seen.layer->config;
  const Shape& weights = seen.weights.shape();
  return {weights[0],      weights[1], config.kv_heads, weights[2], weights[3], config.model_dim / config.heads,
          config.model_dim};
}

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double root(double square) { return std::sqrt(std::max(0.0, square)); }

// One batch entry's contributions.
template <class T>
class Entry {
 public:
  Entry(const HeadWeights<T>& seen, bool self, Index b)
      : seen_(seen), self_(self), b_(b), s_(sizes_of(seen)), start_(s_.kv_len - s_.q_len) {}

  void write(Contributions<T>& to) const {
    const std::vector<double> inverse = inverse_deviations();
    std::vector<double> grams(size(s_.kv_len * s_.heads * s_.heads));
    std::vector<double> own(size(s_.q_len * s_.width));  // what the query's own key and the residual give
    for (Index query = 0; query < s_.q_len; ++query) {
      const std::vector<double> residual = residual_of(query);
      std::copy(residual.begin(), residual.end(), own.begin() + query * s_.width);
      to.residual[b_ * s_.q_len + query] = static_cast<T>(inverse[size(query)] * root(dot(residual, residual)));
    }
    for (Index key = 0; key < s_.kv_len; ++key) {
      const std::vector<double> values = values_of(key);
      fill_gram(values, grams.data() + key * s_.heads * s_.heads);
      if (self_ && key >= start_) add_own(key - start_, key, values, own.data() + (key - start_) * s_.width);
    }
    for (Index query = 0; query < s_.q_len; ++query)
      write_query(to, query, inverse[size(query)], grams, {own.data() + query * s_.width, size(s_.width)});
  }

 private:
  static std::size_t size(Index count) { return static_cast<std::size_t>(count); }
  double weight(Index head, Index query, Index key) const {
    return static_cast<double>(seen_.weights[((b_ * s_.heads + head) * s_.q_len + query) * s_.kv_len + key]);
  }

  // The linear part of a norm behind the sum: without the mean, times the gain.
  void norm_linearly(std::span<double> x) const {
    if (!seen_.norm) return;
    double mean = 0;
    for (double value : x) mean += value;
    mean /= static_cast<double>(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = (x[i] - mean) * static_cast<double>(seen_.norm->gain.value[static_cast<Index>(i)]);
  }

  std::vector<double> residual_of(Index query) const {
    const T* from = seen_.residual->value.data() + (b_ * s_.q_len + query) * s_.width;
    std::vector<double> x(from, from + s_.width);
    norm_linearly(x);
    return x;
  }

  // row [dim] of one head through its rows of W_O, added to `to` [width].
  void project(const double* row, Index head, double* to) const {
    const Tensor<T>& weight = seen_.layer->output.weight.value;
    for (Index d = 0; d < s_.dim; ++d) {
      const T* w = weight.data() + (head * s_.dim + d) * s_.width;
      for (Index c = 0; c < s_.width; ++c) to[c] += row[d] * static_cast<double>(w[c]);
    }
  }

  // [heads, width]: the key's value as each head hands it on.
  std::vector<double> values_of(Index key) const {
    const Index kv_width = s_.kv_heads * s_.dim, group = s_.heads / s_.kv_heads;
    std::vector<double> values(size(s_.heads * s_.width), 0.0);
    for (Index head = 0; head < s_.heads; ++head) {
      const T* from =
          seen_.key_value->value.data() + (b_ * s_.kv_len + key) * 2 * kv_width + kv_width + head / group * s_.dim;
      const std::vector<double> value(from, from + s_.dim);
      project(value.data(), head, values.data() + head * s_.width);
      norm_linearly({values.data() + head * s_.width, size(s_.width)});
    }
    return values;
  }

  void fill_gram(const std::vector<double>& values, double* gram) const {
    const auto row = [&](Index head) {
      return std::span<const double>(values.data() + head * s_.width, size(s_.width));
    };
    for (Index g = 0; g < s_.heads; ++g)
      for (Index h = 0; h <= g; ++h) gram[g * s_.heads + h] = gram[h * s_.heads + g] = dot(row(g), row(h));
  }

  void add_own(Index query, Index key, const std::vector<double>& values, double* own) const {
    for (Index head = 0; head < s_.heads; ++head)
      for (Index c = 0; c < s_.width; ++c) own[c] += weight(head, query, key) * values[size(head * s_.width + c)];
  }

  // What the heads give in all, before the norm: context W_O, without the bias.
  std::vector<double> attended(Index query) const {
    const T* from = seen_.context->value.data() + (b_ * s_.q_len + query) * s_.width;
    const std::vector<double> context(from, from + s_.width);
    std::vector<double> sum(size(s_.width), 0.0);
    for (Index head = 0; head < s_.heads; ++head) project(context.data() + head * s_.dim, head, sum.data());
    return sum;
  }

  // 1 / standard deviation of what the norm behind the sum divides by; 1 without one.
  std::vector<double> inverse_deviations() const {
    std::vector<double> inverse(size(s_.q_len), 1.0);
    for (Index query = 0; query < s_.q_len && seen_.norm; ++query) {
      std::vector<double> sum = attended(query);
      double mean = 0, variance = 0;
      for (Index c = 0; c < s_.width; ++c) {
        double& x = sum[size(c)];
        x += static_cast<double>(seen_.residual->value[(b_ * s_.q_len + query) * s_.width + c]);
        if (!seen_.layer->output.bias.value.empty()) x += static_cast<double>(seen_.layer->output.bias.value[c]);
        mean += x / static_cast<double>(s_.width);
      }
      for (double x : sum) variance += (x - mean) * (x - mean) / static_cast<double>(s_.width);
      inverse[size(query)] = 1 / std::sqrt(variance + seen_.norm->epsilon);
    }
    return inverse;
  }

  void write_query(Contributions<T>& to, Index query, double inverse, const std::vector<double>& grams,
                   std::span<const double> own) const {
    std::vector<double> weights(size(s_.heads));
    for (Index key = 0; key < s_.kv_len; ++key) {
      const double* gram = grams.data() + key * s_.heads * s_.heads;
      double square = 0;
      for (Index g = 0; g < s_.heads; ++g) {
        const double w = weights[size(g)] = weight(g, query, key);
        to.heads[((b_ * s_.heads + g) * s_.q_len + query) * s_.kv_len + key] =
            static_cast<T>(inverse * w * root(gram[g * s_.heads + g]));
        for (Index h = 0; h < g; ++h) square += 2 * w * weights[size(h)] * gram[g * s_.heads + h];
        square += w * w * gram[g * s_.heads + g];
      }
      to.joint[(b_ * s_.q_len + query) * s_.kv_len + key] = static_cast<T>(inverse * root(square));
    }
    const double stays = root(dot(own, own));
    if (self_ && start_ + query >= 0)
      to.joint[(b_ * s_.q_len + query) * s_.kv_len + start_ + query] = static_cast<T>(inverse * stays);
    to.mixing[b_ * s_.q_len + query] = static_cast<T>(mixing(query, own, stays));
  }

  double mixing(Index query, std::span<const double> own, double stays) const {
    std::vector<double> elsewhere = attended(query);
    norm_linearly(elsewhere);
    const std::vector<double> residual = residual_of(query);
    for (std::size_t c = 0; c < elsewhere.size(); ++c) elsewhere[c] += residual[c] - own[c];
    const double moves = root(dot(elsewhere, elsewhere));
    return moves + stays > 0 ? moves / (moves + stays) : 0;
  }

  const HeadWeights<T>& seen_;
  bool self_;
  Index b_;
  Sizes s_;
  Index start_;  // the key that query 0 is
};

}  // namespace

template <class T>
Contributions<T> contribution_norms(const HeadWeights<T>& seen, bool self) {
  const char* call = "contribution_norms";
  check_seen(call, seen);
  if (!seen.residual)
    throw ArgumentError(std::string(call) +
                        ": the layer was run without its residual, which EncoderLayer and "
                        "DecoderLayer record");
  if (seen.residual->value.shape() != seen.context->value.shape())
    throw ArgumentError(std::string(call) + ": residual " + seen.residual->value.text() + " but the heads gave " +
                        seen.context->value.text());
  const Sizes s = sizes_of(seen);
  Contributions<T> result{Tensor<T>(seen.weights.shape()), Tensor<T>({s.batch, s.q_len, s.kv_len}),
                          Tensor<T>({s.batch, s.q_len}), Tensor<T>({s.batch, s.q_len})};
  parallel_ranges(s.batch, 1, [&](Index begin, Index end) {
    for (Index b = begin; b < end; ++b) Entry<T>(seen, self, b).write(result);
  });
  return result;
}

template <class T>
Tensor<T> gradient_times_weight(const HeadWeights<T>& seen) {
  const char* call = "gradient_times_weight";
  check_seen(call, seen);
  const Tensor<T>& gradient = seen.context->gradient;
  if (gradient.empty() && seen.context->value.count() > 0)
    throw ArgumentError(std::string(call) + ": no gradient has come back to the layer");
  const Sizes s = sizes_of(seen);
  const Index kv_width = s.kv_heads * s.dim, group = s.heads / s.kv_heads;
  Tensor<T> result(seen.weights.shape());
  for (Index at = 0; at < result.count(); ++at) {
    const Index key = at % s.kv_len, query = at / s.kv_len % s.q_len, head = at / (s.kv_len * s.q_len) % s.heads;
    const Index b = at / (s.kv_len * s.q_len * s.heads);
    const T* given = gradient.data() + (b * s.q_len + query) * s.width + head * s.dim;
    const T* value =
        seen.key_value->value.data() + (b * s.kv_len + key) * 2 * kv_width + kv_width + head / group * s.dim;
    double slope = 0;
    for (Index d = 0; d < s.dim; ++d) slope += static_cast<double>(given[d]) * static_cast<double>(value[d]);
    result[at] = static_cast<T>(slope * static_cast<double>(seen.weights[at]));
  }
  return result;
}

template Contributions<float> contribution_norms(const HeadWeights<float>&, bool);
template Contributions<double> contribution_norms(const HeadWeights<double>&, bool);
template Tensor<float> gradient_times_weight(const HeadWeights<float>&);
template Tensor<double> gradient_times_weight(const HeadWeights<double>&);

}  // namespace regard
