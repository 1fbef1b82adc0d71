#include "scaling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "network.h"
#include "regard/attend.h"
#include "regard/random.h"

namespace regard::bench {
namespace {

constexpr Index heads = 4, length = 512, value_dim = 64;

Tensor<float> normal(Shape shape, std::uint64_t seed) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(random.normal());
  return tensor;
}

double mean_of(const Tensor<float>& x) {
  const auto values = x.values();
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(x.count());
}

double variance_of(const Tensor<float>& x) {
  const double mean = mean_of(x);
  double squares = 0;
  for (float value : x.values()) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(x.count());
}

// Euclidean norms of rows, the smallest first.
std::vector<double> row_norms(const Tensor<float>& x) {
  const Index keys = x.size(-1);
  std::vector<double> norms;
  for (Index first = 0; first < x.count(); first += keys) {
    double squares = 0;
    for (Index j = 0; j < keys; ++j) squares += std::pow(x[first + j], 2);
    norms.push_back(std::sqrt(squares));
  }
  std::sort(norms.begin(), norms.end());
  return norms;
}

struct Facts {
  double variance, entropy, mean_gradient, median_gradient, saturated;
};

Facts facts_of(Index dim, double scale) {
  const auto q = normal({1, heads, length, dim}, 1), k = normal(q.shape(), 2);
  const auto v = normal({1, heads, length, value_dim}, 3), dout = normal(v.shape(), 4);
  // A bias of 0 changes nothing; its gradient is that of the scores.
  const Tensor<float> bias({1, heads, length, length});
  AttendOptions options{.bias = bias.view<4>(), .scale = static_cast<float>(scale)};
  options.observe = {.lse = true, .entropy = true, .top_k = 1};
  for (Index h = 0; h < heads; ++h) options.observe.rectangles.push_back({0, h, 0, length, 0, length, Stage::scaled});
  const auto seen = attend(q, k, v, options);
  const auto gradients = attend_backward(dout, q, k, v, {seen.out.view<4>(), seen.lse.view<3>()}, options);
  double variance = 0;
  for (const Tensor<float>& scores : seen.rectangles) variance += variance_of(scores) / heads;
  const auto largest = seen.top_weights.values();
  const auto saturated = std::count_if(largest.begin(), largest.end(), [](float weight) { return weight > 0.99f; });
  const auto norms = row_norms(gradients.dbias);
  return {variance, mean_of(seen.entropy),
          std::accumulate(norms.begin(), norms.end(), 0.0) / static_cast<double>(norms.size()), norms[norms.size() / 2],
          static_cast<double>(saturated) / static_cast<double>(largest.size())};
}

}  // namespace

Table scaling_table() {
  Table table{{"d_k"}, {}};
  for (const char* what : {"variance", "entropy", "mean gradient", "median gradient", "saturated"})
    for (const char* how : {"unscaled", "scaled"}) table.columns.push_back(std::string(what) + ", " + how);
  for (Index dim = 8; dim <= 1024; dim *= 2) {
    const Facts plain = facts_of(dim, 1), scaled = facts_of(dim, 1 / std::sqrt(static_cast<double>(dim)));
    std::vector<double> row{static_cast<double>(dim)};
    for (double Facts::*which :
         {&Facts::variance, &Facts::entropy, &Facts::mean_gradient, &Facts::median_gradient, &Facts::saturated})
      row.insert(row.end(), {plain.*which, scaled.*which});
    table.rows.push_back(row);
  }
  return table;
}

namespace {

constexpr Index steps = 300, bin = 10, seeds = 10;

// The loss of every tenth step, averaged over ten steps and ten seeds.
std::vector<double> losses(const NetworkShape& shape, double clip) {
  std::vector<double> mean(steps / bin);
  for (Index seed = 0; seed < seeds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed) + 1);
    Network network(shape, random);
    AdamW<float> optimizer(network.parameters());
    for (Index step = 0; step < steps; ++step) {
      const Sample sample = sample_of(RecallTask::recall, 16, random);
      mean[static_cast<std::size_t>(step / bin)] +=
          train_step(network, optimizer, sample, 1e-2, clip).loss / (bin * seeds);
    }
  }
  return mean;
}

}  // namespace

Table clipping_table() {
  constexpr double none = 1e30, one = 1;
  const NetworkShape attention{.norm = NormPlace::post}, lstm{.attends = false};
  const std::vector<std::vector<double>> curves{losses(attention, none), losses(attention, one), losses(lstm, none),
                                                losses(lstm, one)};
  Table table{{"step", "attention, unclipped", "attention, clipped", "LSTM, unclipped", "LSTM, clipped"}, {}};
  for (std::size_t row = 0; row < curves[0].size(); ++row) {
    table.rows.push_back({static_cast<double>((row + 1) * bin)});
    for (const auto& curve : curves) table.rows.back().push_back(curve[row]);
  }
  return table;
}

}  // namespace regard::bench
