#include <cmath>

#include "nn/matmul.h"
#include "nn/norm.h"
#include "regard/layers.h"

namespace regard {

template <class T>
RmsNorm<T>::RmsNorm(const std::string& name, Index width, double eps)
    : gain(name + ".gain", {width}, false), epsilon(eps) {
  gain.value.fill(T{1});
}

template <class T>
Var<T> RmsNorm<T>::forward(Tape<T>& tape, const Var<T>& x) {
  const detail::NormRun<T> run = detail::start_norm(tape, x->value, gain);
  const Index width = run.width;
  detail::parallel_rows(run.rows, width, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const T* from = x->value.data() + row * width;
      const T squares = detail::blocked_sum<T>(width, [&](Index j) { return from[j] * from[j]; });
      const T scale = T{1} / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(epsilon));
      (*run.inverse)[row] = scale;
      T *n = run.normed->data() + row * width, *to = run.y->value.data() + row * width;
      for (Index j = 0; j < width; ++j) {
        n[j] = from[j] * scale;
        to[j] = n[j] * gain.value[j];
      }
    }
  });
  tape.record([this, x, run] {
    if (!run.y->gradient.empty()) backward(*x, run.y->gradient, *run.normed, *run.inverse);
  });
  return run.y;
}

// With g = dy * gain: dx = inverse * (g - n * mean(g n)). `normed` becomes the
// terms of gain's gradient on the way.
template <class T>
void RmsNorm<T>::backward(Node<T>& x, const Tensor<T>& dy, Tensor<T>& normed, const Tensor<T>& inverse) {
  const Index width = gain.value.count(), rows = inverse.count();
  const auto slot = detail::gradient_slot(x);
  detail::parallel_rows(rows, width, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const T *d = dy.data() + row * width, *w = gain.value.data();
      T *n = normed.data() + row * width, *to = slot.data + row * width;
      const T moment =
          detail::blocked_sum<T>(width, [&](Index j) { return d[j] * w[j] * n[j]; }) / static_cast<T>(width);
      for (Index j = 0; j < width; ++j) {
        const T value = inverse[row] * (d[j] * w[j] - n[j] * moment);
        to[j] = slot.add ? to[j] + value : value;
        n[j] *= d[j];
      }
    }
  });
  detail::add_column_sums(detail::Matrix<const T>{normed.data(), rows, width}, gain.gradient.data());
}

template <class T>
void RmsNorm<T>::collect(Parameters<T>& list) {
  list.push_back(&gain);
}

template class RmsNorm<float>;
template class RmsNorm<double>;

}  // namespace regard
