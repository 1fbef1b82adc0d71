#include "regard/disentangled.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "nn/attend_heads.h"
#include "nn/distance_scores.h"
#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

using detail::Rows;
using detail::shape3;

// Where a head's rows of every part lie. q, k: tokens; far_q, far_k: positions.
template <class T>
struct HeadRows {
  Rows<T> q, k, far_q, far_k;
};

struct Sizes {
  Index batch, heads, seq, dim;
};

// Entry b, head h of q [batch, seq, width], kv [batch, seq, 2 width] and of the
// same for positions, which have no batch.
template <class T>
HeadRows<T> rows_of(const std::array<T*, 4>& parts, const Sizes& s, Index b, Index h) {
  const Index width = s.heads * s.dim;
  return {{parts[0] + b * s.seq * width + h * s.dim, width},
          {parts[1] + b * s.seq * 2 * width + h * s.dim, 2 * width},
          {parts[2] + h * s.dim, width},
          {parts[3] + h * s.dim, 2 * width}};
}

// Table rows of the distances -(seq - 1) ... seq - 1.
std::vector<Index> table_rows(const DisentangledConfig& config, Index seq) {
  std::vector<Index> rows;
  for (Index distance = 1 - seq; distance < seq; ++distance) {
    const Index bucket = disentangled_bucket(distance, config.buckets, config.max_distance);
    rows.push_back(std::clamp(bucket + config.buckets, Index{0}, 2 * config.buckets - 1));
  }
  return rows;
}

BasicAttendResult<float> run(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                             const BasicAttendOptions<float>& options) {
  return attend(q, k, v, options);
}
BasicAttendResult<double> run(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                              const BasicAttendOptions<double>& options) {
  return reference::attend(q, k, v, options);
}
template <class T>
struct Attended {
  View<const T, 4> q, k, v;
};
BasicAttendGradients<float> run_backward(View<const float, 4> dout, const Attended<float>& x,
                                         const BasicForward<float>& forward, const BasicAttendOptions<float>& options) {
  return attend_backward(dout, x.q, x.k, x.v, {forward.out, forward.lse}, options);
}
BasicAttendGradients<double> run_backward(View<const double, 4> dout, const Attended<double>& x,
                                          const BasicForward<double>& forward,
                                          const BasicAttendOptions<double>& options) {
  return reference::attend_backward(dout, x.q, x.k, x.v, forward, options);
}

// The node between the projections and the output.
template <class T>
class Disentangled {
 public:
  Disentangled(const DisentangledConfig& config, std::array<Var<T>, 4> inputs)
      : config_(config),
        inputs_(std::move(inputs)),
        sizes_{inputs_[0]->value.size(0), config.heads, inputs_[0]->value.size(1), config.model_dim / config.heads},
        rows_(table_rows(config, sizes_.seq)),
        scale_(static_cast<T>(1 / std::sqrt(3.0 * static_cast<double>(sizes_.dim)))) {}

  Tensor<T> run_forward(BasicAttendOptions<T> options) {
    options_ = std::move(options);
    bias_ = Tensor<T>::uninitialised({sizes_.batch, sizes_.heads, sizes_.seq, sizes_.seq});
    parallel_items(sizes_.batch * sizes_.heads, [&](Index head, int) { fill_bias(head); });
    options_.scale = scale_;
    options_.bias = std::as_const(bias_).template view<4>();
    const auto x = attended();
    result_ = run(x.q, x.k, x.v, options_);
    return concatenate_heads(result_.out);
  }
  BasicAttendResult<T>& result() { return result_; }

  void run_backward_from(const Tensor<T>& dout) {
    const auto slopes = detail::heads_of(dout.data(), shape3(dout), 0, sizes_.heads, sizes_.dim);
    const auto gradients = run_backward(
        slopes, attended(),
        {std::as_const(result_.out).template view<4>(), std::as_const(result_.lse).template view<3>()}, options_);
    std::array<Tensor<T>, 4> d;
    for (std::size_t n = 0; n < 4; ++n) d[n] = Tensor<T>(inputs_[n]->value.shape());
    detail::copy_heads(gradients.dq, heads(d[0], 0));
    detail::copy_heads(gradients.dk, heads(d[1], 0));
    detail::copy_heads(gradients.dv, heads(d[1], 1));
    // Positions serve all batch entries: heads in turn, entries one after the other.
    parallel_items(sizes_.heads, [&](Index h, int) {
      for (Index b = 0; b < sizes_.batch; ++b) spread_bias(gradients.dbias, b, h, d);
    });
    for (std::size_t n = 0; n < 4; ++n) detail::pass_on(*inputs_[n], std::move(d[n]));
  }

 private:
  template <class U>
  View<U, 4> heads_in(U* data, const Tensor<T>& shape, Index part) const {
    return detail::heads_of(data, shape3(shape), part * config_.model_dim, sizes_.heads, sizes_.dim);
  }
  View<T, 4> heads(Tensor<T>& x, Index part) const { return heads_in(x.data(), x, part); }
  Attended<T> attended() const {
    const auto part = [&](std::size_t n, Index which) {
      const Tensor<T>& x = inputs_[n]->value;
      return heads_in(x.data(), x, which);
    };
    return {part(0, 0), part(1, 0), part(1, 1)};
  }
  HeadRows<const T> rows_in(Index b, Index h) const {
    return rows_of<const T>(
        {inputs_[0]->value.data(), inputs_[1]->value.data(), inputs_[2]->value.data(), inputs_[3]->value.data()},
        sizes_, b, h);
  }
  Index table_row(Index i, Index j) const { return rows_[static_cast<std::size_t>(i - j + sizes_.seq - 1)]; }

  void fill_bias(Index head) {
    const auto x = rows_in(head / sizes_.heads, head % sizes_.heads);
    const Index seq = sizes_.seq, rows = 2 * config_.buckets;
    const auto of_queries = detail::against_vectors<T>(x.q, x.far_k, {seq, rows}, sizes_.dim);
    const auto of_keys = detail::against_vectors<T>(x.k, x.far_q, {seq, rows}, sizes_.dim);
    T* bias = bias_.data() + head * seq * seq;
    for (Index i = 0; i < seq; ++i)
      for (Index j = 0; j < seq; ++j) {
        const Index row = table_row(i, j);
        bias[i * seq + j] = scale_ * (of_queries[i * rows + row] + of_keys[j * rows + row]);
      }
  }

  void spread_bias(const Tensor<T>& dbias, Index b, Index h, std::array<Tensor<T>, 4>& d) const {
    const Index seq = sizes_.seq, rows = 2 * config_.buckets;
    Tensor<T> of_queries({seq, rows}), of_keys({seq, rows});
    const T* slopes = dbias.data() + (b * sizes_.heads + h) * seq * seq;
    for (Index i = 0; i < seq; ++i)
      for (Index j = 0; j < seq; ++j) {
        of_queries[i * rows + table_row(i, j)] += scale_ * slopes[i * seq + j];
        of_keys[j * rows + table_row(i, j)] += scale_ * slopes[i * seq + j];
      }
    const auto to = rows_of<T>({d[0].data(), d[1].data(), d[2].data(), d[3].data()}, sizes_, b, h);
    const auto x = rows_in(b, h);
    detail::add_from_scores<T>(of_queries, {x.q, x.far_k}, {to.q, to.far_k}, sizes_.dim);
    detail::add_from_scores<T>(of_keys, {x.k, x.far_q}, {to.k, to.far_q}, sizes_.dim);
  }

  DisentangledConfig config_;
  std::array<Var<T>, 4> inputs_;  // q, kv, and the same of positions
  Sizes sizes_;
  std::vector<Index> rows_;
  T scale_;
  Tensor<T> bias_;
  BasicAttendOptions<T> options_;
  BasicAttendResult<T> result_;
};

}  // namespace

Index disentangled_bucket(Index distance, Index buckets, Index max_distance) {
  const Index middle = buckets / 2, size = std::abs(distance);
  if (size <= middle) return distance;
  const double share = std::log(static_cast<double>(size) / static_cast<double>(middle)) /
                       std::log(static_cast<double>(max_distance - 1) / static_cast<double>(middle));
  const Index bucket = middle + static_cast<Index>(std::ceil(share * static_cast<double>(middle - 1)));
  return distance < 0 ? -bucket : bucket;
}

template <class T>
DisentangledAttention<T>::DisentangledAttention(const std::string& name, const DisentangledConfig& given,
                                                Random& random)
    : config(given) {
  if (config.heads < 1 || config.model_dim % config.heads != 0)
    throw ArgumentError(name + ": model_dim " + std::to_string(config.model_dim) + " is not a multiple of " +
                        std::to_string(config.heads) + " heads");
  if (config.buckets < 2 || config.max_distance - 1 <= config.buckets / 2)
    throw ArgumentError(name + ": buckets " + std::to_string(config.buckets) + " must be at least 2 and max_distance " +
                        std::to_string(config.max_distance) + " beyond half of them");
  query = Linear<T>(name + ".query", config.model_dim, config.model_dim, random);
  key_value = Linear<T>(name + ".key_value", config.model_dim, 2 * config.model_dim, random);
  output = Linear<T>(name + ".output", config.model_dim, config.model_dim, random);
}

template <class T>
Var<T> DisentangledAttention<T>::forward(Tape<T>& tape, const Var<T>& x, const Var<T>& relative,
                                         const AttentionCall<T>& call) {
  if (call.change) throw ArgumentError("DisentangledAttention: its heads can be seen, but not changed");
  if (call.pair_bias.table || call.positions)
    throw ArgumentError("DisentangledAttention: takes no bias and no positions besides its own");
  if (x->value.rank() != 3) throw ArgumentError("DisentangledAttention: x " + x->value.text() + " must be 3-D");
  if (relative->value.shape() != Shape{2 * config.buckets, config.model_dim})
    throw ArgumentError("DisentangledAttention: relative " + relative->value.text() + " but " +
                        shape_text(Shape{2 * config.buckets, config.model_dim}) + " is needed");
  const auto node = std::make_shared<Disentangled<T>>(
      config, std::array<Var<T>, 4>{query.forward(tape, x), key_value.forward(tape, x), query.forward(tape, relative),
                                    key_value.forward(tape, relative)});
  auto context = tape.node(node->run_forward(detail::options_of(tape, call, config.dropout)));
  if (call.seen) {
    *call.seen = {};
    static_cast<BasicObservations<T>&>(*call.seen) = node->result();
    call.seen->context = context;
  }
  tape.record([node, context] {
    if (!context->gradient.empty()) node->run_backward_from(context->gradient);
  });
  return output.forward(tape, context);
}

template <class T>
void DisentangledAttention<T>::collect(Parameters<T>& list) {
  for (Linear<T>* part : {&query, &key_value, &output}) part->collect(list);
}

template class DisentangledAttention<float>;
template class DisentangledAttention<double>;

}  // namespace regard
