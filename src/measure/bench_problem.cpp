#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "regard/bench.h"
#include "regard/cpu.h"
#include "regard/random.h"

namespace regard {
namespace {

Tensor<float> uniform(Shape shape, std::uint64_t seed) {
  Tensor<float> tensor = Tensor<float>::uninitialised(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = 2.0f * random.uniform() - 1.0f;
  return tensor;
}

float slope_of(Index head, Index heads) {
  return static_cast<float>(std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(heads)));
}

// ALiBi's formula as anybody would write it.
struct UserAlibi {
  std::vector<float> slopes;
  float operator()(float score, const Position& at) const {
    return score - slopes[static_cast<std::size_t>(at.head())] * static_cast<float>(std::abs(at.distance()));
  }
  float derivative(float, const Position&) const { return 1.0f; }
};

std::vector<float> slopes_of(Index heads) {
  std::vector<float> slopes;
  for (Index h = 0; h < heads; ++h) slopes.push_back(slope_of(h, heads));
  return slopes;
}

Observe everything(Index rows, Index keys) {
  return {.lse = true,
          .entropy = true,
          .row_max = true,
          .distance = true,
          .top_k = 8,
          .key_mass = QueryRange{},
          .pooled_sum = MapSize{64, 64},
          .pooled_max = MapSize{64, 64},
          .diagonals = OffsetRange{},
          .rectangles = {{0, 0, rows / 2, 1, 0, keys}, {0, 0, rows - 1, 1, 0, keys}}};
}
Index bytes_of(DType storage) { return static_cast<Index>(dtype_size(storage)); }

// Copies of k and v that together exceed four times the last-level cache.
Index copies_of(const BenchCase& c) {
  if (c.kind != BenchKind::decode) return 1;
  const Index bytes = bytes_of(c.storage) * c.batch * c.kv_heads * c.kv_len * (c.head_dim + c.value_dim);
  return std::clamp<Index>(4 * cache_sizes().l3 / std::max<Index>(1, bytes) + 1, 1, 64);
}

}  // namespace

BenchProblem::Stored BenchProblem::stored(const Tensor<float>& numbers, DType storage) {
  switch (storage) {
    case DType::bf16: return {{}, rounded<BFloat16>(numbers), {}, {}};
    case DType::f16: return {{}, {}, rounded<Float16>(numbers), {}};
    case DType::i8: return {{}, {}, {}, quantize(numbers)};
    default: return {numbers, {}, {}, {}};
  }
}

InputView BenchProblem::Stored::view() const {
  if (!bf16.empty()) return bf16;
  if (!f16.empty()) return f16;
  if (!i8.values.empty()) return i8;
  return f32.empty() ? InputView() : InputView(f32);
}

OutputView BenchProblem::Stored::output() {
  if (!bf16.empty()) return bf16;
  if (!f16.empty()) return f16;
  return f32.empty() ? OutputView() : OutputView(f32);
}

BenchProblem::BenchProblem(const BenchCase& which)
    : case_(which), type_(which.storage == DType::i8 ? DType::f32 : which.storage) {
  const Shape out{which.batch, which.q_heads, which.q_len, which.value_dim};
  const Shape q{which.batch, which.q_heads, which.q_len, which.head_dim};
  const Shape k{which.batch, which.kv_heads, which.kv_len, which.head_dim};
  const Shape v{which.batch, which.kv_heads, which.kv_len, which.value_dim};
  q_ = stored(uniform(q, 1), type_);
  out_ = stored(Tensor<float>(out), type_);
  for (Index copy = 0; copy < copies_of(which); ++copy) {
    k_.push_back(stored(uniform(k, 2), which.storage));
    v_.push_back(stored(uniform(v, 3), which.storage));
  }
  set_options();
  count_pairs();
  if (which.kind != BenchKind::backward) return;
  dout_ = stored(uniform(out, 4), type_);
  dq_ = stored(Tensor<float>(q), type_);
  dk_ = stored(Tensor<float>(k), type_);
  dv_ = stored(Tensor<float>(v), type_);
  options_.observe.lse = true;
  lse_ = attend_into(out_.output(), this->q(), this->k(), this->v(), options_).lse;
}

void BenchProblem::set_options() {
  const Index heads = case_.q_heads, rows = case_.q_len, keys = case_.kv_len;
  switch (case_.variant) {
    case BenchVariant::plain: break;
    case BenchVariant::causal: options_.mask = causal(); break;
    case BenchVariant::window: options_.mask = sliding_window(256); break;
    case BenchVariant::documents: {
      Tensor<std::int64_t> ids({1, keys});
      for (Index j = 0; j < keys; ++j) ids[j] = j / 512;
      options_.mask = documents(std::as_const(ids).view<2>());
      break;
    }
    case BenchVariant::padding:
      lengths_.assign(static_cast<std::size_t>(case_.batch), (keys + 1) / 2);
      options_.kv_lengths = lengths_;
      break;
    case BenchVariant::boolean:
      allowed_ = Tensor<std::uint8_t>({rows, keys});
      allowed_.fill(1);
      options_.mask = boolean(std::as_const(allowed_).view<2>());
      break;
    case BenchVariant::bias:
      bias_ = uniform({1, heads, rows, keys}, 5);
      options_.bias = std::as_const(bias_).view<4>();
      break;
    case BenchVariant::dropout: options_.dropout = {0.1, 7}; break;
    case BenchVariant::softcap: options_.score = softcap(30.0f); break;
    case BenchVariant::alibi: options_.score = alibi(slopes_of(heads)); break;
    case BenchVariant::user: options_.score = UserAlibi{slopes_of(heads)}; break;
  }
  if (case_.kind == BenchKind::observe_rows) options_.observe = {.lse = true, .entropy = true, .row_max = true};
  if (case_.kind == BenchKind::observe_all) options_.observe = everything(rows, keys);
}

void BenchProblem::count_pairs() {
  const Index keys = lengths_.empty() ? case_.kv_len : lengths_.front();
  std::vector<std::uint8_t> row(static_cast<std::size_t>(keys), 1);
  double pairs = 0;
  for (Index i = 0; i < case_.q_len; ++i) {
    options_.mask.fill({0, 0, i, 1, 0, keys, case_.kv_len - case_.q_len}, row.data(), keys);
    pairs += static_cast<double>(std::count(row.begin(), row.end(), std::uint8_t{1}));
  }
  visible_pairs_ = pairs * static_cast<double>(case_.batch * case_.q_heads);
}

void BenchProblem::run() {
  if (case_.kind == BenchKind::backward) {
    attend_backward_into({dq_.output(), dk_.output(), dv_.output()}, dout(), q(), k(), v(),
                         {out_.view(), std::as_const(lse_).view<3>()}, options_);
    return;
  }
  attend_into(out_.output(), q(), k(), v(), options_);
  turn_ = (turn_ + 1) % k_.size();
}

double BenchProblem::operations() const {
  const auto dims = static_cast<double>(case_.head_dim), values = static_cast<double>(case_.value_dim);
  const double products = case_.kind == BenchKind::backward ? 3 * dims + 2 * values : dims + values;
  return 2.0 * visible_pairs_ * products;
}

double BenchProblem::bytes() const {
  const Index keys = case_.batch * case_.kv_heads * case_.kv_len, rows = case_.batch * case_.q_heads * case_.q_len;
  const Index scales = case_.storage == DType::i8 ? 2 * 4 * keys : 0;
  return static_cast<double>(
      (bytes_of(case_.storage) * keys + bytes_of(type_) * rows) * (case_.head_dim + case_.value_dim) + scales);
}

}  // namespace regard
