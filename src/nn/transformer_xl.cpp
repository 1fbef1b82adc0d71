#include "regard/transformer_xl.h"

#include <algorithm>

#include "nn/attend_heads.h"
#include "nn/node.h"
#include "regard/error.h"
#include "regard/relative_attention.h"

namespace regard {
namespace {

using detail::copy_heads;
using detail::heads_of;
using detail::shape3;

RelativeResult<float> run(const BasicRelativeInputs<float>& in) {
  return relative_attend(in.q, in.k, in.v, in.terms, in.options);
}
RelativeResult<double> run(const BasicRelativeInputs<double>& in) {
  return reference::relative_attend(in.q, in.k, in.v, in.terms, in.options);
}
BasicRelativeGradients<float> run_backward(View<const float, 4> dout, const BasicRelativeInputs<float>& in,
                                           const RelativeResult<float>& forward) {
  return relative_attend_backward(dout, in, forward);
}
BasicRelativeGradients<double> run_backward(View<const double, 4> dout, const BasicRelativeInputs<double>& in,
                                            const RelativeResult<double>&) {
  return reference::relative_attend_backward(dout, in);
}

template <class T>
void add_to(Parameter<T>& parameter, const Tensor<T>& gradient) {
  for (Index i = 0; i < gradient.count(); ++i) parameter.gradient[i] += gradient[i];
}

// Tokens `first` and later of a before those of b, entry by entry; a may be empty.
template <class T>
Tensor<T> joined(const Tensor<T>& a, const Tensor<T>& b, Index first = 0) {
  if (a.empty() && first == 0) return b;
  const Index batch = b.size(0), width = b.size(2), from_a = a.empty() ? 0 : a.size(1), all = from_a + b.size(1);
  auto both = Tensor<T>::uninitialised({batch, all - first, width});
  for (Index n = 0; n < batch; ++n)
    for (Index i = first; i < all; ++i) {
      const T* token =
          i < from_a ? a.data() + (n * from_a + i) * width : b.data() + (n * b.size(1) + i - from_a) * width;
      std::copy_n(token, width, both.data() + (n * (all - first) + i - first) * width);
    }
  return both;
}

// x behind the memory, which passes no gradient on.
template <class T>
Var<T> behind(Tape<T>& tape, const Tensor<T>& memory, const Var<T>& x) {
  if (memory.empty()) return x;
  auto both = tape.node(joined(memory, x->value));
  tape.record([=, before = memory.size(1)] {
    if (both->gradient.empty()) return;
    const auto rows = both->gradient.template view<3>();
    detail::pass_on(*x, packed(View<const T, 3>(rows.slice(1, before, rows.size(1)))));
  });
  return both;
}

// Row r: the distance length - 1 - r, so that a key's distance to its query grows
// towards the first row.
template <class T>
Tensor<T> distances(Index length, Index width) {
  const auto table = sinusoidal_positions<T>(length, width);
  auto turned = Tensor<T>::uninitialised({length, width});
  for (Index r = 0; r < length; ++r)
    std::copy_n(table.data() + (length - 1 - r) * width, width, turned.data() + r * width);
  return turned;
}

template <class T>
void check_memory(const char* call, const Tensor<T>& memory, const Tensor<T>& x) {
  const bool fits =
      memory.empty() || (memory.rank() == 3 && memory.size(0) == x.size(0) && memory.size(2) == x.size(2));
  if (!fits) throw ArgumentError(std::string(call) + ": memory " + memory.text() + " does not go with x " + x.text());
}

}  // namespace

template <class T>
TransformerXlAttention<T>::TransformerXlAttention(const std::string& name, Index model_dim, Index given_heads,
                                                  Random& random)
    : heads(given_heads) {
  if (heads < 1 || model_dim % heads != 0)
    throw ArgumentError(name + ": model_dim " + std::to_string(model_dim) + " is not a multiple of " +
                        std::to_string(heads) + " heads");
  query = Linear<T>(name + ".query", model_dim, model_dim, random, false);
  key_value = Linear<T>(name + ".key_value", model_dim, 2 * model_dim, random, false);
  position = Linear<T>(name + ".position", model_dim, model_dim, random, false);
  output = Linear<T>(name + ".output", model_dim, model_dim, random, false);
  content_bias = Parameter<T>(name + ".content_bias", {heads, model_dim / heads}, false);
  position_bias = Parameter<T>(name + ".position_bias", {heads, model_dim / heads}, false);
}

template <class T>
Var<T> TransformerXlAttention<T>::forward(Tape<T>& tape, const Var<T>& x, const Tensor<T>& memory) {
  if (x->value.rank() != 3) throw ArgumentError("TransformerXlAttention: x " + x->value.text() + " must be 3-D");
  check_memory("TransformerXlAttention", memory, x->value);
  const auto tokens = behind(tape, memory, x);
  const Index kv_len = tokens->value.size(1), dim = query.out() / heads;
  const auto q = query.forward(tape, x), kv = key_value.forward(tape, tokens);
  const auto table = position.forward(tape, tape.node(distances<T>(kv_len, query.in())));
  const auto inputs = [this, q, kv, table, kv_len, dim] {
    const auto heads_in = [&](const Var<T>& from, Index part) {
      return heads_of(std::as_const(from->value).data(), shape3(from->value), part * heads * dim, heads, dim);
    };
    const View<const T, 3> keys(table->value.data(), {heads, kv_len, dim}, {dim, heads * dim, 1});
    return BasicRelativeInputs<T>{heads_in(q, 0),
                                  heads_in(kv, 0),
                                  heads_in(kv, 1),
                                  {.first = -(kv_len - 1),
                                   .keys = keys,
                                   .content_bias = std::as_const(content_bias.value).template view<2>(),
                                   .position_bias = std::as_const(position_bias.value).template view<2>()},
                                  {.mask = causal()}};
  };
  const auto result = std::make_shared<RelativeResult<T>>(run(inputs()));
  auto out = tape.node(concatenate_heads(result->out));
  tape.record([=, this] {
    if (out->gradient.empty()) return;
    const auto dout = heads_of(std::as_const(out->gradient).data(), shape3(out->value), 0, heads, dim);
    const auto gradients = run_backward(dout, inputs(), *result);
    detail::pass_on(*q, concatenate_heads(gradients.dq));
    auto dkv = Tensor<T>::uninitialised(kv->value.shape());
    copy_heads(gradients.dk, heads_of(dkv.data(), shape3(dkv), 0, heads, dim));
    copy_heads(gradients.dv, heads_of(dkv.data(), shape3(dkv), heads * dim, heads, dim));
    detail::pass_on(*kv, std::move(dkv));
    auto dtable = Tensor<T>::uninitialised(table->value.shape());
    for (Index h = 0; h < heads; ++h)
      for (Index r = 0; r < kv_len; ++r)
        std::copy_n(gradients.dkeys.data() + (h * kv_len + r) * dim, dim, dtable.data() + (r * heads + h) * dim);
    detail::pass_on(*table, std::move(dtable));
    add_to(content_bias, gradients.dcontent_bias);
    add_to(position_bias, gradients.dposition_bias);
  });
  return output.forward(tape, out);
}

template <class T>
void TransformerXlAttention<T>::collect(Parameters<T>& list) {
  for (Linear<T>* part : {&query, &key_value, &position, &output}) part->collect(list);
  list.push_back(&content_bias);
  list.push_back(&position_bias);
}

template <class T>
Tensor<T> extend_memory(const Tensor<T>& memory, const Tensor<T>& x, Index length) {
  if (length < 0) throw ArgumentError("extend_memory: length is " + std::to_string(length));
  if (x.rank() != 3) throw ArgumentError("extend_memory: x " + x.text() + " must be 3-D");
  check_memory("extend_memory", memory, x);
  const Index all = (memory.empty() ? 0 : memory.size(1)) + x.size(1);
  return joined(memory, x, std::max<Index>(0, all - length));
}

#define REGARD_INSTANTIATE(T)               \
  template class TransformerXlAttention<T>; \
  template Tensor<T> extend_memory(const Tensor<T>&, const Tensor<T>&, Index);
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard
