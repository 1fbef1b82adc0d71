#include "regard/multi_head.h"

#include "nn/attend_heads.h"
#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

using detail::heads_of;
using detail::shape3;

template <class T>
[[noreturn]] void refuse(const char* call, const std::string& what, const KeyValueCache<T>& cache,
                         const Tensor<T>* x = nullptr) {
  throw ArgumentError(std::string(call) + ": " + what + " (" + (x ? "x " + x->text() + ", " : "") + "keys " +
                      cache.keys.text() + ", values " + cache.values.text() + ")");
}

// A cache is memory of the caller's: nothing in it is touched before it fits itself ...
template <class T>
void check_cache(const char* call, const KeyValueCache<T>& cache) {
  if (cache.keys.rank() != 3 || cache.values.shape() != cache.keys.shape())
    refuse(call, "keys and values of the cache must both be [batch, capacity, width]", cache);
  if (cache.length < 0 || cache.length > cache.keys.size(1))
    refuse(call,
           "the cache's length is " + std::to_string(cache.length) + " but its capacity " +
               std::to_string(cache.keys.size(1)),
           cache);
}

// ... and the layer and its input.
template <class T>
void check_cache(const char* call, const KeyValueCache<T>& cache, const Tensor<T>& x, const MultiHeadConfig& config) {
  check_cache(call, cache);
  const Index width = config.kv_heads * (config.model_dim / config.heads);
  if (cache.keys.size(0) != x.size(0))
    refuse(call,
           "the cache holds batch " + std::to_string(cache.keys.size(0)) + " but x has " + std::to_string(x.size(0)),
           cache, &x);
  if (cache.keys.size(2) != width)
    refuse(call,
           "the cache has width " + std::to_string(cache.keys.size(2)) + " but the layer's keys have " +
               std::to_string(width),
           cache, &x);
}

template <class T>
void check_step_input(const char* call, const Tensor<T>& x, const MultiHeadConfig& config,
                      const AttentionCall<T>& attention) {
  if (attention.change)
    throw ArgumentError(std::string(call) + ": heads are changed in whole passes only, not in steps");
  if (x.rank() != 3 || x.size(2) != config.model_dim)
    throw ArgumentError(std::string(call) + ": x " + x.text() + " must be [batch, tokens, " +
                        std::to_string(config.model_dim) + "]");
}

// With positions, tokens stand where the layer counts them to.
template <class T>
void refuse_two_starts(const char* call, const AttentionCall<T>& attention) {
  if (attention.positions && attention.q_start.count() > 0)
    throw ArgumentError(std::string(call) + ": takes no q_start together with positions");
}

template <class T>
void refuse_positions(const char* call, const AttentionCall<T>& attention) {
  if (attention.positions) throw ArgumentError(std::string(call) + ": positions act in self-attention only");
}

}  // namespace

template <class T>
void KeyValueCache<T>::select(std::span<const Index> rows) {
  const char* call = "KeyValueCache::select";
  check_cache(call, *this);
  for (Index wanted : rows)
    if (wanted < 0 || wanted >= keys.size(0))
      refuse(call, "row " + std::to_string(wanted) + " but the cache holds batch " + std::to_string(keys.size(0)),
             *this);
  const Index row = keys.size(1) * keys.size(2);
  const auto gather = [&](Tensor<T>& from) {
    auto kept = Tensor<T>::uninitialised({static_cast<Index>(rows.size()), from.size(1), from.size(2)});
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(from.data() + rows[i] * row, row, kept.data() + static_cast<Index>(i) * row);
    from = std::move(kept);
  };
  gather(keys);
  gather(values);
}

template <class T>
MultiHeadAttention<T>::MultiHeadAttention(const std::string& name, const MultiHeadConfig& given, Random& random)
    : config(given) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.heads < 1 || config.model_dim % config.heads != 0)
    throw ArgumentError(name + ": model_dim " + std::to_string(config.model_dim) + " is not a multiple of " +
                        std::to_string(config.heads) + " heads");
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0)
    throw ArgumentError(name + ": " + std::to_string(config.heads) + " heads are not a multiple of " +
                        std::to_string(config.kv_heads) + " key heads");
  const Index kv_width = config.kv_heads * (config.model_dim / config.heads);
  query = Linear<T>(name + ".query", config.model_dim, config.model_dim, random, config.bias);
  key_value = Linear<T>(name + ".key_value", config.model_dim, 2 * kv_width, random, config.bias);
  output = Linear<T>(name + ".output", config.model_dim, config.model_dim, random, config.bias);
}

template <class T>
Var<T> MultiHeadAttention<T>::self(Tape<T>& tape, const Var<T>& x, const AttentionCall<T>& call) {
  refuse_two_starts("MultiHeadAttention::self", call);
  const auto q = query.forward(tape, x), kv = key_value.forward(tape, x);
  auto heads = detail::fused_heads(config, q, kv);
  if (call.positions) heads.score = call.positions->prepare(tape, config, q, kv, 0);
  return attend(tape, heads, call);
}

template <class T>
Var<T> MultiHeadAttention<T>::cross(Tape<T>& tape, const Var<T>& x, const Var<T>& memory,
                                    const AttentionCall<T>& call) {
  refuse_positions("MultiHeadAttention::cross", call);
  return attend(tape, detail::fused_heads(config, query.forward(tape, x), key_value.forward(tape, memory)), call);
}

template <class T>
Var<T> MultiHeadAttention<T>::attend(Tape<T>& tape, const detail::ProjectedHeads<T>& heads,
                                     const AttentionCall<T>& call) {
  if (call.change && tape.recording())
    throw ArgumentError("MultiHeadAttention: changed heads have no way back: use a tape that does not record");
  const auto context = detail::attend_fused(tape, config, heads, call);
  if (call.seen) call.seen->layer = this;
  return output.forward(tape, context);
}

template <class T>
KeyValueCache<T> MultiHeadAttention<T>::remember(Tape<T>& tape, const Var<T>& memory) {
  const auto kv = key_value.forward(tape, memory);
  const Index width = kv->value.size(2) / 2, rows = detail::row_count(kv->value);
  const Shape shape{memory->value.size(0), memory->value.size(1), width};
  KeyValueCache<T> cache{Tensor<T>::uninitialised(shape), Tensor<T>::uninitialised(shape), memory->value.size(1)};
  for (Index row = 0; row < rows; ++row) {
    const T* from = kv->value.data() + row * 2 * width;
    std::copy_n(from, width, cache.keys.data() + row * width);
    std::copy_n(from + width, width, cache.values.data() + row * width);
  }
  return cache;
}

namespace {

// Queries against the filled part of a cache.
template <class T>
detail::AttendedHeads<T> attend_cache(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q,
                                      const KeyValueCache<T>& cache, const BasicAttendOptions<T>& options) {
  const Index dim = config.model_dim / config.heads;
  const auto filled = [&](const Tensor<T>& x) {
    return heads_of(x.data(), shape3(x), 0, config.kv_heads, dim).slice(2, 0, cache.length);
  };
  auto out = tape.node(Tensor<T>::uninitialised(q->value.shape()));
  const auto shape = shape3(q->value);
  auto result =
      detail::run_attention(heads_of(std::as_const(q->value).data(), shape, 0, config.heads, dim), filled(cache.keys),
                            filled(cache.values), heads_of(out->value.data(), shape, 0, config.heads, dim), options);
  return {out, std::move(result)};
}

// Room for `more` tokens, growing by doubling.
template <class T>
void make_room(KeyValueCache<T>& cache, const Shape& first_use, Index more) {
  if (cache.keys.rank() != 3) {
    cache.keys = Tensor<T>(first_use);
    cache.values = Tensor<T>(first_use);
  }
  const Index capacity = cache.keys.size(1), wanted = cache.length + more;
  if (wanted <= capacity) return;
  const Index grown = std::max(wanted, 2 * capacity), width = cache.keys.size(2);
  const auto grow = [&](Tensor<T>& from) {
    Tensor<T> to({from.size(0), grown, width});
    for (Index b = 0; b < from.size(0); ++b)
      std::copy_n(from.data() + b * capacity * width, cache.length * width, to.data() + b * grown * width);
    from = std::move(to);
  };
  grow(cache.keys);
  grow(cache.values);
}

}  // namespace

template <class T>
Var<T> MultiHeadAttention<T>::self_step(Tape<T>& tape, const Var<T>& x, KeyValueCache<T>& cache,
                                        const AttentionCall<T>& call) {
  const char* name = "MultiHeadAttention::self_step";
  check_step_input(name, x->value, config, call);
  refuse_two_starts(name, call);
  const bool first_use = cache.keys.rank() != 3 && cache.length == 0;
  if (!first_use) check_cache(name, cache, x->value, config);
  const auto q = query.forward(tape, x), kv = key_value.forward(tape, x);
  LearnedScore<T> score;
  if (call.positions) score = call.positions->prepare(tape, config, q, kv, cache.length);
  const Index batch = x->value.size(0), fresh = x->value.size(1), width = kv->value.size(2) / 2;
  make_room(cache, {batch, std::max<Index>(16, fresh), width}, fresh);
  const Index capacity = cache.keys.size(1);
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < fresh; ++t) {
      const T* from = kv->value.data() + (b * fresh + t) * 2 * width;
      const Index to = (b * capacity + cache.length + t) * width;
      std::copy_n(from, width, cache.keys.data() + to);
      std::copy_n(from + width, width, cache.values.data() + to);
    }
  cache.length += fresh;
  AttentionCall<T> causal_call = call;
  causal_call.mask = call.mask & causal();
  score = detail::score_of(causal_call, std::move(score));
  auto options = detail::options_of(tape, causal_call, 0.0);
  detail::add_score(score, options);
  const auto attended = attend_cache(tape, config, q, cache, options);
  detail::show(call, attended, Var<T>());
  return output.forward(tape, attended.context);
}

template <class T>
Var<T> MultiHeadAttention<T>::cross_step(Tape<T>& tape, const Var<T>& x, const KeyValueCache<T>& memory,
                                         const AttentionCall<T>& call) {
  const char* name = "MultiHeadAttention::cross_step";
  check_step_input(name, x->value, config, call);
  refuse_positions(name, call);
  check_cache(name, memory, x->value, config);
  auto options = detail::options_of(tape, call, 0.0);
  detail::add_score(detail::score_of(call, {}), options);
  const auto attended = attend_cache(tape, config, query.forward(tape, x), memory, options);
  detail::show(call, attended, Var<T>());
  return output.forward(tape, attended.context);
}

template <class T>
void MultiHeadAttention<T>::collect(Parameters<T>& list) {
  query.collect(list);
  key_value.collect(list);
  output.collect(list);
}

template <class T>
Tensor<T> project_heads(const Tensor<T>& x, const Tensor<T>& weights) {
  if (x.rank() != 2 || weights.rank() != 3 || weights.size(2) != x.size(1))
    throw ArgumentError("project_heads: x " + x.text() + " needs weights [heads, d, " + std::to_string(x.size(-1)) +
                        "], got " + weights.text());
  const Index heads = weights.size(0), dim = weights.size(1), seq = x.size(0), width = x.size(1);
  Tensor<T> y({1, heads, seq, dim});
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < seq; ++i)
      for (Index d = 0; d < dim; ++d) {
        T sum = 0;
        for (Index j = 0; j < width; ++j) sum += x[i * width + j] * weights[(h * dim + d) * width + j];
        y[(h * seq + i) * dim + d] = sum;
      }
  return y;
}

template <class T>
Tensor<T> project_shared(const Tensor<T>& x, const Tensor<T>& weight, Index heads) {
  if (x.rank() != 3 || heads < 1 || x.size(2) % heads != 0)
    throw ArgumentError("project_shared: model_dim of " + x.text() + " is not a multiple of " + std::to_string(heads) +
                        " heads");
  const Index batch = x.size(0), seq = x.size(1), dim = x.size(2) / heads;
  if (weight.shape() != Shape{dim, dim})
    throw ArgumentError("project_shared: weight " + weight.text() + " but head_dim is " + std::to_string(dim));
  Tensor<T> y({batch, heads, seq, dim});
  const auto from = heads_of(x.data(), shape3(x), 0, heads, dim);
  const auto to = y.template view<4>();
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < seq; ++i)
        for (Index d = 0; d < dim; ++d)
          for (Index j = 0; j < dim; ++j) to(b, h, i, d) += from(b, h, i, j) * weight[d * dim + j];
  return y;
}

template <class T>
Tensor<T> concatenate_heads(const Tensor<T>& x) {
  const auto from = x.template view<4>();
  Tensor<T> y({x.size(0), x.size(2), x.size(1) * x.size(3)});
  const auto to = heads_of(y.data(), shape3(y), 0, x.size(1), x.size(3));
  for (Index b = 0; b < x.size(0); ++b)
    for (Index h = 0; h < x.size(1); ++h)
      for (Index i = 0; i < x.size(2); ++i)
        for (Index d = 0; d < x.size(3); ++d) to(b, h, i, d) = from(b, h, i, d);
  return y;
}

#define REGARD_INSTANTIATE(T)                                                   \
  template struct KeyValueCache<T>;                                             \
  template class MultiHeadAttention<T>;                                         \
  template Tensor<T> project_heads(const Tensor<T>&, const Tensor<T>&);         \
  template Tensor<T> project_shared(const Tensor<T>&, const Tensor<T>&, Index); \
  template Tensor<T> concatenate_heads(const Tensor<T>&);
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard
