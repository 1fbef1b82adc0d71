// The reference: the operator's rules as plain loops in double precision. It
// shares no arithmetic with the kernels; read it to know what they compute.
#include <cmath>
#include <limits>
#include <vector>

#include "attention/problem.h"
#include "regard/attend.h"
#include "regard/random.h"

namespace regard::reference {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
using detail::Sizes;

// What every row needs to know about the call.
struct Call {
  Sizes sizes;
  View<const double, 4> q, k;
  const Options& options;
  double scale;

  Index q_start(Index b) const { return options.q_start.of(b, sizes.q_len, sizes.kv_len); }
};

// Every stage of one query's scores; entries [kv_len].
struct Row {
  std::vector<double> scaled, capped, masked, weights;
  std::vector<std::vector<double>> modifier_inputs;  // per modifier, the score it saw
  std::vector<std::uint8_t> visible;
  double lse = -infinity;
  double entropy = 0;
};

void score_row(const Call& call, Index b, Index h, Index i, Row& row) {
  const Sizes& sizes = call.sizes;
  const auto& chain = call.options.score.chain();
  const auto bias = detail::broadcast(call.options.bias);
  const TileOrigin origin{b, h, i, call.q_start(b) + i, 0};
  call.options.mask.fill({b, h, i, 1, 0, sizes.kv_len, call.q_start(b)}, row.visible.data(), sizes.kv_len);
  for (Index j = 0; j < sizes.kv_len; ++j) {
    const auto at = static_cast<std::size_t>(j);
    double score = 0;
    for (Index d = 0; d < sizes.head_dim; ++d) score += call.q(b, h, i, d) * call.k(b, h / sizes.group(), j, d);
    row.scaled[at] = row.capped[at] = score *= call.scale;
    bool visible = row.visible[at] && j < detail::length_of(call.options, sizes, b);
    for (std::size_t m = 0; m < chain.size(); ++m) {
      row.modifier_inputs[m][at] = score;
      score = chain[m]->apply_one(score, {origin, 0, static_cast<std::int32_t>(j)});
      if (m == 0 && chain[m]->kind() == ScoreModifier::Kind::softcap) row.capped[at] = score;
      visible = visible && score != -infinity;
    }
    if (bias.given()) {
      const double add = bias(b, h, i, j);
      visible = visible && add != -infinity;
      score += add;
    }
    row.visible[at] = visible && score != -infinity;
    row.masked[at] = row.visible[at] ? score : -infinity;
  }
}

void normalise_row(const Call& call, Index h, Row& row) {
  const bool has_sink = !call.options.sink.empty();
  const double sink = has_sink ? call.options.sink[static_cast<std::size_t>(h)] : -infinity;
  double largest = sink, sum = 0;
  for (double score : row.masked) largest = score > largest || std::isnan(score) ? score : largest;
  if (largest != -infinity) {
    for (double score : row.masked) sum += score == -infinity ? 0.0 : std::exp(score - largest);
    if (has_sink) sum += std::exp(sink - largest);
  }
  row.lse = largest == -infinity ? -infinity : largest + std::log(sum);
  row.entropy = 0;
  for (std::size_t j = 0; j < row.masked.size(); ++j) {
    row.weights[j] = row.visible[j] ? std::exp(row.masked[j] - row.lse) : 0.0;
    if (row.weights[j] != 0) row.entropy -= row.weights[j] * (row.masked[j] - row.lse);
  }
}

Row make_row(const Call& call) {
  const auto n = static_cast<std::size_t>(call.sizes.kv_len);
  Row row{std::vector<double>(n), std::vector<double>(n), std::vector<double>(n), std::vector<double>(n), {}, {}};
  row.modifier_inputs.assign(call.options.score.chain().size(), std::vector<double>(n));
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

const std::vector<double>& stage_of(const Row& row, Stage stage) {
  switch (stage) {
    case Stage::scaled: return row.scaled;
    case Stage::capped: return row.capped;
    case Stage::masked: return row.masked;
    default: return row.weights;
  }
}

void report_row(const Call& call, Index b, Index h, Index i, const Row& row, Result& result) {
  const Sizes& sizes = call.sizes;
  const Index at = (b * sizes.q_heads + h) * sizes.q_len + i;
  const Observe& observe = call.options.observe;
  if (observe.lse) result.lse[at] = row.lse;
  if (observe.entropy) result.entropy[at] = row.entropy;
  if (observe.weights) std::copy(row.weights.begin(), row.weights.end(), result.weights.data() + at * sizes.kv_len);
  for (std::size_t r = 0; r < observe.rectangles.size(); ++r) {
    const Rectangle& want = observe.rectangles[r];
    if (want.batch != b || want.head != h || i < want.row || i >= want.row + want.rows) continue;
    const auto& stage = stage_of(row, want.stage);
    for (Index j = 0; j < want.keys; ++j)
      result.rectangles[r][(i - want.row) * want.keys + j] = stage[static_cast<std::size_t>(want.key + j)];
  }
}

Result empty_result(const Sizes& sizes, const Observe& observe) {
  Result result;
  const Shape rows{sizes.batch, sizes.q_heads, sizes.q_len};
  result.out = Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  if (observe.lse) result.lse = Tensor<double>(rows);
  if (observe.entropy) result.entropy = Tensor<double>(rows);
  if (observe.weights) result.weights = Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len});
  for (const Rectangle& want : observe.rectangles) result.rectangles.emplace_back(Shape{want.rows, want.keys});
  return result;
}

template <class F>
void for_each_query(const Sizes& sizes, F visit) {
  for (Index b = 0; b < sizes.batch; ++b)
    for (Index h = 0; h < sizes.q_heads; ++h)
      for (Index i = 0; i < sizes.q_len; ++i) visit(b, h, i);
}

}  // namespace

Result attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v, const Options& options) {
  const Sizes sizes = detail::check_shapes("reference::attend", q.sizes(), k.sizes(), v.sizes());
  detail::check_options("reference::attend", sizes, options);
  const Call call{sizes, q, k, options, detail::scale_of(options, sizes)};
  Result result = empty_result(sizes, options.observe);
  const auto out = result.out.view<4>();
  Row row = make_row(call);
  for_each_query(sizes, [&](Index b, Index h, Index i) {
    score_row(call, b, h, i, row);
    normalise_row(call, h, row);
    for (Index j = 0; j < sizes.kv_len; ++j) {
      if (!row.visible[static_cast<std::size_t>(j)]) continue;
      const double weight = row.weights[static_cast<std::size_t>(j)] * keep_factor(options.dropout, b, h, i, j);
      if (weight == 0 && keep_factor(options.dropout, b, h, i, j) == 0) continue;
      for (Index d = 0; d < sizes.value_dim; ++d) out(b, h, i, d) += weight * v(b, h / sizes.group(), j, d);
    }
    report_row(call, b, h, i, row, result);
  });
  return result;
}

namespace {

// Sums everything one visible pair contributes to the gradients.
struct PairGradient {
  Index b, h, i, j;
  double dscore;  // with respect to the score that enters the softmax
};

void add_pair(const Call& call, const PairGradient& pair, const Row& row, Gradients& gradients) {
  const Sizes& sizes = call.sizes;
  const auto& [b, h, i, j, dscore] = pair;
  if (call.options.bias.given()) detail::broadcast(gradients.dbias.view<4>())(b, h, i, j) += dscore;
  const TileOrigin origin{b, h, i, call.q_start(b) + i, 0};
  const Position at{origin, 0, static_cast<std::int32_t>(j)};
  double inner = dscore;
  for (std::size_t m = call.options.score.chain().size(); m-- > 0;) {
    const ScoreModifier& modifier = *call.options.score.chain()[m];
    const double input = row.modifier_inputs[m][static_cast<std::size_t>(j)];
    modifier.add_parameter_gradient_one(inner, input, at, gradients.dparameters[m]);
    inner *= modifier.derivative_one(input, at);
  }
  const auto dq = gradients.dq.view<4>(), dk = gradients.dk.view<4>();
  for (Index d = 0; d < sizes.head_dim; ++d) {
    dq(b, h, i, d) += inner * call.scale * call.k(b, h / sizes.group(), j, d);
    dk(b, h / sizes.group(), j, d) += inner * call.scale * call.q(b, h, i, d);
  }
}

Gradients zero_gradients(const Sizes& sizes, const Options& options) {
  Gradients gradients;
  gradients.dq = Tensor<double>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.head_dim});
  gradients.dk = Tensor<double>({sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.head_dim});
  gradients.dv = Tensor<double>({sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.value_dim});
  if (options.bias.given()) gradients.dbias = Tensor<double>(detail::shape_of(options.bias));
  if (!options.sink.empty()) gradients.dsink = Tensor<double>({sizes.q_heads});
  for (const auto& modifier : options.score.chain())
    gradients.dparameters.emplace_back(static_cast<std::size_t>(modifier->parameter_count()));
  return gradients;
}

}  // namespace

Gradients attend_backward(View<const double, 4> dout, View<const double, 4> q, View<const double, 4> k,
                          View<const double, 4> v, const Forward& forward, const Options& options,
                          View<const double, 3> dlse) {
  const char* name = "reference::attend_backward";
  const Sizes sizes = detail::check_shapes(name, q.sizes(), k.sizes(), v.sizes());
  detail::check_options(name, sizes, options);
  detail::check_backward(name, sizes, dout, forward, dlse);
  detail::check_differentiable(name, options.score);
  const Call call{sizes, q, k, options, detail::scale_of(options, sizes)};
  Gradients gradients = zero_gradients(sizes, options);
  const auto dv = gradients.dv.view<4>();
  Row row = make_row(call);
  for_each_query(sizes, [&](Index b, Index h, Index i) {
    score_row(call, b, h, i, row);
    normalise_row(call, h, row);
    const Index group = h / sizes.group();
    // sum_j p_j dp_j, which softmax's gradient subtracts, equals dout . out.
    double shared = dlse.given() ? -dlse(b, h, i) : 0.0;
    // An output of 0 takes no share of dout, not even of NaN: a row that sees no
    // key must leave every gradient alone.
    for (Index d = 0; d < sizes.value_dim; ++d)
      if (forward.out(b, h, i, d) != 0) shared += dout(b, h, i, d) * forward.out(b, h, i, d);
    if (!options.sink.empty() && row.lse != -infinity)
      gradients.dsink[h] -= std::exp(options.sink[static_cast<std::size_t>(h)] - row.lse) * shared;
    for (Index j = 0; j < sizes.kv_len; ++j) {
      if (!row.visible[static_cast<std::size_t>(j)]) continue;
      const double keep = keep_factor(options.dropout, b, h, i, j), weight = row.weights[static_cast<std::size_t>(j)];
      double dweight = 0;
      for (Index d = 0; d < sizes.value_dim && keep != 0; ++d) {
        dweight += keep * dout(b, h, i, d) * v(b, group, j, d);
        dv(b, group, j, d) += weight * keep * dout(b, h, i, d);
      }
      add_pair(call, {b, h, i, j, weight * (dweight - shared)}, row, gradients);
    }
  });
  return gradients;
}

}  // namespace regard::reference
