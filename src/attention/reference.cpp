// The reference: the operator's rules as plain loops. It shares no arithmetic
// with the kernels; read it to know what they compute.
#include <cmath>
#include <limits>
#include <vector>

#include "attention/plain.h"
#include "attention/plain_observe.h"
#include "attention/problem.h"
#include "regard/attend.h"
#include "regard/random.h"

namespace regard::detail {
namespace {

// What every row needs to know about the call.
template <class T>
struct PlainCall {
  Sizes sizes;
  View<const T, 4> q, k;
  const BasicAttendOptions<T>& options;
  T scale;

  Index q_start(Index b) const { return options.q_start.of(b, sizes.q_len, sizes.kv_len); }
};

template <class T>
constexpr T infinite = std::numeric_limits<T>::infinity();

// Every stage of one query's scores; entries [kv_len].
template <class T>
struct Row {
  std::vector<T> scaled, capped, masked, weights;
  std::vector<std::vector<T>> modifier_inputs;  // per modifier, the score it saw
  std::vector<std::uint8_t> visible;
  T lse = -infinite<T>;
  T entropy = 0;
};

template <class T>
void score_row(const PlainCall<T>& call, Index b, Index h, Index i, Row<T>& row) {
  const Sizes& sizes = call.sizes;
  const auto& chain = call.options.score.chain();
  const auto bias = broadcast(call.options.bias);
  const TileOrigin origin{b, h, i, call.q_start(b) + i, 0};
  call.options.mask.fill({b, h, i, 1, 0, sizes.kv_len, call.q_start(b)}, row.visible.data(), sizes.kv_len);
  for (Index j = 0; j < sizes.kv_len; ++j) {
    const auto at = static_cast<std::size_t>(j);
    T score = 0;
    for (Index d = 0; d < sizes.head_dim; ++d) score += call.q(b, h, i, d) * call.k(b, h / sizes.group(), j, d);
    row.scaled[at] = row.capped[at] = score *= call.scale;
    bool visible = row.visible[at] && j < length_of(call.options, sizes, b);
    for (std::size_t m = 0; m < chain.size(); ++m) {
      row.modifier_inputs[m][at] = score;
      const Position at_pair{origin, 0, static_cast<std::int32_t>(j)};
      score = static_cast<T>(chain[m]->apply_one(static_cast<double>(score), at_pair));
      if (m == 0 && chain[m]->kind() == ScoreModifier::Kind::softcap) row.capped[at] = score;
      visible = visible && score != -infinite<T>;
    }
    if (bias.given()) {
      const T add = bias(b, h, i, j);
      visible = visible && add != -infinite<T>;
      score += add;
    }
    row.visible[at] = visible && score != -infinite<T>;
    row.masked[at] = row.visible[at] ? score : -infinite<T>;
  }
}

template <class T>
void normalise_row(const PlainCall<T>& call, Index h, Row<T>& row) {
  const bool has_sink = !call.options.sink.empty();
  const T sink = has_sink ? call.options.sink[static_cast<std::size_t>(h)] : -infinite<T>;
  T largest = sink, sum = 0;
  for (T score : row.masked) largest = score > largest || std::isnan(score) ? score : largest;
  if (largest != -infinite<T>) {
    for (T score : row.masked) sum += score == -infinite<T> ? T{0} : std::exp(score - largest);
    if (has_sink) sum += std::exp(sink - largest);
  }
  row.lse = largest == -infinite<T> ? largest : largest + std::log(sum);
  row.entropy = 0;
  for (std::size_t j = 0; j < row.masked.size(); ++j) {
    row.weights[j] = row.visible[j] ? std::exp(row.masked[j] - largest) / sum : T{0};
    if (row.weights[j] != 0) row.entropy -= row.weights[j] * (row.masked[j] - row.lse);
  }
}

template <class T>
Row<T> make_row(const PlainCall<T>& call) {
  const auto n = static_cast<std::size_t>(call.sizes.kv_len);
  Row<T> row{std::vector<T>(n), std::vector<T>(n), std::vector<T>(n), std::vector<T>(n), {}, {}};
  row.modifier_inputs.assign(call.options.score.chain().size(), std::vector<T>(n));
  row.visible.resize(n);
  return row;
}

// 0 for a dropped weight, 1 / (1 - p) for a kept one.
double keep_factor(const Dropout& dropout, Index b, Index h, Index i, Index j) {
  if (dropout.p == 0) return 1;
  const auto words = philox({static_cast<std::uint32_t>(j / 4), static_cast<std::uint32_t>(i),
                             static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(b)},
                            dropout.seed);
  return words[static_cast<std::size_t>(j % 4)] >= dropout_threshold(dropout.p) ? 1 / (1 - dropout.p) : 0;
}

template <class T>
const std::vector<T>& stage_of(const Row<T>& row, Stage stage) {
  switch (stage) {
    case Stage::scaled: return row.scaled;
    case Stage::capped: return row.capped;
    case Stage::masked: return row.masked;
    default: return row.weights;
  }
}

template <class T>
void report_row(const PlainCall<T>& call, const std::array<Index, 3>& query, const Row<T>& row,
                BasicAttendResult<T>& result) {
  const auto& [b, h, i] = query;
  const Sizes& sizes = call.sizes;
  const Index at = (b * sizes.q_heads + h) * sizes.q_len + i;
  const Observe& observe = call.options.observe;
  if (observe.lse) result.lse[at] = row.lse;
  if (observe.entropy) result.entropy[at] = row.entropy;
  if (observe.weights) std::copy(row.weights.begin(), row.weights.end(), result.weights.data() + at * sizes.kv_len);
  observe_plain_row<T>(call.options, sizes, {b, h, i, row.masked, row.weights}, result);
  for (std::size_t r = 0; r < observe.rectangles.size(); ++r) {
    const Rectangle& want = observe.rectangles[r];
    if (want.batch != b || want.head != h || i < want.row || i >= want.row + want.rows) continue;
    const auto& stage = stage_of(row, want.stage);
    for (Index j = 0; j < want.keys; ++j)
      result.rectangles[r][(i - want.row) * want.keys + j] = stage[static_cast<std::size_t>(want.key + j)];
  }
}

template <class T>
BasicAttendResult<T> empty_result(const Sizes& sizes, const Observe& observe) {
  BasicAttendResult<T> result;
  const Shape rows{sizes.batch, sizes.q_heads, sizes.q_len};
  result.out = Tensor<T>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  if (observe.lse) result.lse = Tensor<T>(rows);
  if (observe.entropy) result.entropy = Tensor<T>(rows);
  if (observe.weights) result.weights = Tensor<T>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len});
  for (const Rectangle& want : observe.rectangles) result.rectangles.emplace_back(Shape{want.rows, want.keys});
  return result;
}

template <class F>
void for_each_query(const Sizes& sizes, F visit) {
  for (Index b = 0; b < sizes.batch; ++b)
    for (Index h = 0; h < sizes.q_heads; ++h)
      for (Index i = 0; i < sizes.q_len; ++i) visit(b, h, i);
}

// One visible pair and d(loss)/d(the score that enters the softmax).
template <class T>
struct PairGradient {
  Index b, h, i, j;
  T dscore;
};

template <class T>
void add_pair(const PlainCall<T>& call, const PairGradient<T>& pair, const Row<T>& row,
              BasicAttendGradients<T>& gradients) {
  const Sizes& sizes = call.sizes;
  const auto& [b, h, i, j, dscore] = pair;
  if (call.options.bias.given()) broadcast(gradients.dbias.template view<4>())(b, h, i, j) += dscore;
  const TileOrigin origin{b, h, i, call.q_start(b) + i, 0};
  const Position at{origin, 0, static_cast<std::int32_t>(j)};
  T inner = dscore;
  for (std::size_t m = call.options.score.chain().size(); m-- > 0;) {
    const ScoreModifier& modifier = *call.options.score.chain()[m];
    const double input = static_cast<double>(row.modifier_inputs[m][static_cast<std::size_t>(j)]);
    modifier.add_parameter_gradient_one(static_cast<double>(inner), input, at, gradients.dparameters[m]);
    inner *= static_cast<T>(modifier.derivative_one(input, at));
  }
  const auto dq = gradients.dq.template view<4>(), dk = gradients.dk.template view<4>();
  for (Index d = 0; d < sizes.head_dim; ++d) {
    dq(b, h, i, d) += inner * call.scale * call.k(b, h / sizes.group(), j, d);
    dk(b, h / sizes.group(), j, d) += inner * call.scale * call.q(b, h, i, d);
  }
}

template <class T>
BasicAttendGradients<T> zero_gradients(const Sizes& sizes, const BasicAttendOptions<T>& options) {
  BasicAttendGradients<T> gradients;
  gradients.dq = Tensor<T>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.head_dim});
  gradients.dk = Tensor<T>({sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.head_dim});
  gradients.dv = Tensor<T>({sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.value_dim});
  if (options.bias.given()) gradients.dbias = Tensor<T>(shape_of(options.bias));
  if (!options.sink.empty()) gradients.dsink = Tensor<T>({sizes.q_heads});
  for (const auto& modifier : options.score.chain())
    gradients.dparameters.emplace_back(static_cast<std::size_t>(modifier->parameter_count()));
  return gradients;
}

}  // namespace

template <class T>
BasicAttendResult<T> plain_attend(const View<const T, 4>& q, const View<const T, 4>& k, const View<const T, 4>& v,
                                  const BasicAttendOptions<T>& options) {
  const Sizes sizes = check_shapes("reference::attend", q.sizes(), k.sizes(), v.sizes());
  check_options("reference::attend", sizes, options);
  const PlainCall<T> call{sizes, q, k, options, scale_of(options, sizes)};
  auto result = empty_result<T>(sizes, options.observe);
  start_observations(options, sizes, result);
  const auto out = result.out.template view<4>();
  Row<T> row = make_row(call);
  for_each_query(sizes, [&](Index b, Index h, Index i) {
    score_row(call, b, h, i, row);
    normalise_row(call, h, row);
    for (Index j = 0; j < sizes.kv_len; ++j) {
      const T keep = static_cast<T>(keep_factor(options.dropout, b, h, i, j));
      if (!row.visible[static_cast<std::size_t>(j)]) continue;
      const T weight = row.weights[static_cast<std::size_t>(j)] * keep;
      for (Index d = 0; d < sizes.value_dim; ++d) out(b, h, i, d) += weight * v(b, h / sizes.group(), j, d);
    }
    report_row(call, {b, h, i}, row, result);
  });
  return result;
}

template <class T>
BasicAttendGradients<T> plain_attend_backward(const View<const T, 4>& dout, const View<const T, 4>& q,
                                              const View<const T, 4>& k, const View<const T, 4>& v,
                                              const BasicForward<T>& forward, const BasicAttendOptions<T>& options,
                                              const View<const T, 3>& dlse) {
  const char* name = "reference::attend_backward";
  const Sizes sizes = check_shapes(name, q.sizes(), k.sizes(), v.sizes());
  check_options(name, sizes, options);
  check_backward(
      name, sizes,
      {shape_of(dout), shape_of(forward.out), shape_of(forward.lse), dlse.given() ? shape_of(dlse) : Shape{}});
  check_differentiable(name, options.score);
  const PlainCall<T> call{sizes, q, k, options, scale_of(options, sizes)};
  auto gradients = zero_gradients(sizes, options);
  const auto dv = gradients.dv.template view<4>();
  Row<T> row = make_row(call);
  for_each_query(sizes, [&](Index b, Index h, Index i) {
    score_row(call, b, h, i, row);
    normalise_row(call, h, row);
    // sum_j p_j dp_j, which softmax's gradient subtracts, equals dout . out. An
    // output of 0 takes no share of dout, not even of NaN: a row that sees no
    // key must leave every gradient alone.
    T shared = dlse.given() ? -dlse(b, h, i) : T{0};
    for (Index d = 0; d < sizes.value_dim; ++d)
      if (forward.out(b, h, i, d) != 0) shared += dout(b, h, i, d) * forward.out(b, h, i, d);
    if (!options.sink.empty() && row.lse != -infinite<T>)
      gradients.dsink[h] -= std::exp(options.sink[static_cast<std::size_t>(h)] - row.lse) * shared;
    for (Index j = 0; j < sizes.kv_len; ++j) {
      if (!row.visible[static_cast<std::size_t>(j)]) continue;
      const T keep = static_cast<T>(keep_factor(options.dropout, b, h, i, j));
      const T weight = row.weights[static_cast<std::size_t>(j)];
      T dweight = 0;
      for (Index d = 0; d < sizes.value_dim; ++d) {
        dweight += keep * dout(b, h, i, d) * v(b, h / sizes.group(), j, d);
        dv(b, h / sizes.group(), j, d) += weight * keep * dout(b, h, i, d);
      }
      add_pair(call, PairGradient<T>{b, h, i, j, weight * (dweight - shared)}, row, gradients);
    }
  });
  return gradients;
}

template BasicAttendResult<float> plain_attend(const View<const float, 4>&, const View<const float, 4>&,
                                               const View<const float, 4>&, const BasicAttendOptions<float>&);
template BasicAttendGradients<float> plain_attend_backward(const View<const float, 4>&, const View<const float, 4>&,
                                                           const View<const float, 4>&, const View<const float, 4>&,
                                                           const BasicForward<float>&, const BasicAttendOptions<float>&,
                                                           const View<const float, 3>&);

}  // namespace regard::detail

namespace regard::reference {

Result attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v, const Options& options) {
  return detail::plain_attend(q, k, v, options);
}

Gradients attend_backward(View<const double, 4> dout, View<const double, 4> q, View<const double, 4> k,
                          View<const double, 4> v, const Forward& forward, const Options& options,
                          View<const double, 3> dlse) {
  return detail::plain_attend_backward(dout, q, k, v, forward, options, dlse);
}

}  // namespace regard::reference
