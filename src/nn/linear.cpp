#include "regard/layers.h"

#include <cmath>
#include <numbers>

#include "nn/matmul.h"
#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

using detail::check_width;
using detail::element_grain;
using detail::gradient_slot;
using detail::Matrix;
using detail::row_count;

template <class T>
Matrix<const T> as_matrix(const Tensor<T>& x) {
  return {x.data(), row_count(x), x.size(-1)};
}

template <class T>
T normal_distribution(T x) {
  return T(0.5) * (T(1) + std::erf(x * T(std::numbers::sqrt2 / 2)));
}

// The derivative of GELU: Phi(x) + x * phi(x).
template <class T>
T gelu_slope(T x) {
  const T density = std::exp(T(-0.5) * x * x) * T(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return normal_distribution(x) + x * density;
}

// GELU by tanh, and its derivative: with t = tanh(u), (1 + t) / 2 + x / 2 * (1 - t^2) * u'.
template <class T>
T tanh_of(T x) {
  return std::tanh(T(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (x + T(0.044715) * x * x * x));
}

template <class T>
T gelu_tanh_slope(T x) {
  const T t = tanh_of(x);
  const T inner = T(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (T(1) + T(3 * 0.044715) * x * x);
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * inner;
}

// y += bias, then the activation. For GELU, `before` keeps what it saw.
template <class T>
void add_bias_and_activate(Tensor<T>& y, const Tensor<T>& bias, Activation activation, Tensor<T>* before) {
  const Index width = y.size(-1);
  detail::parallel_rows(row_count(y), width, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      T* values = y.data() + row * width;
      if (!bias.empty() && activation == Activation::relu)
        detail::add_and_rectify(values, bias.data(), width);
      else if (!bias.empty())
        detail::sum(values, values, bias.data(), width);
      else if (activation == Activation::relu)
        detail::rectify(values, width);
      if (before) std::copy_n(values, width, before->data() + row * width);
      if (activation == Activation::gelu)
        for (Index j = 0; j < width; ++j) values[j] *= normal_distribution(values[j]);
      else if (activation == Activation::gelu_tanh)
        for (Index j = 0; j < width; ++j) values[j] *= T(0.5) * (T(1) + tanh_of(values[j]));
    }
  });
}

// dy becomes d(before activation).
template <class T>
void activation_backward(Tensor<T>& dy, const Tensor<T>& y, Activation activation, const Tensor<T>& before) {
  if (activation == Activation::none) return;
  parallel_ranges(dy.count(), element_grain, [&](Index begin, Index end) {
    if (activation == Activation::relu)
      detail::rectify_backward(dy.data() + begin, y.data() + begin, end - begin);
    else if (activation == Activation::gelu)
      for (Index i = begin; i < end; ++i) dy[i] *= gelu_slope(before[i]);
    else
      for (Index i = begin; i < end; ++i) dy[i] *= gelu_tanh_slope(before[i]);
  });
}

}  // namespace

template <class T>
Linear<T>::Linear(const std::string& name, Index in, Index out, Random& random, bool with_bias)
    : weight(name + ".weight", {in, out}, true) {
  if (with_bias) bias = Parameter<T>(name + ".bias", {out}, false);
  const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
  for (T& value : weight.value.values()) value = static_cast<T>(bound * (2.0 * random.uniform_double() - 1.0));
}

template <class T>
Var<T> Linear<T>::forward(Tape<T>& tape, const Var<T>& x, Activation activation) {
  check_width(weight.name, x->value.shape(), in());
  auto y = tape.node(Tensor<T>::uninitialised(detail::with_last(x->value.shape(), out())));
  const Matrix<const T> w{weight.value.data(), in(), out()};
  detail::multiply(as_matrix(x->value), w, Matrix<T>{y->value.data(), row_count(y->value), out()});
  const auto before = std::make_shared<Tensor<T>>();
  const bool smooth = activation == Activation::gelu || activation == Activation::gelu_tanh;
  const bool keep = smooth && tape.recording();
  if (keep) *before = Tensor<T>::uninitialised(y->value.shape());
  add_bias_and_activate(y->value, bias.value, activation, keep ? before.get() : nullptr);
  tape.record([this, x, y, activation, before, w] {
    if (y->gradient.empty()) return;
    activation_backward(y->gradient, y->value, activation, *before);
    const auto dy = as_matrix(y->gradient);
    detail::add_transposed_product(as_matrix(x->value), dy, Matrix<T>{weight.gradient.data(), in(), out()});
    if (!bias.value.empty()) detail::add_column_sums(dy, bias.gradient.data());
    if (!x->wants_gradient) return;
    const auto slot = gradient_slot(*x);
    detail::multiply_transposed(dy, w, Matrix<T>{slot.data, dy.rows, in()}, slot.add);
  });
  return y;
}

template <class T>
void Linear<T>::collect(Parameters<T>& list) {
  list.push_back(&weight);
  if (!bias.value.empty()) list.push_back(&bias);
}

template <class T>
Var<T> project_onto(Tape<T>& tape, const Var<T>& x, Parameter<T>& table) {
  check_width(table.name, x->value.shape(), table.value.size(1));
  return detail::project_rows(tape, x, table, detail::with_last(x->value.shape(), table.value.size(0)));
}

template <class T>
Var<T> detail::project_rows(Tape<T>& tape, const Var<T>& x, Parameter<T>& weight, const Shape& shape) {
  const Index in = weight.value.size(-1);
  const Matrix<const T> w{weight.value.data(), weight.value.count() / in, in};
  const Index rows = x->value.count() / in;
  auto y = tape.node(Tensor<T>::uninitialised(shape));
  detail::multiply_transposed(Matrix<const T>{x->value.data(), rows, in}, w, Matrix<T>{y->value.data(), rows, w.rows});
  tape.record([x, y, w, rows, &weight] {
    if (y->gradient.empty()) return;
    const Matrix<const T> dy{y->gradient.data(), rows, w.rows}, from{x->value.data(), rows, w.cols};
    detail::add_transposed_product(dy, from, Matrix<T>{weight.gradient.data(), w.rows, w.cols});
    if (!x->wants_gradient) return;
    const auto slot = gradient_slot(*x);
    detail::multiply(dy, w, Matrix<T>{slot.data, rows, w.cols}, slot.add);
  });
  return y;
}

template <class T>
FeedForward<T>::FeedForward(const std::string& name, Index width, Index hidden, Random& random, Activation kind)
    : first(name + ".first", width, hidden, random),
      second(name + ".second", hidden, width, random),
      activation(kind) {}

template <class T>
Var<T> FeedForward<T>::forward(Tape<T>& tape, const Var<T>& x) {
  return second.forward(tape, first.forward(tape, x, activation));
}

template <class T>
void FeedForward<T>::collect(Parameters<T>& list) {
  first.collect(list);
  second.collect(list);
}

template class Linear<float>;
template class Linear<double>;
template class FeedForward<float>;
template class FeedForward<double>;
template Var<float> project_onto(Tape<float>&, const Var<float>&, Parameter<float>&);
template Var<double> project_onto(Tape<double>&, const Var<double>&, Parameter<double>&);
template Var<float> detail::project_rows(Tape<float>&, const Var<float>&, Parameter<float>&, const Shape&);
template Var<double> detail::project_rows(Tape<double>&, const Var<double>&, Parameter<double>&, const Shape&);

}  // namespace regard
