// The definition of structured attention over a chain: forward-backward messages
// for both states of every key, as logarithms, in plain double loops.
#include <algorithm>
#include <vector>

#include "attention/variants/chain_attention.h"

namespace regard::reference {
namespace {

double log_add(double a, double b) {
  const double top = std::max(a, b);
  return top + std::log(std::exp(a - top) + std::exp(b - top));
}

// p(z_j = 1) for every key of a chain with these scores.
std::vector<double> marginals_of(const std::vector<double>& scores, const detail::ChainLinks& links) {
  const std::size_t n = scores.size();
  using Messages = std::array<double, 2>;
  std::vector<Messages> before(n), after(n, Messages{0, 0});
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t state = 0; state < 2; ++state) {
      const double own = state == 1 ? scores[j] : 0;
      before[j][state] =
          j == 0 ? own : own + log_add(before[j - 1][0] + links[state], before[j - 1][1] + links[2 + state]);
    }
  for (std::size_t j = n - 1; j-- > 0;)
    for (std::size_t state = 0; state < 2; ++state)
      after[j][state] =
          log_add(links[2 * state] + after[j + 1][0], links[2 * state + 1] + scores[j + 1] + after[j + 1][1]);
  std::vector<double> marginals(n);
  for (std::size_t j = 0; j < n; ++j) {
    const double off = before[j][0] + after[j][0], on = before[j][1] + after[j][1];
    marginals[j] = std::exp(on - log_add(off, on));
  }
  return marginals;
}

}  // namespace

ChainResult<double> chain_attend(const ChainInputs<double>& in, bool marginals) {
  const auto sizes = detail::check_chain("reference::chain_attend", in);
  const double scale = detail::chain_scale(in, sizes);
  ChainResult<double> result;
  result.out = Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  if (marginals) result.marginals = Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len});
  for (Index row = 0; row < sizes.batch * sizes.q_heads * sizes.q_len; ++row) {
    const Index i = row % sizes.q_len, h = row / sizes.q_len % sizes.q_heads, b = row / sizes.q_len / sizes.q_heads;
    const Index group = h / sizes.group(), length = detail::chain_length(in, sizes, b);
    if (length == 0) continue;
    std::vector<double> scores(static_cast<std::size_t>(length));
    for (Index j = 0; j < length; ++j)
      for (Index d = 0; d < sizes.head_dim; ++d)
        scores[static_cast<std::size_t>(j)] += scale * in.q(b, h, i, d) * in.k(b, group, j, d);
    const auto on = marginals_of(scores, detail::links_of(in.links, h));
    for (Index j = 0; j < length; ++j)
      for (Index d = 0; d < sizes.value_dim; ++d)
        result.out[row * sizes.value_dim + d] += on[static_cast<std::size_t>(j)] * in.v(b, group, j, d);
    if (marginals) std::copy(on.begin(), on.end(), result.marginals.data() + row * sizes.kv_len);
  }
  return result;
}

}  // namespace regard::reference
