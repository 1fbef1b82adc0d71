// Relative attention's definition in plain double loops, forward and backward.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/variants/relative.h"

namespace regard::reference {
namespace {

// One row of the reference: its scores in double, -inf where hidden.
std::vector<double> plain_scores(const detail::Sizes& sizes, const RelativeTerms<double>& terms,
                                 const RelativeOptions<double>& options, const View<const double, 4>& q,
                                 const View<const double, 4>& k, const std::array<Index, 3>& at) {
  const auto& [b, h, i] = at;
  const Index start = options.q_start.of(b, sizes.q_len, sizes.kv_len), last = terms.keys.size(1) - 1;
  const double scale = options.scale ? *options.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(sizes.kv_len));
  options.mask.fill({b, h, i, 1, 0, sizes.kv_len, start}, visible.data(), sizes.kv_len);
  std::vector<double> scores(static_cast<std::size_t>(sizes.kv_len), -std::numeric_limits<double>::infinity());
  for (Index j = 0; j < sizes.kv_len; ++j) {
    if (!visible[static_cast<std::size_t>(j)]) continue;
    const Index row = std::clamp(j - (start + i) - terms.first, Index{0}, last);
    double score = 0;
    for (Index d = 0; d < sizes.head_dim; ++d) {
      const double u =
          terms.content_bias.given() ? terms.content_bias(detail::table_head(terms.content_bias, h), d) : 0;
      const double w =
          terms.position_bias.given() ? terms.position_bias(detail::table_head(terms.position_bias, h), d) : 0;
      score += (q(b, h, i, d) + u) * k(b, h / sizes.group(), j, d);
      score += (q(b, h, i, d) + w) * terms.keys(detail::table_head(terms.keys, h), row, d);
    }
    scores[static_cast<std::size_t>(j)] = score * scale;
  }
  return scores;
}

// Adds what one visible pair's d(score) / scale and weight give.
struct PairGradient {
  Index b, h, i, j, distance;
  double dscore, weight;
};
void add_pair(const BasicRelativeInputs<double>& in, const View<const double, 4>& dout, const detail::Sizes& sizes,
              const PairGradient& pair, BasicRelativeGradients<double>& gradients) {
  const auto& [b, h, i, j, distance, dscore, weight] = pair;
  const auto& terms = in.terms;
  const Index kv_head = h / sizes.group(), table = detail::table_head(terms.keys, h);
  const auto dq = gradients.dq.view<4>(), dk = gradients.dk.view<4>(), dv = gradients.dv.view<4>();
  const auto dkeys = gradients.dkeys.view<3>();
  for (Index d = 0; d < sizes.head_dim; ++d) {
    const double key = in.k(b, kv_head, j, d), far = terms.keys(table, distance, d), query = in.q(b, h, i, d);
    double content = query, position = query;
    if (terms.content_bias.given()) {
      const Index head = detail::table_head(terms.content_bias, h);
      content += terms.content_bias(head, d);
      gradients.dcontent_bias.view<2>()(head, d) += dscore * key;
    }
    if (terms.position_bias.given()) {
      const Index head = detail::table_head(terms.position_bias, h);
      position += terms.position_bias(head, d);
      gradients.dposition_bias.view<2>()(head, d) += dscore * far;
    }
    dq(b, h, i, d) += dscore * (key + far);
    dk(b, kv_head, j, d) += dscore * content;
    dkeys(table, distance, d) += dscore * position;
  }
  for (Index d = 0; d < sizes.value_dim; ++d) {
    dv(b, kv_head, j, d) += weight * dout(b, h, i, d);
    if (terms.values.given())
      gradients.dvalues.view<3>()(detail::table_head(terms.values, h), distance, d) += weight * dout(b, h, i, d);
  }
}

template <class V>
Tensor<double> zeros_like(const V& view) {
  return view.given() ? Tensor<double>(detail::shape_of(view)) : Tensor<double>();
}

}  // namespace

RelativeResult<double> relative_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                       const RelativeTerms<double>& terms, const RelativeOptions<double>& options) {
  const auto sizes =
      detail::check_relative("reference::relative_attend", q.sizes(), k.sizes(), v.sizes(), terms, options);
  RelativeResult<double> result{Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}),
                                Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len})};
  const auto out = result.out.view<4>();
  for (Index row = 0; row < result.lse.count(); ++row) {
    const Index i = row % sizes.q_len, h = row / sizes.q_len % sizes.q_heads, b = row / sizes.q_len / sizes.q_heads;
    const auto scores = plain_scores(sizes, terms, options, q, k, {b, h, i});
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    double top = hidden, sum = 0;
    for (double score : scores) top = std::max(top, score);
    for (double score : scores) sum += score == hidden ? 0 : std::exp(score - top);
    result.lse[row] = sum == 0 ? hidden : top + std::log(sum);
    const Index start = options.q_start.of(b, sizes.q_len, sizes.kv_len), last = terms.keys.size(1) - 1;
    for (Index j = 0; j < sizes.kv_len; ++j) {
      if (scores[static_cast<std::size_t>(j)] == hidden) continue;
      const double weight = std::exp(scores[static_cast<std::size_t>(j)] - result.lse[row]);
      const Index distance = std::clamp(j - (start + i) - terms.first, Index{0}, last);
      for (Index d = 0; d < sizes.value_dim; ++d) {
        const double add = terms.values.given() ? terms.values(detail::table_head(terms.values, h), distance, d) : 0;
        out(b, h, i, d) += weight * (v(b, h / sizes.group(), j, d) + add);
      }
    }
  }
  return result;
}

BasicRelativeGradients<double> relative_attend_backward(View<const double, 4> dout,
                                                        const BasicRelativeInputs<double>& in) {
  const char* name = "reference::relative_attend_backward";
  const auto& terms = in.terms;
  const auto sizes = detail::check_relative(name, in.q.sizes(), in.k.sizes(), in.v.sizes(), terms, in.options);
  detail::check_equal(name, "dout", detail::shape_of(dout), {sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  BasicRelativeGradients<double> gradients{zeros_like(in.q),
                                           zeros_like(in.k),
                                           zeros_like(in.v),
                                           zeros_like(terms.keys),
                                           zeros_like(terms.values),
                                           zeros_like(terms.content_bias),
                                           zeros_like(terms.position_bias)};
  const double scale = in.options.scale ? *in.options.scale : 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  const auto forward = relative_attend(in.q, in.k, in.v, terms, in.options);
  const auto out = forward.out.view<4>();
  for (Index row = 0; row < forward.lse.count(); ++row) {
    const Index i = row % sizes.q_len, h = row / sizes.q_len % sizes.q_heads, b = row / sizes.q_len / sizes.q_heads;
    const auto scores = plain_scores(sizes, terms, in.options, in.q, in.k, {b, h, i});
    const Index start = in.options.q_start.of(b, sizes.q_len, sizes.kv_len), last = terms.keys.size(1) - 1;
    for (Index j = 0; j < sizes.kv_len; ++j) {
      if (scores[static_cast<std::size_t>(j)] == -std::numeric_limits<double>::infinity()) continue;
      const Index distance = std::clamp(j - (start + i) - terms.first, Index{0}, last);
      const double weight = std::exp(scores[static_cast<std::size_t>(j)] - forward.lse[row]);
      double dweight = 0;
      for (Index d = 0; d < sizes.value_dim; ++d) {
        const double add = terms.values.given() ? terms.values(detail::table_head(terms.values, h), distance, d) : 0;
        dweight += dout(b, h, i, d) * (in.v(b, h / sizes.group(), j, d) + add - out(b, h, i, d));
      }
      add_pair(in, dout, sizes, {b, h, i, j, distance, scale * weight * dweight, weight}, gradients);
    }
  }
  return gradients;
}

}  // namespace regard::reference
