#include "regard/positions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>

#include "nn/attend_heads.h"
#include "nn/gradient_check.h"
#include "refusal.h"
#include "regard/error.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

using testing::expect_exact_gradients;
using testing::message_of;
using testing::random_tensor;
using testing::shaken_parameters;

constexpr Index width = 8, heads = 2, dim = 4;

MultiHeadAttention<double> layer_of(MultiHeadConfig config = {.model_dim = width, .heads = heads}) {
  Random random(1);
  MultiHeadAttention<double> layer("attention", config, random);
  shaken_parameters(layer);
  return layer;
}

template <class T>
std::unique_ptr<Positions<T>> scheme(PositionKind kind, bool causal_stack, Index head_count = heads) {
  Random random(2);
  return make_positions<T>(kind, {"stack", head_count * dim, head_count, 32, causal_stack}, random);
}

// Those that act in attention.
const PositionKind inside[] = {PositionKind::rotary, PositionKind::alibi, PositionKind::t5, PositionKind::shaw};

// x [seq, width] through a layer by the definition of attention, one head after the
// other; `score` gives q . k as positions have it, and what they add.
using Vector = std::vector<double>;
struct Definition {
  std::function<double(const Vector& q, const Vector& k, Index i, Index j)> product;
  std::function<double(Index head, Index i, Index j)> bias;
  bool causal = false;
};

double times(const double* x, const Linear<double>& linear, Index column) {
  double sum = linear.bias.value[column];
  for (Index n = 0; n < linear.in(); ++n) sum += x[n] * linear.weight.value[n * linear.out() + column];
  return sum;
}

Vector head_of(const double* x, const Linear<double>& linear, Index first) {
  Vector result;
  for (Index d = 0; d < dim; ++d) result.push_back(times(x, linear, first + d));
  return result;
}

Vector by_definition(const MultiHeadAttention<double>& layer, const Tensor<double>& x, const Definition& rule) {
  const Index seq = x.size(1);
  Vector out;
  for (Index i = 0; i < seq; ++i) {
    Vector context;
    for (Index h = 0; h < heads; ++h) {
      const Index last = rule.causal ? i : seq - 1;
      Vector weights, sum(dim, 0.0);
      double total = 0;
      for (Index j = 0; j <= last; ++j) {
        const double product = rule.product(head_of(x.data() + i * width, layer.query, h * dim),
                                            head_of(x.data() + j * width, layer.key_value, h * dim), i, j);
        weights.push_back(std::exp(product / std::sqrt(double(dim)) + rule.bias(h, i, j)));
        total += weights.back();
      }
      for (Index j = 0; j <= last; ++j)
        for (Index d = 0; d < dim; ++d)
          sum[size_t(d)] +=
              weights[size_t(j)] / total * times(x.data() + j * width, layer.key_value, width + h * dim + d);
      context.insert(context.end(), sum.begin(), sum.end());
    }
    for (Index c = 0; c < width; ++c) out.push_back(times(context.data(), layer.output, c));
  }
  return out;
}

double plain_product(const Vector& q, const Vector& k, Index, Index) {
  double sum = 0;
  for (size_t d = 0; d < q.size(); ++d) sum += q[d] * k[d];
  return sum;
}
double no_bias(Index, Index, Index) { return 0; }

// Pairs (n, n + dim / 2) as complex numbers, turned by position * 10000^(-2n / dim):
// the real part of q conj(k).
double rotary_product(const Vector& q, const Vector& k, Index i, Index j) {
  double sum = 0;
  for (size_t n = 0; n < dim / 2; ++n) {
    const double angle = std::pow(10000.0, -2.0 * double(n) / dim) * double(i - j);
    const std::complex<double> a(q[n], q[n + dim / 2]), b(k[n], k[n + dim / 2]);
    sum += (a * std::polar(1.0, angle) * std::conj(b)).real();
  }
  return sum;
}

// 2^(-8 n / count), n from 1.
double published_slope(Index n, Index count) { return std::exp2(-8.0 * double(n) / double(count)); }

void expect_definition(Positions<double>& positions, const Definition& rule) {
  auto layer = layer_of();
  const auto x = random_tensor<double>({1, 7, width}, 3);
  Tape<double> tape;
  const auto got = layer.self(tape, tape.node(x), {.mask = rule.causal ? causal() : Mask(), .positions = &positions});
  const auto right = by_definition(layer, x, rule);
  for (Index n = 0; n < got->value.count(); ++n) ASSERT_NEAR(got->value[n], right[size_t(n)], 1e-12) << n;
}

TEST(AttentionPositions, rotary_turns_queries_and_keys_as_defined) {
  expect_definition(*scheme<double>(PositionKind::rotary, false), {rotary_product, no_bias});
  expect_definition(*scheme<double>(PositionKind::rotary, true), {rotary_product, no_bias, true});
}

TEST(AttentionPositions, alibi_subtracts_the_published_slopes) {
  expect_definition(
      *scheme<double>(PositionKind::alibi, true),
      {plain_product, [](Index h, Index i, Index j) { return -published_slope(h + 1, heads) * double(i - j); }, true});
}

// Slopes of four heads, 2^-2 to 2^-8: the first with the last, the second with the third.
TEST(AttentionPositions, two_sided_alibi_looks_ahead_in_one_head_and_back_in_the_next) {
  const auto bias = [](Index h, Index i, Index j) {
    const Index before[] = {1, 3}, after[] = {4, 2};
    return i >= j ? -published_slope(before[h], 4) * double(i - j) : -published_slope(after[h], 4) * double(j - i);
  };
  expect_definition(*scheme<double>(PositionKind::alibi, false), {plain_product, bias});
}

// Near distances have rows of their own: 0 to 15 causal; two-sided, 0 to 7 and, for
// keys after the query, 16 on.
TEST(AttentionPositions, t5_adds_the_number_of_the_distance) {
  for (bool is_causal : {true, false}) {
    const auto positions = scheme<double>(PositionKind::t5, is_causal);
    Parameters<double> tables;
    positions->collect(tables);
    ASSERT_EQ(tables.size(), 1u);
    const auto bias = [&](Index h, Index i, Index j) {
      return tables[0]->value[(i >= j ? i - j : 16 + j - i) * heads + h];
    };
    expect_definition(*positions, {plain_product, bias, is_causal});
  }
}

// A vector a head for distances -2 to 1; farther ones use the nearest.
TEST(AttentionPositions, shaw_adds_the_querys_product_with_the_distances_vector) {
  Random random(2);
  ShawPositions<double> positions("vectors", {.model_dim = width, .heads = heads}, 2, 1, random);
  const auto bias = [](Index, Index, Index) { return 0.0; };
  auto layer = layer_of();
  const auto x = random_tensor<double>({1, 7, width}, 3);
  Tape<double> tape;
  const auto got = layer.self(tape, tape.node(x), {.positions = &positions});
  Vector right;
  for (Index h = 0; h < heads; ++h) {  // only head h's columns are kept of each run
    const auto product = [&](const Vector& q, const Vector& k, Index i, Index j) {
      double sum = 0;
      const Index row = std::clamp<Index>(j - i, -2, 1) + 2;
      for (Index d = 0; d < dim; ++d)
        sum += q[size_t(d)] * (k[size_t(d)] + positions.vectors.value[(h * 4 + row) * dim + d]);
      return sum;
    };
    auto one = layer;
    for (Index in = 0; in < width; ++in)
      for (Index c = 0; c < width; ++c)
        if (in / dim != h) one.output.weight.value[in * width + c] = 0;
    if (h > 0) one.output.bias.value.fill(0);
    const auto part = by_definition(one, x, {product, bias});
    if (right.empty()) right.resize(part.size());
    for (size_t n = 0; n < part.size(); ++n) right[n] += part[n];
  }
  for (Index n = 0; n < got->value.count(); ++n) ASSERT_NEAR(got->value[n], right[size_t(n)], 1e-12) << n;
}

TEST(AttentionPositions, gradients_are_exact_with_grouped_heads_padding_and_dropout) {
  const Tensor<std::int64_t> ids({2, 4}, {5, 6, 7, 8, 5, 6, 0, 0});
  for (PositionKind kind : inside)
    for (bool is_causal : {true, false}) {
      auto layer = layer_of({.model_dim = 8, .heads = 4, .kv_heads = 2, .dropout = 0.3});
      Random random(2);
      const auto positions = make_positions<double>(kind, {"stack", 8, 4, 32, is_causal}, random);
      Parameters<double> parameters;
      layer.collect(parameters);
      positions->collect(parameters);
      const Mask mask = is_causal ? causal() & padding(ids.view<2>(), 0) : padding(ids.view<2>(), 0);
      expect_exact_gradients({{random_tensor<double>({2, 4, 8}, 2)}, parameters, [&](auto& tape, const auto& x) {
                                return layer.self(tape, x[0], {.mask = mask, .positions = positions.get()});
                              }});
    }
}

// A table of positions and a table of pairs at once: each gets its own gradient.
TEST(AttentionPositions, go_together_with_biases_learned_per_pair) {
  auto layer = layer_of();
  const auto positions = scheme<double>(PositionKind::t5, false);
  Parameter<double> table("table", {2, heads}, false);
  table.value = random_tensor<double>({2, heads}, 5);
  const Tensor<std::int32_t> pairs({3, 3}, {0, 1, 1, -1, 0, 1, 1, 0, 0});
  Parameters<double> parameters{&table};
  positions->collect(parameters);
  expect_exact_gradients(
      {{random_tensor<double>({1, 3, width}, 2)}, parameters, [&](auto& tape, const auto& x) {
         return layer.self(tape, x[0], {.pair_bias = {&table, &pairs}, .positions = positions.get()});
       }});
}

TEST(AttentionPositions, partial_and_interleaved_rotation_has_exact_gradients) {
  auto layer = layer_of();
  RotaryPositions<double> rotary(rope_frequencies(2), RopePairing::interleaved);
  Parameters<double> parameters;
  layer.collect(parameters);
  expect_exact_gradients({{random_tensor<double>({2, 3, width}, 2)}, parameters, [&](auto& tape, const auto& x) {
                            return layer.self(tape, x[0], {.positions = &rotary});
                          }});
}

TEST(AttentionPositions, go_on_behind_the_cache) {
  Random random(1);
  MultiHeadAttention<float> layer("attention", {.model_dim = 16, .heads = 4, .kv_heads = 2}, random);
  const auto x = random_tensor<float>({2, 20, 16}, 2);
  for (PositionKind kind : inside) {
    const auto positions = scheme<float>(kind, true, 4);
    Tape<float> tape;
    const auto whole = layer.self(tape, tape.node(x), {.mask = causal(), .positions = positions.get()});
    KeyValueCache<float> cache;
    for (const auto& [first, last] : {std::pair<Index, Index>{0, 1}, {1, 4}, {4, 20}}) {
      const auto part = layer.self_step(tape, tape.node(packed(x.view<3>().slice(1, first, last))), cache,
                                        {.positions = positions.get()});
      for (Index b = 0; b < 2; ++b)
        for (Index t = first; t < last; ++t)
          for (Index d = 0; d < 16; ++d)
            ASSERT_NEAR(part->value[((b * (last - first)) + t - first) * 16 + d], whole->value[(b * 20 + t) * 16 + d],
                        1e-5)
                << position_name(kind) << ", token " << t;
    }
  }
}

// Only distances count: behind hidden tokens, everything stands five places further
// on and gives the same.
TEST(AttentionPositions, moving_all_tokens_changes_nothing) {
  auto layer = layer_of();
  const auto x = random_tensor<double>({1, 11, width}, 2);
  const auto last = packed(x.view<3>().slice(1, 5, 11));
  const Tensor<std::int64_t> ids({1, 11}, {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  for (PositionKind kind : inside) {
    const auto positions = scheme<double>(kind, false);
    Tape<double> tape;
    const auto moved =
        layer.self(tape, tape.node(x), {.mask = padding(ids.view<2>(), 0), .positions = positions.get()});
    const auto alone = layer.self(tape, tape.node(last), {.positions = positions.get()});
    for (Index n = 0; n < alone->value.count(); ++n)
      ASSERT_NEAR(moved->value[5 * width + n], alone->value[n], 1e-12) << position_name(kind);
  }
}

Tensor<double> backwards(const Tensor<double>& x) {
  Tensor<double> turned(x.shape());
  for (Index t = 0; t < x.size(1); ++t)
    std::copy_n(x.data() + t * width, width, turned.data() + (x.size(1) - 1 - t) * width);
  return turned;
}

// Why an encoder's ALiBi has a slope for either side.
TEST(AttentionPositions, equal_slopes_on_both_sides_are_blind_to_direction) {
  auto layer = layer_of();
  const auto x = random_tensor<double>({1, 6, width}, 2);
  const auto difference = [&](Positions<double>& positions) {
    Tape<double> tape;
    const AttentionCall<double> call{.positions = &positions};
    const auto right = backwards(layer.self(tape, tape.node(x), call)->value),
               got = layer.self(tape, tape.node(backwards(x)), call)->value;
    double largest = 0;
    for (Index n = 0; n < got.count(); ++n) largest = std::max(largest, std::abs(got[n] - right[n]));
    return largest;
  };
  AlibiPositions<double> symmetric(heads);
  EXPECT_LT(difference(symmetric), 1e-12);
  for (PositionKind kind : inside) EXPECT_GT(difference(*scheme<double>(kind, false)), 0.01) << position_name(kind);
}

// The other limit of distances: weights sum to 1 whatever they are, so that a token
// repeated looks the same at any length. A mark at the end tells lengths apart.
TEST(AttentionPositions, can_not_count_a_token_that_is_all_there_is) {
  auto layer = layer_of();
  const auto token = random_tensor<double>({1, 1, width}, 2), mark = random_tensor<double>({1, 1, width}, 3);
  const auto first_row = [&](Positions<double>& positions, Index length, bool marked) {
    Tensor<double> x({1, length + marked, width});
    for (Index n = 0; n < x.count(); ++n) x[n] = n < length * width ? token[n % width] : mark[n % width];
    Tape<double> tape;
    const auto y = layer.self(tape, tape.node(x), {.positions = &positions});
    return std::vector<double>(y->value.data(), y->value.data() + width);
  };
  for (PositionKind kind : inside) {
    const auto positions = scheme<double>(kind, false);
    const auto two = first_row(*positions, 2, false), five = first_row(*positions, 5, false);
    for (size_t d = 0; d < two.size(); ++d) EXPECT_NEAR(two[d], five[d], 1e-12) << position_name(kind);
    EXPECT_GT(std::abs(first_row(*positions, 2, true)[0] - first_row(*positions, 5, true)[0]), 1e-3)
        << position_name(kind);
  }
}

TEST(AttentionPositions, are_refused_where_they_mean_nothing) {
  auto layer = layer_of();
  const auto rotary = scheme<double>(PositionKind::rotary, false);
  Tape<double> tape;
  const auto x = tape.node(random_tensor<double>({1, 3, width}, 2));
  const AttentionCall<double> call{.positions = rotary.get()}, started{.positions = rotary.get(), .q_start = 2};
  EXPECT_EQ(message_of([&] { layer.cross(tape, x, x, call); }),
            "MultiHeadAttention::cross: positions act in self-attention only");
  EXPECT_EQ(message_of([&] { layer.cross_step(tape, x, layer.remember(tape, x), call); }),
            "MultiHeadAttention::cross_step: positions act in self-attention only");
  EXPECT_EQ(message_of([&] { layer.self(tape, x, started); }),
            "MultiHeadAttention::self: takes no q_start together with positions");
  EXPECT_EQ(message_of([&] {
              KeyValueCache<double> cache;
              layer.self_step(tape, x, cache, started);
            }),
            "MultiHeadAttention::self_step: takes no q_start together with positions");
  Random random(1);
  EXPECT_EQ(message_of([&] {
              make_positions<double>(PositionKind::rotary, {"stack", 6, 2, 32, true}, random);
            }),
            "rotary positions turn pairs, but model_dim 6 in 2 heads gives heads of 3");
  EXPECT_EQ(message_of([&] { layer.self(tape, x, {.positions = scheme<double>(PositionKind::shaw, true, 4).get()}); }),
            "stack.relative_keys [4,17,4] but the layer has 2 heads of 4");
  EXPECT_EQ(message_of([&] { position_kind("polar"); }), "unknown positions 'polar'");
}

TEST(AttentionPositions, are_known_by_their_names) {
  for (const auto& [kind, name] : named_positions) {
    EXPECT_EQ(position_kind(name), kind);
    EXPECT_EQ(position_name(kind), std::string(name));
  }
}

// Queries and keys of published families before positions, [batch, heads, seq, size],
// and their weights (tests/data/positions).
class Published {
 public:
  explicit Published(const std::string& name)
      : name_(name), file_(read_safetensors(std::string(REGARD_TEST_DATA) + "/positions/positions.safetensors")) {}

  Tensor<float> floats(const std::string& part) const { return to_float(file_.at(name_ + "." + part), part); }

  // `grow` multiplies the queries.
  void expect_weights(Positions<float>& positions, const Mask& visible, double tolerance, float grow = 1) const {
    SCOPED_TRACE(name_);
    const auto queries = floats("q"), wanted = floats("attentions");
    const auto mask = to_int64(file_.at(name_ + ".mask"), "mask");
    const Index seq = queries.size(2);
    auto q = concatenate_heads(queries), k = concatenate_heads(floats("k"));
    for (float& value : q.values()) value *= grow;
    Tensor<float> kv({k.size(0), seq, 2 * k.size(2)});  // keys serve as values
    for (Index n = 0; n < kv.count(); ++n) kv[n] = k[n / (2 * k.size(2)) * k.size(2) + n % k.size(2)];
    const MultiHeadConfig config{.model_dim = q.size(2), .heads = 4, .kv_heads = floats("k").size(1)};
    Tape<float> tape;
    HeadWeights<float> seen;
    const auto q_node = tape.node(std::move(q)), kv_node = tape.node(std::move(kv));
    auto heads_of_both = detail::fused_heads(config, q_node, kv_node);
    heads_of_both.score = positions.prepare(tape, config, q_node, kv_node, 0);
    detail::attend_fused(tape, config, heads_of_both, {.mask = visible & padding(mask, 0), .seen = &seen});
    ASSERT_EQ(seen.weights.shape(), wanted.shape());
    for (Index n = 0; n < wanted.count(); ++n)
      if (mask[n / (4 * seq * seq) * seq + n / seq % seq] != 0) {
        ASSERT_NEAR(seen.weights[n], wanted[n], tolerance) << n;
      }
  }

 private:
  std::string name_;
  TensorFile file_;
};

TEST(AttentionPositions, give_the_weights_of_published_families) {
  RotaryPositions<float> llama(rope_frequencies(12)), linear(rope_linear(rope_frequencies(16), 4)),
      gpt_neox(rope_frequencies(4)), phi(rope_frequencies(8));
  Published("llama").expect_weights(llama, causal(), 6.5e-6);
  Published("esm").expect_weights(llama, all_visible(), 6.5e-6);
  Published("llama_linear").expect_weights(linear, causal(), 6.5e-6);
  Published("gpt_neox").expect_weights(gpt_neox, causal(), 6.5e-6);
  Published("phi").expect_weights(phi, causal(), 6.5e-6);
  AlibiPositions<float> bloom(4);
  Published("bloom").expect_weights(bloom, causal(), 6.5e-6);
}

// T5 does not divide by sqrt(head_dim).
TEST(AttentionPositions, give_the_weights_of_t5_from_its_queries_times_the_root_of_their_size) {
  Random random(1);
  for (const auto& [name, two_sided, tolerance] :
       {std::tuple{"t5_encoder", true, 8.4e-6}, {"t5_decoder", false, 1.4e-5}}) {
    const Published layer(name);
    BucketPositions<float> buckets("table", 4, {8, 20, two_sided}, random);
    buckets.table.value = layer.floats("table");
    layer.expect_weights(buckets, two_sided ? all_visible() : causal(), tolerance,
                         std::sqrt(static_cast<float>(layer.floats("q").size(3))));
  }
}

}  // namespace
}  // namespace regard
