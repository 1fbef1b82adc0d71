// Nystrom attention: two passes of exact attention, from landmarks to all tokens
// and from all tokens to landmarks, with a pseudo-inverse between them that is as
// small as the landmarks are few, and is computed in double.
#include "attention/variants/nystrom.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/instruction_sets.h"
#include "regard/attend.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace detail {

template <class T>
Sizes check_nystrom(const char* call, const NystromInputs<T>& in) {
  const Sizes sizes = check_shapes(call, in.q.sizes(), in.k.sizes(), in.v.sizes());
  const auto& options = in.options;
  const auto refuse = [&](const std::string& what) { throw ArgumentError(std::string(call) + ": " + what); };
  if (options.causal)
    refuse("causal is not possible: each landmark mixes positions, later ones too; use attend with causal() instead");
  if (sizes.q_heads != sizes.kv_heads || sizes.q_len != sizes.kv_len)
    refuse("q and k need the same heads and length (q " + in.q.text() + ", k " + in.k.text() + ")");
  if (options.landmarks < 1) refuse("landmarks must be at least 1, got " + std::to_string(options.landmarks));
  if (options.iterations < 1) refuse("iterations must be at least 1, got " + std::to_string(options.iterations));
  if (options.scale && !std::isfinite(*options.scale)) refuse("scale is not finite");
  const auto& mask = options.key_mask;
  if (mask.given() && ((mask.size(0) != 1 && mask.size(0) != sizes.batch) || mask.size(1) != sizes.q_len))
    refuse("key_mask " + mask.text() + " needs [batch or 1,len] = " + shape_text(Shape{sizes.batch, sizes.q_len}));
  return sizes;
}
template Sizes check_nystrom(const char*, const NystromInputs<float>&);
template Sizes check_nystrom(const char*, const NystromInputs<double>&);

// c = a b, row-major: a [rows, depth], b [depth, cols].
struct PlainProduct {
  const double *a, *b;
  double* c;
  Index rows, depth, cols;
};
REGARD_EACH_INSTRUCTION_SET void multiply_plain(const PlainProduct& p) {
  std::fill_n(p.c, p.rows * p.cols, 0.0);
  for (Index i = 0; i < p.rows; ++i)
    for (Index k = 0; k < p.depth; ++k) {
      const double factor = p.a[i * p.depth + k];
      const double* from = p.b + k * p.cols;
      double* to = p.c + i * p.cols;
#pragma GCC ivdep
      for (Index j = 0; j < p.cols; ++j) to[j] += factor * from[j];
    }
}

namespace {

class Matrix {
 public:
  Matrix(Index rows, Index cols) : rows_(rows), cols_(cols), values_(static_cast<std::size_t>(rows * cols)) {}
  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  double& operator()(Index i, Index j) { return values_[static_cast<std::size_t>(i * cols_ + j)]; }
  double operator()(Index i, Index j) const { return values_[static_cast<std::size_t>(i * cols_ + j)]; }
  const double* data() const { return values_.data(); }

  Matrix transposed() const {
    Matrix turned(cols_, rows_);
    for (Index i = 0; i < rows_; ++i)
      for (Index j = 0; j < cols_; ++j) turned(j, i) = (*this)(i, j);
    return turned;
  }
  friend Matrix operator*(const Matrix& a, const Matrix& b) {
    Matrix c(a.rows_, b.cols_);
    multiply_plain({a.data(), b.data(), c.values_.data(), a.rows_, a.cols_, b.cols_});
    return c;
  }
  // this += factor * other
  void add(const Matrix& other, double factor) {
    for (std::size_t n = 0; n < values_.size(); ++n) values_[n] += factor * other.values_[n];
  }
  // multiple * identity - this
  Matrix below_identity(double multiple) const {
    Matrix result(rows_, cols_);
    result.add(*this, -1);
    for (Index i = 0; i < rows_; ++i) result(i, i) += multiple;
    return result;
  }

 private:
  Index rows_, cols_;
  std::vector<double> values_;
};

// Rows of one head.
Matrix read(const Tensor<float>& x, Index head) {
  Matrix rows(x.size(2), x.size(3));
  for (Index i = 0; i < rows.rows(); ++i)
    for (Index j = 0; j < rows.cols(); ++j)
      rows(i, j) = static_cast<double>(x[(head * rows.rows() + i) * rows.cols() + j]);
  return rows;
}
void write(const Matrix& rows, Tensor<float>& x, Index head) {
  for (Index i = 0; i < rows.rows(); ++i)
    for (Index j = 0; j < rows.cols(); ++j)
      x[(head * rows.rows() + i) * rows.cols() + j] = static_cast<float>(rows(i, j));
}

// The pseudo-inverse and its way back.
class Inverse {
 public:
  Inverse(Matrix of, Index iterations) : a_(std::move(of)) {
    // A^T over its largest sums of a column and of a row, which is 1.
    for (Index j = 0; j < a_.cols(); ++j) {
      double sum = 0;
      for (Index i = 0; i < a_.rows(); ++i) sum += a_(i, j);
      if (sum > largest_) largest_ = sum, column_ = j;
    }
    Matrix first(a_.cols(), a_.rows());
    if (largest_ > 0) first.add(a_.transposed(), 1 / largest_);
    steps_.push_back(std::move(first));
    for (Index n = 0; n < iterations; ++n) steps_.push_back(Step(a_, steps_.back()).next());
  }
  const Matrix& value() const { return steps_.back(); }

  // d(loss)/dA from d(loss)/d(value).
  Matrix back(Matrix dz) const {
    Matrix da(a_.rows(), a_.cols());
    for (std::size_t n = steps_.size() - 1; n-- > 0;) dz = Step(a_, steps_[n]).back(dz, da);
    if (largest_ == 0) return da;
    da.add(dz.transposed(), 1 / largest_);
    double dlargest = 0;
    for (Index i = 0; i < a_.rows(); ++i)
      for (Index j = 0; j < a_.cols(); ++j) dlargest -= dz(j, i) * a_(i, j) / (largest_ * largest_);
    for (Index i = 0; i < a_.rows(); ++i) da(i, column_) += dlargest;
    return da;
  }

 private:
  // Z' = Z r / 4 with x = A Z, p = 7 - x, q = 15 - x p, r = 13 - x q.
  struct Step {
    Step(const Matrix& matrix, const Matrix& now)
        : a(matrix),
          z(now),
          x(a * z),
          p(x.below_identity(7)),
          q((x * p).below_identity(15)),
          r((x * q).below_identity(13)) {}
    Matrix next() const {
      Matrix result(z.rows(), z.cols());
      result.add(z * r, 0.25);
      return result;
    }
    // d(Z) from d(Z'); adds to da.
    Matrix back(const Matrix& dnext, Matrix& da) const {
      const Matrix turned = x.transposed();
      Matrix dz(z.rows(), z.cols()), dr(r.rows(), r.cols()), dx(x.rows(), x.cols());
      dz.add(dnext * r.transposed(), 0.25);
      dr.add(z.transposed() * dnext, 0.25);
      dx.add(dr * q.transposed(), -1);
      const Matrix minus_dq = turned * dr, dp = turned * minus_dq;
      dx.add(minus_dq * p.transposed(), 1);
      dx.add(dp, -1);
      da.add(dx * z.transposed(), 1);
      dz.add(a.transposed() * dx, 1);
      return dz;
    }
    const Matrix &a, &z;
    Matrix x, p, q, r;
  };

  Matrix a_;
  double largest_ = 0;
  Index column_ = 0;
  std::vector<Matrix> steps_;
};

// One call's sizes, masks and landmarks.
class Nystrom {
 public:
  Nystrom(const char* call, const NystromInputs<float>& in)
      : in_(in),
        sizes_(check_nystrom(call, in)),
        segments_(sizes_, in.options),
        scale_(in.options.scale ? *in.options.scale : 1 / std::sqrt(static_cast<double>(sizes_.head_dim))),
        tokens_({sizes_.batch, sizes_.q_len}),
        counts_({sizes_.batch, segments_.count}) {
    for (Index b = 0; b < sizes_.batch; ++b)
      for (Index n = 0; n < segments_.count; ++n)
        for (Index i = segments_.first(n); i < segments_.first(n + 1); ++i) {
          tokens_[b * sizes_.q_len + i] = is_real(in.options, b, i);
          counts_[b * segments_.count + n] += tokens_[b * sizes_.q_len + i];
        }
  }

  const Sizes& sizes() const { return sizes_; }
  Index heads() const { return sizes_.batch * sizes_.q_heads; }
  AttendOptions from_landmarks() const { return options(padding(counts_, tokens_, 0)); }
  AttendOptions to_landmarks() const { return options(padding(tokens_, counts_, 0)); }

  // Means of the real tokens of every segment.
  Tensor<float> means(const View<const float, 4>& x) const {
    Tensor<float> result({sizes_.batch, sizes_.q_heads, segments_.count, sizes_.head_dim});
    for_each_token([&](Index head, Index n, Index i, double share) {
      float* to = result.data() + (head * segments_.count + n) * sizes_.head_dim;
      for (Index d = 0; d < sizes_.head_dim; ++d)
        to[d] += static_cast<float>(share) * x(head / sizes_.q_heads, head % sizes_.q_heads, i, d);
    });
    return result;
  }
  // The way back: tokens gain their share of their landmark's gradient.
  void add_means(const Tensor<float>& dmeans, Tensor<float>& dx) const {
    for_each_token([&](Index head, Index n, Index i, double share) {
      const float* from = dmeans.data() + (head * segments_.count + n) * sizes_.head_dim;
      float* to = dx.data() + (head * sizes_.q_len + i) * sizes_.head_dim;
      for (Index d = 0; d < sizes_.head_dim; ++d) to[d] += static_cast<float>(share) * from[d];
    });
  }

  // f(q~, k~) of one head.
  Matrix among_landmarks(const Matrix& q, const Matrix& k, Index head) const {
    Matrix scores = q * k.transposed();
    for (Index i = 0; i < scores.rows(); ++i) {
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Index j = 0; j < scores.cols(); ++j)
        if (seen(head, i, j)) top = std::max(top, scale_ * scores(i, j));
      for (Index j = 0; j < scores.cols(); ++j)
        sum += scores(i, j) = seen(head, i, j) ? std::exp(scale_ * scores(i, j) - top) : 0;
      for (Index j = 0; j < scores.cols() && sum > 0; ++j) scores(i, j) /= sum;
    }
    return scores;
  }
  // d(scores before the scale) from d(f).
  Matrix back_among_landmarks(const Matrix& weights, const Matrix& dweights) const {
    Matrix dscores(weights.rows(), weights.cols());
    for (Index i = 0; i < weights.rows(); ++i) {
      double shared = 0;
      for (Index j = 0; j < weights.cols(); ++j) shared += weights(i, j) * dweights(i, j);
      for (Index j = 0; j < weights.cols(); ++j) dscores(i, j) = scale_ * weights(i, j) * (dweights(i, j) - shared);
    }
    return dscores;
  }

 private:
  AttendOptions options(const Mask& mask) const {
    AttendOptions options{.mask = mask, .scale = static_cast<float>(scale_)};
    options.observe.lse = true;
    return options;
  }
  bool seen(Index head, Index i, Index j) const {
    const std::int64_t* counts = counts_.data() + head / sizes_.q_heads * segments_.count;
    return counts[i] > 0 && counts[j] > 0;
  }
  template <class F>
  void for_each_token(F work) const {
    parallel_items(heads(), [&](Index head, int) {
      const Index b = head / sizes_.q_heads;
      for (Index n = 0; n < segments_.count; ++n)
        for (Index i = segments_.first(n); i < segments_.first(n + 1); ++i)
          if (tokens_[b * sizes_.q_len + i] != 0)
            work(head, n, i, 1.0 / static_cast<double>(counts_[b * segments_.count + n]));
    });
  }

  const NystromInputs<float>& in_;
  Sizes sizes_;
  Segments segments_;
  double scale_;
  Tensor<std::int64_t> tokens_, counts_;  // 1 for real tokens; real tokens of every segment
};

void check_forward(const char* call, const Nystrom& nystrom, const NystromInputs<float>& in,
                   const View<const float, 4>& dout, const NystromResult<float>& forward) {
  const Sizes& s = nystrom.sizes();
  const Index landmarks = std::min(in.options.landmarks, s.q_len);
  const Shape out{s.batch, s.q_heads, s.q_len, s.value_dim}, means{s.batch, s.q_heads, landmarks, s.head_dim};
  const Shape summaries{s.batch, s.q_heads, landmarks, s.value_dim};
  check_equal(call, "dout", shape_of(dout), out);
  check_equal(call, "forward.out", forward.out.shape(), out);
  check_equal(call, "forward.landmark_q", forward.landmark_q.shape(), means);
  check_equal(call, "forward.landmark_k", forward.landmark_k.shape(), means);
  check_equal(call, "forward.summaries", forward.summaries.shape(), summaries);
  check_equal(call, "forward.mixed", forward.mixed.shape(), summaries);
}

}  // namespace
}  // namespace detail

NystromResult<float> nystrom_attend(const NystromInputs<float>& inputs) {
  const detail::Nystrom nystrom("nystrom_attend", inputs);
  NystromResult<float> result;
  result.landmark_q = nystrom.means(inputs.q);
  result.landmark_k = nystrom.means(inputs.k);
  auto from = attend(result.landmark_q, inputs.k, inputs.v, nystrom.from_landmarks());
  result.summaries = std::move(from.out);
  result.summaries_lse = std::move(from.lse);
  result.mixed = Tensor<float>::uninitialised(result.summaries.shape());
  parallel_items(nystrom.heads(), [&](Index head, int) {
    const auto weights =
        nystrom.among_landmarks(detail::read(result.landmark_q, head), detail::read(result.landmark_k, head), head);
    const detail::Inverse inverse(weights, inputs.options.iterations);
    detail::write(inverse.value() * detail::read(result.summaries, head), result.mixed, head);
  });
  auto to = attend(inputs.q, result.landmark_k, result.mixed, nystrom.to_landmarks());
  result.out = std::move(to.out);
  result.lse = std::move(to.lse);
  return result;
}

NystromGradients nystrom_attend_backward(View<const float, 4> dout, const NystromInputs<float>& inputs,
                                         const NystromResult<float>& forward) {
  const char* name = "nystrom_attend_backward";
  const detail::Nystrom nystrom(name, inputs);
  detail::check_forward(name, nystrom, inputs, dout, forward);
  auto to = attend_backward(dout, inputs.q, forward.landmark_k, forward.mixed, {forward.out, forward.lse.view<3>()},
                            nystrom.to_landmarks());
  Tensor<float> dsummaries(forward.summaries.shape());
  Tensor<float> dlandmark_q(forward.landmark_q.shape()), dlandmark_k(forward.landmark_k.shape());
  parallel_items(nystrom.heads(), [&](Index head, int) {
    const auto q = detail::read(forward.landmark_q, head), k = detail::read(forward.landmark_k, head);
    const auto weights = nystrom.among_landmarks(q, k, head);
    const detail::Inverse inverse(weights, inputs.options.iterations);
    const auto dmixed = detail::read(to.dv, head);
    detail::write(inverse.value().transposed() * dmixed, dsummaries, head);
    const auto dweights = inverse.back(dmixed * detail::read(forward.summaries, head).transposed());
    const auto dscores = nystrom.back_among_landmarks(weights, dweights);
    auto dk = detail::read(to.dk, head);
    dk.add(dscores.transposed() * q, 1);
    detail::write(dscores * k, dlandmark_q, head);
    detail::write(dk, dlandmark_k, head);
  });
  auto from = attend_backward(dsummaries, forward.landmark_q, inputs.k, inputs.v,
                              {forward.summaries, forward.summaries_lse.view<3>()}, nystrom.from_landmarks());
  for (Index i = 0; i < dlandmark_q.count(); ++i) dlandmark_q[i] += from.dq[i];
  nystrom.add_means(dlandmark_q, to.dq);
  nystrom.add_means(dlandmark_k, from.dk);
  return {std::move(to.dq), std::move(from.dk), std::move(from.dv)};
}

}  // namespace regard
