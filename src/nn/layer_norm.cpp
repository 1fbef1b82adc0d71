#include <cmath>

#include "nn/matmul.h"
#include "nn/node.h"
#include "regard/error.h"
#include "regard/layers.h"

namespace regard {
namespace {

using detail::Matrix;
using detail::row_count;

// Writes n = (x - mean) / sqrt(variance + epsilon); returns 1 / sqrt(...).
template <class T>
T normalise(const T* x, Index width, double epsilon, T* normed) {
  const T mean = detail::blocked_sum<T>(width, [&](Index j) { return x[j]; }) / static_cast<T>(width);
  const T squares = detail::blocked_sum<T>(width, [&](Index j) { return (x[j] - mean) * (x[j] - mean); });
  const T inverse = T{1} / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon));
  for (Index j = 0; j < width; ++j) normed[j] = (x[j] - mean) * inverse;
  return inverse;
}

// With g = dy * gain: dx = inverse * (g - mean(g) - n * mean(g n)).
template <class T>
void backward_row(const T* dy, const T* normed, const Tensor<T>& gain, T inverse, detail::GradientSlot<T> dx) {
  const Index width = gain.count();
  const T* weight = gain.data();
  const T mean = detail::blocked_sum<T>(width, [&](Index j) { return dy[j] * weight[j]; }) / static_cast<T>(width);
  const T mean_moment =
      detail::blocked_sum<T>(width, [&](Index j) { return dy[j] * weight[j] * normed[j]; }) / static_cast<T>(width);
  for (Index j = 0; j < width; ++j) {
    const T value = inverse * (dy[j] * weight[j] - mean - normed[j] * mean_moment);
    dx.data[j] = dx.add ? dx.data[j] + value : value;
  }
}

}  // namespace

template <class T>
LayerNorm<T>::LayerNorm(const std::string& name, Index width, double eps)
    : gain(name + ".gain", {width}, false), bias(name + ".bias", {width}, false), epsilon(eps) {
  gain.value.fill(T{1});
}

template <class T>
Var<T> LayerNorm<T>::forward(Tape<T>& tape, const Var<T>& x) {
  const Index width = gain.value.count(), rows = row_count(x->value);
  if (x->value.size(-1) != width)
    throw ArgumentError(gain.name + ": input " + x->value.text() + " but the layer takes width " +
                        std::to_string(width));
  auto y = tape.node(Tensor<T>::uninitialised(x->value.shape()));
  const auto normed = std::make_shared<Tensor<T>>(Tensor<T>::uninitialised(x->value.shape()));
  const auto inverse = std::make_shared<Tensor<T>>(Tensor<T>::uninitialised({rows}));
  detail::parallel_rows(rows, width, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      T* n = normed->data() + row * width;
      (*inverse)[row] = normalise(x->value.data() + row * width, width, epsilon, n);
      T* to = y->value.data() + row * width;
      for (Index j = 0; j < width; ++j) to[j] = n[j] * gain.value[j] + bias.value[j];
    }
  });
  tape.record([this, x, y, normed, inverse, width, rows] {
    if (y->gradient.empty()) return;
    const Tensor<T>& dy = y->gradient;
    const auto slot = detail::gradient_slot(*x);
    detail::add_column_sums(Matrix<const T>{dy.data(), rows, width}, bias.gradient.data());
    detail::parallel_rows(rows, width, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        backward_row(dy.data() + row * width, normed->data() + row * width, gain.value, (*inverse)[row],
                     detail::GradientSlot<T>{slot.data + row * width, slot.add});
      // normed is not needed as such any more: turn it into dgain's terms.
      for (Index i = begin * width; i < end * width; ++i) (*normed)[i] *= dy[i];
    });
    detail::add_column_sums(Matrix<const T>{normed->data(), rows, width}, gain.gradient.data());
  });
  return y;
}

template <class T>
void LayerNorm<T>::collect(Parameters<T>& list) {
  list.push_back(&gain);
  list.push_back(&bias);
}

template class LayerNorm<float>;
template class LayerNorm<double>;

}  // namespace regard
