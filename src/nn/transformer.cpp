#include "regard/transformer.h"

namespace regard {
namespace {

MultiHeadConfig attention_config(const LayerConfig& config) {
  return {.model_dim = config.model_dim, .heads = config.heads, .dropout = config.attention_dropout};
}

// What an attention's sub-layer adds to what is seen of it.
template <class T>
void show_sublayer(const AttentionCall<T>& call, const LayerConfig& config, const LayerNorm<T>& norm, const Var<T>& x) {
  if (!call.seen) return;
  call.seen->residual = x;
  call.seen->norm = config.norm == NormPlace::post ? &norm : nullptr;
}

// One sub-layer with its residual and norm, in either place. `branch` is given
// what it reads, and the x that its result joins.
template <class T, class F>
Var<T> sublayer(Tape<T>& tape, const LayerConfig& config, LayerNorm<T>& norm, const Var<T>& x, F branch) {
  if (config.norm == NormPlace::pre) return add_residual(tape, x, branch(norm.forward(tape, x), x), config.dropout);
  return norm.forward(tape, add_residual(tape, x, branch(x, x), config.dropout));
}

}  // namespace

template <class T>
EncoderLayer<T>::EncoderLayer(const std::string& name, const LayerConfig& given, Random& random)
    : config(given),
      attention(name + ".self", attention_config(given), random),
      feed_forward(name + ".feed_forward", given.model_dim, given.hidden, random, given.activation),
      attention_norm(name + ".self_norm", given.model_dim),
      feed_forward_norm(name + ".feed_forward_norm", given.model_dim) {}

template <class T>
Var<T> EncoderLayer<T>::forward(Tape<T>& tape, const Var<T>& x, const AttentionCall<T>& call) {
  const auto attended = sublayer(tape, config, attention_norm, x, [&](const Var<T>& y, const Var<T>& residual) {
    const auto out = attention.self(tape, y, call);
    show_sublayer(call, config, attention_norm, residual);
    return out;
  });
  return sublayer(tape, config, feed_forward_norm, attended,
                  [&](const Var<T>& y, const Var<T>&) { return feed_forward.forward(tape, y); });
}

template <class T>
void EncoderLayer<T>::collect(Parameters<T>& list) {
  attention.collect(list);
  feed_forward.collect(list);
  attention_norm.collect(list);
  feed_forward_norm.collect(list);
}

template <class T>
DecoderLayer<T>::DecoderLayer(const std::string& name, const LayerConfig& given, Random& random)
    : config(given),
      self_attention(name + ".self", attention_config(given), random),
      cross_attention(name + ".cross", attention_config(given), random),
      feed_forward(name + ".feed_forward", given.model_dim, given.hidden, random, given.activation),
      self_norm(name + ".self_norm", given.model_dim),
      cross_norm(name + ".cross_norm", given.model_dim),
      feed_forward_norm(name + ".feed_forward_norm", given.model_dim) {}

template <class T>
template <class SelfF, class CrossF>
Var<T> DecoderLayer<T>::run(Tape<T>& tape, const Var<T>& x, SelfF attend_self, CrossF attend_cross) {
  const auto own = sublayer(tape, config, self_norm, x, attend_self);
  const auto crossed = sublayer(tape, config, cross_norm, own, attend_cross);
  return sublayer(tape, config, feed_forward_norm, crossed,
                  [&](const Var<T>& y, const Var<T>&) { return feed_forward.forward(tape, y); });
}

template <class T>
Var<T> DecoderLayer<T>::forward(Tape<T>& tape, const Var<T>& x, const Var<T>& memory, const AttentionCall<T>& self,
                                const AttentionCall<T>& cross) {
  return run(
      tape, x,
      [&](const Var<T>& y, const Var<T>& residual) {
        const auto attended = self_attention.self(tape, y, self);
        show_sublayer(self, config, self_norm, residual);
        return attended;
      },
      [&](const Var<T>& y, const Var<T>& residual) {
        const auto attended = cross_attention.cross(tape, y, memory, cross);
        show_sublayer(cross, config, cross_norm, residual);
        return attended;
      });
}

template <class T>
Var<T> DecoderLayer<T>::step(Tape<T>& tape, const Var<T>& x, DecoderCache<T>& cache, const AttentionCall<T>& self,
                             const AttentionCall<T>& cross) {
  return run(
      tape, x, [&](const Var<T>& y, const Var<T>&) { return self_attention.self_step(tape, y, cache.self, self); },
      [&](const Var<T>& y, const Var<T>&) { return cross_attention.cross_step(tape, y, cache.memory, cross); });
}

template <class T>
void DecoderLayer<T>::collect(Parameters<T>& list) {
  self_attention.collect(list);
  cross_attention.collect(list);
  feed_forward.collect(list);
  self_norm.collect(list);
  cross_norm.collect(list);
  feed_forward_norm.collect(list);
}

template class EncoderLayer<float>;
template class EncoderLayer<double>;
template class DecoderLayer<float>;
template class DecoderLayer<double>;

}  // namespace regard
