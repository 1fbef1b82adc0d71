#include "nn/matmul.h"
#include "nn/node.h"
#include "regard/error.h"
#include "regard/layers.h"

namespace regard {
using detail::Matrix;
using detail::row_count;

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
      (*inverse)[row] = detail::normalise(n, x->value.data() + row * width, static_cast<T>(epsilon), width);
      detail::scale_and_shift(y->value.data() + row * width, n, gain.value.data(), bias.value.data(), width);
    }
  });
  tape.record([this, x, y, normed, inverse, width, rows] {
    if (y->gradient.empty()) return;
    const Tensor<T>& dy = y->gradient;
    const auto slot = detail::gradient_slot(*x);
    detail::add_column_sums(Matrix<const T>{dy.data(), rows, width}, bias.gradient.data());
    detail::parallel_rows(rows, width, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        detail::normalise_backward<T>(
            slot.data + row * width, slot.add,
            {dy.data() + row * width, normed->data() + row * width, gain.value.data(), (*inverse)[row]}, width);
      // normed is not needed as such any more: turn it into dgain's terms.
      detail::multiply_by(normed->data() + begin * width, dy.data() + begin * width, (end - begin) * width);
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
