// Recurrent layers: each position waits for the one before it, whose state is all
// that it hears of the past. What attention is measured against.
#pragma once

#include <string>

#include "regard/layers.h"

namespace regard {

// tanh: h' = tanh(x W + h U + b) (Elman, 1990).
// lstm: i, f, o = sigmoid and g = tanh of x W + h U + b, c' = f c + i g,
// h' = o tanh(c') (Hochreiter and Schmidhuber, 1997, with the forget gate of Gers
// et al., 2000).
enum class RecurrentKind { tanh, lstm };

// x [batch, seq, in] -> h' of every position, [batch, seq, width]; h and c are 0
// before the first. Gates stand side by side in the order i, f, g, o.
template <class T>
class Recurrent {
 public:
  Recurrent() = default;
  // Xavier-uniform weights; biases 0, but 1 of the forget gate, so that a fresh
  // layer remembers (Jozefowicz et al., 2015).
  Recurrent(const std::string& name, RecurrentKind kind, Index in, Index width, Random& random);

  // Throws ArgumentError naming both when x's last size is not `in`.
  Var<T> forward(Tape<T>& tape, const Var<T>& x);
  void collect(Parameters<T>& list);
  Index width() const { return state.value.size(0); }

  RecurrentKind kind = RecurrentKind::lstm;
  Linear<T> input;     // W and b: [in, gates * width]
  Parameter<T> state;  // U [width, gates * width]

 private:
  void backward(Node<T>& gates, const Node<T>& y, const Tensor<T>& cells);
};

}  // namespace regard
