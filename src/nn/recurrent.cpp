#include "regard/recurrent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/matmul.h"
#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

using detail::Matrix;

Index gate_count(RecurrentKind kind) { return kind == RecurrentKind::lstm ? 4 : 1; }

template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// All batch entries at one position of [batch, seq, width].
template <class V, class X>
Matrix<V> position(X& x, Index at) {
  const Index seq = x.size(1), width = x.size(2);
  return {x.data() + at * width, x.size(0), width, seq * width};
}

template <class T>
struct CellRow {
  T* gates;         // [gates * width]: sums going in, gates coming out
  const T* before;  // c of the position before, or null
  T *cell, *out;    // [width]; no cell where there is none
};

template <class T>
void run_lstm(const CellRow<T>& row, Index width) {
  T *i = row.gates, *f = i + width, *g = f + width, *o = g + width;
  for (Index j = 0; j < width; ++j) {
    i[j] = sigmoid(i[j]);
    f[j] = sigmoid(f[j]);
    g[j] = std::tanh(g[j]);
    o[j] = sigmoid(o[j]);
    row.cell[j] = i[j] * g[j] + (row.before ? f[j] * row.before[j] : T(0));
    row.out[j] = o[j] * std::tanh(row.cell[j]);
  }
}

template <class T>
void run_tanh(const CellRow<T>& row, Index width) {
  for (Index j = 0; j < width; ++j) row.out[j] = row.gates[j] = std::tanh(row.gates[j]);
}

template <class T>
struct CellGradient {
  const T *gates, *before, *cell;  // as run_lstm left them
  const T* dout;                   // d(loss)/d(h')
  T* dcell;                        // in: what later positions want of c; out: what this one wants of the one before
  T* dgates;                       // d(loss)/d(sums)
};

template <class T>
void lstm_backward(const CellGradient<T>& row, Index width) {
  const T *i = row.gates, *f = i + width, *g = f + width, *o = g + width;
  for (Index j = 0; j < width; ++j) {
    const T shown = std::tanh(row.cell[j]), dout = row.dout[j];
    const T dcell = row.dcell[j] + dout * o[j] * (T(1) - shown * shown);
    row.dgates[j] = dcell * g[j] * i[j] * (T(1) - i[j]);
    row.dgates[width + j] = row.before ? dcell * row.before[j] * f[j] * (T(1) - f[j]) : T(0);
    row.dgates[2 * width + j] = dcell * i[j] * (T(1) - g[j] * g[j]);
    row.dgates[3 * width + j] = dout * shown * o[j] * (T(1) - o[j]);
    row.dcell[j] = dcell * f[j];
  }
}

template <class T>
void tanh_backward(const CellGradient<T>& row, Index width) {
  for (Index j = 0; j < width; ++j) row.dgates[j] = row.dout[j] * (T(1) - row.gates[j] * row.gates[j]);
}

}  // namespace

template <class T>
Recurrent<T>::Recurrent(const std::string& name, RecurrentKind given, Index in, Index width, Random& random)
    : kind(given), input(name + ".input", in, gate_count(given) * width, random) {
  // Gate by gate, as a matrix of its own each.
  state = Parameter<T>(name + ".state", {width, gate_count(kind) * width}, true);
  const double bound = std::sqrt(3.0 / static_cast<double>(std::max<Index>(1, width)));
  for (T& value : state.value.values()) value = static_cast<T>(bound * (2.0 * random.uniform_double() - 1.0));
  if (kind == RecurrentKind::lstm) std::fill_n(input.bias.value.data() + width, width, T(1));
}

template <class T>
Var<T> Recurrent<T>::forward(Tape<T>& tape, const Var<T>& x) {
  if (x->value.rank() != 3) throw ArgumentError(state.name + ": input " + x->value.text() + " needs [batch, seq, in]");
  const auto gates = input.forward(tape, x);
  const Index batch = x->value.size(0), seq = x->value.size(1), size = width();
  auto y = tape.node(Tensor<T>::uninitialised({batch, seq, size}));
  const bool lstm = kind == RecurrentKind::lstm;
  const auto cells = std::make_shared<Tensor<T>>(Shape{batch, lstm ? seq : 0, size});
  const Matrix<const T> u{state.value.data(), size, state.value.size(1)};
  for (Index t = 0; t < seq; ++t) {
    if (t > 0) detail::multiply(position<const T>(y->value, t - 1), u, position<T>(gates->value, t), true);
    detail::parallel_rows(batch, gates->value.size(2), [&](Index begin, Index end) {
      for (Index b = begin; b < end; ++b) {
        const Index at = b * seq + t;
        T* const cell = lstm ? cells->data() + at * size : nullptr;
        const CellRow<T> row{gates->value.data() + at * u.cols, t > 0 && lstm ? cell - size : nullptr, cell,
                             y->value.data() + at * size};
        lstm ? run_lstm(row, size) : run_tanh(row, size);
      }
    });
  }
  tape.record([this, gates, y, cells] {
    if (!y->gradient.empty()) backward(*gates, *y, *cells);
  });
  return y;
}

template <class T>
void Recurrent<T>::backward(Node<T>& gates, const Node<T>& y, const Tensor<T>& cells) {
  const Index batch = y.value.size(0), seq = y.value.size(1), size = width();
  const bool lstm = kind == RecurrentKind::lstm;
  const Matrix<const T> u{state.value.data(), size, state.value.size(1)};
  gates.gradient = Tensor<T>::uninitialised(gates.value.shape());
  Tensor<T> dout({batch, size}), dcell({batch, size});
  for (Index t = seq; t-- > 0;) {
    for (Index b = 0; b < batch; ++b)
      std::copy_n(y.gradient.data() + (b * seq + t) * size, size, dout.data() + b * size);
    if (t + 1 < seq)
      detail::multiply_transposed(position<const T>(std::as_const(gates.gradient), t + 1), u,
                                  Matrix<T>{dout.data(), batch, size}, true);
    detail::parallel_rows(batch, u.cols, [&](Index begin, Index end) {
      for (Index b = begin; b < end; ++b) {
        const Index at = b * seq + t;
        const T* const cell = lstm ? cells.data() + at * size : nullptr;
        const CellGradient<T> row{
            gates.value.data() + at * u.cols, t > 0 && lstm ? cell - size : nullptr, cell, dout.data() + b * size,
            dcell.data() + b * size,          gates.gradient.data() + at * u.cols};
        lstm ? lstm_backward(row, size) : tanh_backward(row, size);
      }
    });
  }
  // Each position's h meets the sums of the next.
  for (Index b = 0; b < batch && seq > 1; ++b)
    detail::add_transposed_product(Matrix<const T>{y.value.data() + b * seq * size, seq - 1, size},
                                   Matrix<const T>{gates.gradient.data() + (b * seq + 1) * u.cols, seq - 1, u.cols},
                                   Matrix<T>{state.gradient.data(), size, u.cols});
}

template <class T>
void Recurrent<T>::collect(Parameters<T>& list) {
  input.collect(list);
  list.push_back(&state);
}

template class Recurrent<float>;
template class Recurrent<double>;

}  // namespace regard
