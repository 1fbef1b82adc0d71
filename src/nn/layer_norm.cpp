#include "nn/matmul.h"
#include "nn/norm.h"
#include "regard/layers.h"

namespace regard {
using detail::Matrix;

template <class T>
LayerNorm<T>::LayerNorm(const std::string& name, Index width, double eps)
    : gain(name + ".gain", {width}, false), bias(name + ".bias", {width}, false), epsilon(eps) {
  gain.value.fill(T{1});
}

template <class T>
Var<T> LayerNorm<T>::forward(Tape<T>& tape, const Var<T>& x) {
  const detail::NormRun<T> run = detail::start_norm(tape, x->value, gain);
  const Index width = run.width;
  detail::parallel_rows(run.rows, width, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      T* n = run.normed->data() + row * width;
      (*run.inverse)[row] = detail::normalise(n, x->value.data() + row * width, static_cast<T>(epsilon), width);
      detail::scale_and_shift(run.y->value.data() + row * width, n, gain.value.data(), bias.value.data(), width);
    }
  });
  tape.record([this, x, run, width] {
    if (run.y->gradient.empty()) return;
    const Tensor<T>&dy = run.y->gradient, &normed = *run.normed;
    const auto slot = detail::gradient_slot(*x);
    detail::add_column_sums(Matrix<const T>{dy.data(), run.rows, width}, bias.gradient.data());
    detail::parallel_rows(run.rows, width, [&](Index begin, Index end) {
      for (Index row = begin; row < end; ++row)
        detail::normalise_backward<T>(
            slot.data + row * width, slot.add,
            {dy.data() + row * width, normed.data() + row * width, gain.value.data(), (*run.inverse)[row]}, width);
      // normed is not needed as such any more: turn it into dgain's terms.
      detail::multiply_by(run.normed->data() + begin * width, dy.data() + begin * width, (end - begin) * width);
    });
    detail::add_column_sums(Matrix<const T>{normed.data(), run.rows, width}, gain.gradient.data());
  });
  return run.y;
}

template <class T>
void LayerNorm<T>::collect(Parameters<T>& list) {
  list.push_back(&gain);
  list.push_back(&bias);
}

template class LayerNorm<float>;
template class LayerNorm<double>;

}  // namespace regard
