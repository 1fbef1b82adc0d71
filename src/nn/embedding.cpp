#include <cmath>

#include "nn/node.h"
#include "regard/error.h"
#include "regard/layers.h"

namespace regard {

template <class T>
Embedding<T>::Embedding(const std::string& name, Index vocabulary, Index width, Random& random)
    : table(name, {vocabulary, width}, true) {
  const double deviation = 1.0 / std::sqrt(static_cast<double>(width));
  for (T& value : table.value.values()) value = static_cast<T>(deviation * random.normal());
}

template <class T>
Var<T> Embedding<T>::forward(Tape<T>& tape, const Tensor<std::int64_t>& ids, double scale) {
  const Index vocabulary = table.value.size(0), width = table.value.size(1);
  for (std::int64_t id : ids.values())
    if (id < 0 || id >= vocabulary)
      throw ArgumentError(table.name + ": id " + std::to_string(id) + " is outside the vocabulary of " +
                          std::to_string(vocabulary));
  Shape shape = ids.shape();
  shape.push_back(width);
  auto y = tape.node(Tensor<T>::uninitialised(shape));
  const T factor = static_cast<T>(scale);
  for (Index i = 0; i < ids.count(); ++i)
    for (Index j = 0; j < width; ++j) y->value[i * width + j] = table.value[ids[i] * width + j] * factor;
  tape.record([this, ids, y, width, factor] {
    if (y->gradient.empty()) return;
    for (Index i = 0; i < ids.count(); ++i)
      for (Index j = 0; j < width; ++j) table.gradient[ids[i] * width + j] += y->gradient[i * width + j] * factor;
  });
  return y;
}

template <class T>
void Embedding<T>::collect(Parameters<T>& list) {
  list.push_back(&table);
}

template <class T>
Tensor<T> sinusoidal_positions(Index length, Index width, Index first) {
  Tensor<T> table({length, width});
  for (Index p = 0; p < length; ++p)
    for (Index j = 0; j < width; ++j) {
      // sin and cos of a pair share one frequency.
      const double exponent = 2.0 * static_cast<double>(j / 2) / static_cast<double>(width);
      const double angle = static_cast<double>(first + p) * std::pow(10000.0, -exponent);
      table[p * width + j] = static_cast<T>(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  return table;
}

namespace {

// x + rows of a table that starts at `first`; x [batch, seq, width].
template <class T>
Tensor<T> sum_with_rows(const Tensor<T>& x, const Tensor<T>& table, Index first) {
  const Index seq = x.size(-2), width = x.size(-1);
  if (table.size(1) != width || first < 0 || first + seq > table.size(0))
    throw ArgumentError("positions: table " + table.text() + " does not cover positions " + std::to_string(first) +
                        " to " + std::to_string(first + seq - 1) + " of " + x.text());
  auto y = Tensor<T>::uninitialised(x.shape());
  for (Index row = 0; row < detail::row_count(x); ++row)
    detail::sum(y.data() + row * width, x.data() + row * width, table.data() + (first + row % seq) * width, width);
  return y;
}

}  // namespace

template <class T>
Var<T> add_positions(Tape<T>& tape, const Var<T>& x, const Tensor<T>& table) {
  auto y = tape.node(sum_with_rows(x->value, table, 0));
  tape.record([x, y] {
    if (!y->gradient.empty()) detail::pass_on(*x, std::move(y->gradient));
  });
  return y;
}

template <class T>
Var<T> add_learned_positions(Tape<T>& tape, const Var<T>& x, Parameter<T>& table, Index first) {
  auto y = tape.node(sum_with_rows(x->value, table.value, first));
  tape.record([x, y, &table, first] {
    if (y->gradient.empty()) return;
    const Index seq = x->value.size(-2), width = x->value.size(-1);
    for (Index row = 0; row < detail::row_count(x->value); ++row) {
      T* to = table.gradient.data() + (first + row % seq) * width;
      detail::sum(to, to, y->gradient.data() + row * width, width);
    }
    detail::pass_on(*x, std::move(y->gradient));
  });
  return y;
}

template class Embedding<float>;
template class Embedding<double>;
template Tensor<float> sinusoidal_positions(Index, Index, Index);
template Tensor<double> sinusoidal_positions(Index, Index, Index);
template Var<float> add_positions(Tape<float>&, const Var<float>&, const Tensor<float>&);
template Var<double> add_positions(Tape<double>&, const Var<double>&, const Tensor<double>&);
template Var<float> add_learned_positions(Tape<float>&, const Var<float>&, Parameter<float>&, Index);
template Var<double> add_learned_positions(Tape<double>&, const Var<double>&, Parameter<double>&, Index);

}  // namespace regard
