#include "nn/attend_heads.h"

#include "nn/node.h"

namespace regard {
namespace detail {

BasicAttendResult<float> run_attention(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                                       View<float, 4> out, const BasicAttendOptions<float>& options) {
  return attend_into(out, q, k, v, options);
}

BasicAttendResult<double> run_attention(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                        View<double, 4> out, const BasicAttendOptions<double>& options) {
  auto result = reference::attend(q, k, v, options);
  copy_heads(result.out, out);
  return result;
}

}  // namespace detail

namespace {

using detail::copy_heads;
using detail::heads_of;
using detail::ProjectedHeads;
using detail::shape3;

template <class T>
struct Views {
  View<T, 4> q, k, v;
};

// Both return the gradients of what the options hold.
BasicAttendGradients<float> run_backward(const Views<float>& gradients, View<const float, 4> dout,
                                         const Views<const float>& x, const BasicForward<float>& forward,
                                         const BasicAttendOptions<float>& options) {
  return attend_backward_into({gradients.q, gradients.k, gradients.v}, dout, x.q, x.k, x.v, {forward.out, forward.lse},
                              options);
}

BasicAttendGradients<double> run_backward(const Views<double>& gradients, View<const double, 4> dout,
                                          const Views<const double>& x, const BasicForward<double>& forward,
                                          const BasicAttendOptions<double>& options) {
  auto result = reference::attend_backward(dout, x.q, x.k, x.v, forward, options);
  copy_heads(result.dq, gradients.q);
  copy_heads(result.dk, gradients.k);
  copy_heads(result.dv, gradients.v);
  return result;
}

// The gradients of what scores have learned, laid out like the tables.
template <class T>
void add_to_tables(const std::vector<Parameter<T>*>& tables, const BasicAttendGradients<T>& gradients) {
  for (std::size_t m = 0; m < tables.size(); ++m) {
    if (!tables[m]) continue;
    const std::vector<double>& sums = gradients.dparameters[m];
    for (std::size_t n = 0; n < sums.size(); ++n) tables[m]->gradient[static_cast<Index>(n)] += static_cast<T>(sums[n]);
  }
}

template <class T>
Views<const T> views_of(const ProjectedHeads<T>& heads) {
  const auto view = [](const detail::HeadColumns<T>& part) {
    const Tensor<T>& x = part.x->value;
    return heads_of(x.data(), shape3(x), part.first, part.heads, part.dim);
  };
  return {view(heads.q), view(heads.k), view(heads.v)};
}

// Gradients of the nodes that q, k and v lie in; k and v may share one.
template <class T>
class NodeGradients {
 public:
  View<T, 4> columns(const detail::HeadColumns<T>& part) {
    auto found = gradients_.begin();
    while (found != gradients_.end() && found->first != part.x) ++found;
    if (found == gradients_.end())
      found = gradients_.insert(found, {part.x, Tensor<T>::uninitialised(part.x->value.shape())});
    return heads_of(found->second.data(), shape3(found->second), part.first, part.heads, part.dim);
  }
  void pass_on() {
    for (auto& [node, gradient] : gradients_) detail::pass_on(*node, std::move(gradient));
  }

 private:
  std::vector<std::pair<Var<T>, Tensor<T>>> gradients_;
};

}  // namespace

template <class T>
detail::AttendedHeads<T> detail::attend_projected(Tape<T>& tape, const ProjectedHeads<T>& heads, double dropout,
                                                  const AttentionCall<T>& call) {
  const LearnedScore<T> score = score_of(call, heads.score);
  auto options = options_of(tape, call, dropout);
  add_score(score, options);
  const Tensor<T>& q = heads.q.x->value;
  const Index count = heads.q.heads, dim = heads.v.dim;
  auto out = tape.node(Tensor<T>::uninitialised({q.size(0), q.size(1), count * dim}));
  const auto x = views_of(heads);
  auto result = run_attention(x.q, x.k, x.v, heads_of(out->value.data(), shape3(out->value), 0, count, dim), options);
  const auto lse = std::make_shared<Tensor<T>>(tape.recording() ? result.lse : Tensor<T>());
  tape.record([heads, out, options, lse, count, dim, score] {
    if (out->gradient.empty()) return;
    const auto as_heads = [&](const Tensor<T>& t) { return heads_of(t.data(), shape3(t), 0, count, dim); };
    NodeGradients<T> gradients;
    const auto dq = gradients.columns(heads.q), dk = gradients.columns(heads.k), dv = gradients.columns(heads.v);
    auto learned = run_backward({dq, dk, dv}, as_heads(out->gradient), views_of(heads),
                                {as_heads(out->value), lse->template view<3>()}, options);
    add_to_tables(score.tables, learned);
    if (score.bias) score.bias->gradient = std::move(learned.dbias);
    gradients.pass_on();
  });
  return {out, std::move(result)};
}

template <class T>
void detail::show(const AttentionCall<T>& call, const AttendedHeads<T>& attended, const Var<T>& key_value) {
  if (!call.seen) return;
  *call.seen = {};  // nothing of an earlier run stays
  static_cast<BasicObservations<T>&>(*call.seen) = attended.result;
  call.seen->key_value = key_value;
  call.seen->context = attended.context;
}

template <class T>
Var<T> detail::attend_heads(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv,
                            const AttentionCall<T>& call) {
  return attend_fused(tape, config, fused_heads(config, q, kv), call);
}

template <class T>
Var<T> detail::attend_fused(Tape<T>& tape, const MultiHeadConfig& config, const ProjectedHeads<T>& heads,
                            const AttentionCall<T>& call) {
  const Var<T>& kv = heads.k.x;
  const auto attended = attend_projected(tape, heads, config.dropout, call);
  if (call.change) call.change({attended.context->value, kv->value, attended.result.weights, config});
  show(call, attended, kv);
  return attended.context;
}

#define REGARD_INSTANTIATE(T)                                                                            \
  template detail::AttendedHeads<T> detail::attend_projected(Tape<T>&, const ProjectedHeads<T>&, double, \
                                                             const AttentionCall<T>&);                   \
  template void detail::show(const AttentionCall<T>&, const AttendedHeads<T>&, const Var<T>&);           \
  template Var<T> detail::attend_heads(Tape<T>&, const MultiHeadConfig&, const Var<T>&, const Var<T>&,   \
                                       const AttentionCall<T>&);                                         \
  template Var<T> detail::attend_fused(Tape<T>&, const MultiHeadConfig&, const ProjectedHeads<T>&,       \
                                       const AttentionCall<T>&);
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard
