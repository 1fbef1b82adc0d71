#include "regard/head_projections.h"

#include <cmath>

#include "nn/attend_heads.h"
#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

// [..., out, in]: matrices x W^T, each Xavier-uniform.
template <class T>
Parameter<T> projection(const std::string& name, const Shape& shape, Random& random) {
  Parameter<T> weight(name, shape, true);
  const double bound = std::sqrt(6.0 / static_cast<double>(shape[shape.size() - 2] + shape.back()));
  for (T& value : weight.value.values()) value = static_cast<T>(bound * (2.0 * random.uniform_double() - 1.0));
  return weight;
}

template <class T>
void check_call(const char* layer, const Var<T>& x, const Var<T>& memory, const AttentionCall<T>& call,
                Index model_dim) {
  if (call.positions) throw ArgumentError(std::string(layer) + ": takes no positions in its attention");
  if (call.change) throw ArgumentError(std::string(layer) + ": its heads can be seen, but not changed");
  for (const auto& [node, name] : {std::pair{&x, "x "}, {&memory, "memory "}}) {
    const Tensor<T>& tokens = (*node)->value;
    if (tokens.rank() != 3 || tokens.size(2) != model_dim)
      throw ArgumentError(std::string(layer) + ": " + name + tokens.text() + " must be [batch, seq, " +
                          std::to_string(model_dim) + "]");
  }
}

// The part that both layouts share: attention and the way back to model_dim.
template <class T>
Var<T> attend_and_project(Tape<T>& tape, const detail::ProjectedHeads<T>& heads, double dropout,
                          const AttentionCall<T>& call, Linear<T>& output) {
  const auto attended = detail::attend_projected(tape, heads, dropout, call);
  detail::show(call, attended, Var<T>());
  return output.forward(tape, attended.context);
}

}  // namespace

template <class T>
PerHeadAttention<T>::PerHeadAttention(const std::string& name, const PerHeadConfig& given, Random& random)
    : config(given) {
  if (config.value_dim == 0) config.value_dim = config.query_dim;
  if (config.model_dim < 1 || config.heads < 1 || config.query_dim < 1 || config.value_dim < 1)
    throw ArgumentError(name + ": model_dim, heads, query_dim and value_dim must be at least 1, got " +
                        shape_text({config.model_dim, config.heads, config.query_dim, config.value_dim}));
  const Shape queries{config.heads, config.query_dim, config.model_dim};
  query = projection<T>(name + ".query", queries, random);
  key = projection<T>(name + ".key", queries, random);
  value = projection<T>(name + ".value", {config.heads, config.value_dim, config.model_dim}, random);
  output = Linear<T>(name + ".output", config.heads * config.value_dim, config.model_dim, random);
}

template <class T>
Var<T> PerHeadAttention<T>::forward(Tape<T>& tape, const Var<T>& x, const Var<T>& memory,
                                    const AttentionCall<T>& call) {
  check_call("PerHeadAttention", x, memory, call, config.model_dim);
  const auto heads_from = [&](const Var<T>& tokens, Parameter<T>& weight) {
    const Index dim = weight.value.size(1);
    return detail::HeadColumns<T>{
        detail::project_rows(tape, tokens, weight, detail::with_last(tokens->value.shape(), config.heads * dim)), 0,
        config.heads, dim};
  };
  const detail::ProjectedHeads<T> heads{heads_from(x, query), heads_from(memory, key), heads_from(memory, value)};
  return attend_and_project(tape, heads, config.dropout, call, output);
}

template <class T>
void PerHeadAttention<T>::collect(Parameters<T>& list) {
  list.insert(list.end(), {&query, &key, &value});
  output.collect(list);
}

template <class T>
SharedHeadAttention<T>::SharedHeadAttention(const std::string& name, const SharedHeadConfig& given, Random& random)
    : config(given) {
  if (config.heads < 1 || config.model_dim < 1 || config.model_dim % config.heads != 0)
    throw ArgumentError(name + ": model_dim " + std::to_string(config.model_dim) + " is not a multiple of " +
                        std::to_string(config.heads) + " heads");
  const Index dim = config.model_dim / config.heads;
  query = projection<T>(name + ".query", {dim, dim}, random);
  key = projection<T>(name + ".key", {dim, dim}, random);
  value = projection<T>(name + ".value", {dim, dim}, random);
  output = Linear<T>(name + ".output", config.model_dim, config.model_dim, random);
}

template <class T>
Var<T> SharedHeadAttention<T>::forward(Tape<T>& tape, const Var<T>& x, const Var<T>& memory,
                                       const AttentionCall<T>& call) {
  check_call("SharedHeadAttention", x, memory, call, config.model_dim);
  // A token's heads lie one behind the other: each is a row of head_dim.
  const auto heads_from = [&](const Var<T>& tokens, Parameter<T>& weight) {
    return detail::HeadColumns<T>{detail::project_rows(tape, tokens, weight, tokens->value.shape()), 0, config.heads,
                                  config.model_dim / config.heads};
  };
  const detail::ProjectedHeads<T> heads{heads_from(x, query), heads_from(memory, key), heads_from(memory, value)};
  return attend_and_project(tape, heads, config.dropout, call, output);
}

template <class T>
void SharedHeadAttention<T>::collect(Parameters<T>& list) {
  list.insert(list.end(), {&query, &key, &value});
  output.collect(list);
}

template class PerHeadAttention<float>;
template class PerHeadAttention<double>;
template class SharedHeadAttention<float>;
template class SharedHeadAttention<double>;

}  // namespace regard
