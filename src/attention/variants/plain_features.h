// The definition of attention through features in plain double loops, for any
// feature map given by its logarithms.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "attention/problem.h"
#include "regard/linear_attention.h"

namespace regard::detail {

// `log_features(x)` gives the logarithms of phi(x) for one row of head_dim numbers.
template <class F>
LinearResult<double> plain_feature_attend(const char* name, const View<const double, 4>& q,
                                          const View<const double, 4>& k, const View<const double, 4>& v,
                                          const LinearOptions& options, F log_features) {
  const Sizes s = check_shapes(name, q.sizes(), k.sizes(), v.sizes());
  LinearResult<double> result{Tensor<double>({s.batch, s.q_heads, s.q_len, s.value_dim}),
                              Tensor<double>({s.batch, s.q_heads, s.q_len})};
  const auto features_of = [&](const View<const double, 4>& x, Index b, Index h, Index i) {
    std::vector<double> row;
    for (Index d = 0; d < s.head_dim; ++d) row.push_back(x(b, h, i, d));
    return log_features(row);
  };
  const auto out = result.out.view<4>();
  for (Index n = 0; n < result.normaliser.count(); ++n) {
    const Index i = n % s.q_len, h = n / s.q_len % s.q_heads, b = n / s.q_len / s.q_heads;
    const Index position = options.q_start.of(b, s.q_len, s.kv_len) + i;
    const auto query = features_of(q, b, h, i);
    // Pairs' logarithms first: their largest is taken out before any exponential.
    std::vector<std::vector<double>> pairs(static_cast<std::size_t>(s.kv_len));
    double largest = -std::numeric_limits<double>::infinity();
    for (Index j = 0; j < s.kv_len; ++j) {
      const auto& mask = options.key_mask;
      if ((options.causal && j > position) || (mask.given() && mask(mask.size(0) == 1 ? 0 : b, j) == 0)) continue;
      auto& pair = pairs[static_cast<std::size_t>(j)] = features_of(k, b, h / s.group(), j);
      for (std::size_t f = 0; f < pair.size(); ++f) largest = std::max(largest, pair[f] += query[f]);
    }
    std::vector<double> weights(pairs.size());
    double total = 0;
    for (std::size_t j = 0; j < pairs.size(); ++j) {
      for (double exponent : pairs[j]) weights[j] += std::exp(exponent - largest);
      total += weights[j];
    }
    result.normaliser[n] = total;
    for (Index j = 0; j < s.kv_len && total > 0; ++j)
      for (Index d = 0; d < s.value_dim; ++d)
        if (weights[static_cast<std::size_t>(j)] > 0)
          out(b, h, i, d) += weights[static_cast<std::size_t>(j)] / total * v(b, h / s.group(), j, d);
  }
  return result;
}

}  // namespace regard::detail
