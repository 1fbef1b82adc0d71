// Nystrom attention's definition in plain double loops over whole matrices.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/variants/nystrom.h"

namespace regard::reference {
namespace {

using Rows = std::vector<std::vector<double>>;

Rows product(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b.empty() ? 0 : b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < c[i].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

// multiple * identity - a
Rows below(double multiple, const Rows& a) {
  Rows c = a;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.size(); ++j) c[i][j] = (i == j ? multiple : 0) - a[i][j];
  return c;
}

// Rows of real queries over real keys; zeros elsewhere.
Rows softmax(const Rows& q, const std::vector<bool>& real_q, const Rows& k, const std::vector<bool>& real_k,
             double scale) {
  Rows weights(q.size(), std::vector<double>(k.size()));
  for (std::size_t i = 0; i < q.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      if (!real_q[i] || !real_k[j]) continue;
      double score = 0;
      for (std::size_t d = 0; d < q[i].size(); ++d) score += q[i][d] * k[j][d];
      sum += weights[i][j] = std::exp(scale * score);
    }
    for (double& weight : weights[i]) weight = sum == 0 ? 0 : weight / sum;
  }
  return weights;
}

Rows pseudo_inverse(const Rows& a, Index iterations) {
  double columns = 0;
  for (std::size_t j = 0; j < a.size(); ++j) {
    double sum = 0;
    for (const auto& row : a) sum += row[j];
    columns = std::max(columns, sum);
  }
  Rows z = a;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.size(); ++j) z[i][j] = columns == 0 ? 0 : a[j][i] / columns;
  for (Index n = 0; n < iterations; ++n) {
    const Rows x = product(a, z);
    z = product(z, below(13, product(x, below(15, product(x, below(7, x))))));
    for (auto& row : z)
      for (double& value : row) value /= 4;
  }
  return z;
}

struct PlainHead {
  Rows q, k, v, landmark_q, landmark_k;
  std::vector<bool> real, real_landmarks;
};

PlainHead read(const NystromInputs<double>& in, const detail::Sizes& s, Index b, Index h) {
  PlainHead head;
  const auto row = [&](const View<const double, 4>& x, Index i) {
    std::vector<double> values;
    for (Index d = 0; d < x.size(3); ++d) values.push_back(x(b, h, i, d));
    return values;
  };
  for (Index i = 0; i < s.q_len; ++i) {
    head.real.push_back(detail::is_real(in.options, b, i));
    const bool real = head.real.back();
    for (const auto& [rows, view] : {std::pair{&head.q, &in.q}, {&head.k, &in.k}, {&head.v, &in.v}})
      rows->push_back(real ? row(*view, i) : std::vector<double>(static_cast<std::size_t>(view->size(3))));
  }
  const Index count = std::min(in.options.landmarks, s.q_len);
  for (Index n = 0; n < count; ++n) {
    std::vector<double> q(static_cast<std::size_t>(s.head_dim)), k(q.size());
    double members = 0;
    for (Index i = 0; i < s.q_len; ++i) {
      const bool inside = i >= n * s.q_len / count && i < (n + 1) * s.q_len / count;
      const auto at = static_cast<std::size_t>(i);
      if (!inside || !head.real[at]) continue;
      members += 1;
      for (std::size_t d = 0; d < q.size(); ++d) q[d] += head.q[at][d], k[d] += head.k[at][d];
    }
    for (std::size_t d = 0; d < q.size() && members > 0; ++d) q[d] /= members, k[d] /= members;
    head.landmark_q.push_back(q);
    head.landmark_k.push_back(k);
    head.real_landmarks.push_back(members > 0);
  }
  return head;
}

}  // namespace

NystromResult<double> nystrom_attend(const NystromInputs<double>& in) {
  const auto s = detail::check_nystrom("reference::nystrom_attend", in);
  const double scale = in.options.scale ? *in.options.scale : 1 / std::sqrt(static_cast<double>(s.head_dim));
  NystromResult<double> result;
  result.out = Tensor<double>({s.batch, s.q_heads, s.q_len, s.value_dim});
  for (Index head = 0; head < s.batch * s.q_heads && s.q_len > 0; ++head) {
    const auto x = read(in, s, head / s.q_heads, head % s.q_heads);
    const auto to = softmax(x.q, x.real, x.landmark_k, x.real_landmarks, scale);
    const auto among = softmax(x.landmark_q, x.real_landmarks, x.landmark_k, x.real_landmarks, scale);
    const auto from = softmax(x.landmark_q, x.real_landmarks, x.k, x.real, scale);
    const auto out = product(to, product(pseudo_inverse(among, in.options.iterations), product(from, x.v)));
    for (Index i = 0; i < s.q_len; ++i)
      for (Index d = 0; d < s.value_dim; ++d)
        result.out[(head * s.q_len + i) * s.value_dim + d] =
            out[static_cast<std::size_t>(i)][static_cast<std::size_t>(d)];
  }
  return result;
}

}  // namespace regard::reference
