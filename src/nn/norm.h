// What layer norm and RMS norm begin with.
#pragma once

#include <memory>

#include "nn/node.h"

namespace regard::detail {

// The output, and what the way back needs of the way there.
template <class T>
struct NormRun {
  Index width = 0, rows = 0;
  Var<T> y;
  std::shared_ptr<Tensor<T>> normed;   // x, normalised, before gain and bias
  std::shared_ptr<Tensor<T>> inverse;  // [rows], what x was multiplied by
};

template <class T>
NormRun<T> start_norm(Tape<T>& tape, const Tensor<T>& x, const Parameter<T>& gain) {
  const Index width = gain.value.count();
  check_width(gain.name, x.shape(), width);
  const auto like_x = [&] { return Tensor<T>::uninitialised(x.shape()); };
  const Index rows = row_count(x);
  return {width, rows, tape.node(like_x()), std::make_shared<Tensor<T>>(like_x()),
          std::make_shared<Tensor<T>>(Tensor<T>::uninitialised({rows}))};
}

}  // namespace regard::detail
