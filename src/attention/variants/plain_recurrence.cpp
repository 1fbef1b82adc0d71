// The recurrence's definition in plain loops over matrices, one statement a
// formula, sharing no arithmetic with the kernels.
#include <cmath>

#include "attention/variants/linear_recurrence.h"

namespace regard::reference {
namespace {

using Matrix = std::vector<std::vector<double>>;  // [key_dim][value_dim]
using Row = std::vector<double>;

// What a token met and did.
struct Token {
  Matrix decayed, state;  // before and after it was added
  Row error, update;      // v - S^T k (delta rule) or v; times beta
};

class PlainHead {
 public:
  PlainHead(const RecurrenceInputs<double>& in, const detail::Sizes& s, Index b, Index h)
      : in_(in),
        b_(b),
        h_(h),
        rows_(static_cast<std::size_t>(s.head_dim)),
        cols_(static_cast<std::size_t>(s.value_dim)) {}

  Matrix zeros() const { return Matrix(rows_, Row(cols_)); }
  Matrix read(const View<const double, 4>& view) const {
    Matrix matrix = zeros();
    for (std::size_t r = 0; r < rows_ && view.given(); ++r)
      for (std::size_t d = 0; d < cols_; ++d) matrix[r][d] = view(b_, h_, r, d);
    return matrix;
  }

  double k(Index t, std::size_t r) const { return in_.k(b_, h_, t, r); }
  double forget(Index t, std::size_t r) const {
    return in_.decay.given() ? std::exp(detail::decay_of(in_, {b_, h_, t}, static_cast<Index>(r))) : 1.0;
  }
  double beta(Index t) const { return in_.beta.given() ? detail::beta_of(in_, b_, h_, t) : 1.0; }

  Token step(Index t, const Matrix& before) const {
    Token token{zeros(), zeros(), Row(cols_), Row(cols_)};
    for (std::size_t r = 0; r < rows_; ++r)
      for (std::size_t d = 0; d < cols_; ++d) token.decayed[r][d] = forget(t, r) * before[r][d];
    for (std::size_t d = 0; d < cols_; ++d) {
      double held = 0;
      for (std::size_t r = 0; r < rows_; ++r) held += token.decayed[r][d] * k(t, r);
      token.error[d] = in_.v(b_, h_, t, d) - (in_.beta.given() ? held : 0.0);
      token.update[d] = beta(t) * token.error[d];
    }
    for (std::size_t r = 0; r < rows_; ++r)
      for (std::size_t d = 0; d < cols_; ++d) token.state[r][d] = token.decayed[r][d] + k(t, r) * token.update[d];
    return token;
  }

 private:
  const RecurrenceInputs<double>& in_;
  Index b_, h_;
  std::size_t rows_, cols_;
};

std::vector<Token> run_head(const RecurrenceInputs<double>& in, const detail::Sizes& s, const PlainHead& head) {
  std::vector<Token> tokens;
  for (Index t = 0; t < s.q_len; ++t)
    tokens.push_back(head.step(t, t == 0 ? head.read(in.state) : tokens.back().state));
  return tokens;
}

Tensor<double> like(const auto& view) {
  return view.given() ? Tensor<double>(detail::shape_of(view)) : Tensor<double>();
}

// Adds one token's gradients and turns `slope`, the gradient of the state after
// it, into that of the state before it.
void step_back(const RecurrenceInputs<double>& in, const std::array<Index, 3>& at, const PlainHead& head,
               const Token& token, Matrix& slope, RecurrenceGradients<double>& gradients) {
  const auto& [b, h, t] = at;
  const std::size_t rows = slope.size(), cols = token.error.size();
  const auto dk = gradients.dk.view<4>(), dv = gradients.dv.view<4>();
  for (std::size_t d = 0; d < cols; ++d) {
    double dupdate = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      dupdate += slope[r][d] * head.k(t, r);
      dk(b, h, t, r) += slope[r][d] * token.update[d];
    }
    const double derror = head.beta(t) * dupdate;
    dv(b, h, t, d) = derror;
    if (!in.beta.given()) continue;
    gradients.dbeta.view<3>()(b, in.beta.size(1) == 1 ? Index{0} : h, t) += dupdate * token.error[d];
    for (std::size_t r = 0; r < rows; ++r) {
      dk(b, h, t, r) -= token.decayed[r][d] * derror;
      slope[r][d] -= head.k(t, r) * derror;
    }
  }
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t d = 0; d < cols; ++d) {
      if (in.decay.given())
        gradients.ddecay.view<4>()(b, h, t, in.decay.size(3) == 1 ? 0 : r) += slope[r][d] * token.decayed[r][d];
      slope[r][d] *= head.forget(t, r);
    }
}

}  // namespace

RecurrenceResult<double> linear_recurrence(const RecurrenceInputs<double>& in) {
  const auto s = detail::check_recurrence("reference::linear_recurrence", in);
  RecurrenceResult<double> result{Tensor<double>({s.batch, s.q_heads, s.q_len, s.value_dim}),
                                  Tensor<double>({s.batch, s.kv_heads, s.head_dim, s.value_dim})};
  const auto out = result.out.view<4>(), last = result.state.view<4>();
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.kv_heads; ++h) {
      const PlainHead head(in, s, b, h);
      Matrix state = head.read(in.state);
      for (Index t = 0; t < s.q_len; ++t) {
        state = head.step(t, state).state;
        for (Index reader = h * s.group(); reader < (h + 1) * s.group(); ++reader)
          for (Index d = 0; d < s.value_dim; ++d)
            for (Index r = 0; r < s.head_dim; ++r)
              out(b, reader, t, d) += detail::scale_of(in, s) * in.q(b, reader, t, r) *
                                      state[static_cast<std::size_t>(r)][static_cast<std::size_t>(d)];
      }
      for (Index r = 0; r < s.head_dim; ++r)
        for (Index d = 0; d < s.value_dim; ++d)
          last(b, h, r, d) = state[static_cast<std::size_t>(r)][static_cast<std::size_t>(d)];
    }
  return result;
}

RecurrenceGradients<double> linear_recurrence_backward(View<const double, 4> dout, const RecurrenceInputs<double>& in,
                                                       View<const double, 4> dstate) {
  const char* name = "reference::linear_recurrence_backward";
  const auto s = detail::check_recurrence(name, in);
  detail::check_recurrence_gradients(name, s, dout, dstate);
  RecurrenceGradients<double> gradients{like(in.q),     like(in.k),    like(in.v),
                                        like(in.decay), like(in.beta), like(in.state)};
  const auto dq = gradients.dq.view<4>();
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.kv_heads; ++h) {
      const PlainHead head(in, s, b, h);
      const auto tokens = run_head(in, s, head);
      Matrix slope = head.read(dstate);
      for (Index t = s.q_len - 1; t >= 0; --t) {
        const Token& token = tokens[static_cast<std::size_t>(t)];
        for (Index reader = h * s.group(); reader < (h + 1) * s.group(); ++reader)
          for (Index r = 0; r < s.head_dim; ++r)
            for (Index d = 0; d < s.value_dim; ++d) {
              const auto row = static_cast<std::size_t>(r), col = static_cast<std::size_t>(d);
              dq(b, reader, t, r) += detail::scale_of(in, s) * token.state[row][col] * dout(b, reader, t, d);
              slope[row][col] += detail::scale_of(in, s) * in.q(b, reader, t, r) * dout(b, reader, t, d);
            }
        step_back(in, {b, h, t}, head, token, slope, gradients);
      }
      for (Index r = 0; r < s.head_dim && in.state.given(); ++r)
        for (Index d = 0; d < s.value_dim; ++d)
          gradients.dstate.view<4>()(b, h, r, d) = slope[static_cast<std::size_t>(r)][static_cast<std::size_t>(d)];
    }
  return gradients;
}

}  // namespace regard::reference
