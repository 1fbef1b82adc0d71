// The same steps whose cost formulas tell, run and timed.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "attention/kernels/kernels.h"
#include "measure/cost_sizes.h"
#include "measure/resident.h"
#include "nn/matmul.h"
#include "regard/attend.h"
#include "regard/cost.h"
#include "regard/layers.h"
#include "regard/linformer.h"
#include "regard/performer.h"
#include "regard/recurrent.h"
#include "regard/reformer.h"
#include "regard/threads.h"

namespace regard {
namespace {

using detail::Matrix;

Tensor<float> normal(Shape shape, std::uint64_t seed, double size = 1) {
  auto tensor = Tensor<float>::uninitialised(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(size * random.normal());
  return tensor;
}

// A step to run again and again; it returns how many numbers it gave.
struct Work {
  std::string step;
  std::function<Index()> run;
  bool remember_peak = false;
};

struct Heads {
  explicit Heads(const CostProblem& p)
      : q(normal({1, p.heads, p.n, p.head_dim()}, 1)), k(normal(q.shape(), 2)), v(normal(q.shape(), 3)) {}
  Tensor<float> q, k, v;
  LinearInputs views() const { return {q, k, v}; }
};

using Attention = std::function<Index(const Heads&)>;

Attention under(const Mask& mask) {
  return [mask](const Heads& x) { return attend(x.q, x.k, x.v, {.mask = mask}).out.count(); };
}

Attention linformer(const CostProblem& p) {
  const auto table = std::make_shared<Tensor<float>>(normal({2, p.budget, p.n}, 5, 0.05));
  return [table](const Heads& x) {
    const auto tables = std::as_const(*table).view<3>();
    return linformer_attend({x.q, x.k, x.v, {tables.slice(0, 0, 1), tables.slice(0, 1, 2)}}).out.count();
  };
}

Attention performer(const CostProblem& p) {
  const auto features = performer_features(p.budget, p.head_dim(), 1);
  return [features](const Heads& x) { return performer_attend(x.views(), features).out.count(); };
}

Attention reformer(const CostProblem& p) {
  const ReformerOptions options{.buckets = detail::reformer_buckets_of(p.n),
                                .rounds = detail::reformer_rounds(p.budget),
                                .chunk = detail::reformer_chunk};
  return [options](const Heads& x) { return reformer_attend(x.q, x.v, options).out.count(); };
}

// The textbook's three steps over a matrix of weights that lies in memory.
class StoredAttention {
 public:
  explicit StoredAttention(const Heads& x)
      : x_(x),
        heads_(x.q.size(1)),
        n_(x.q.size(2)),
        dim_(x.q.size(3)),
        stride_(kernels::padded(n_, 16)),
        weights_(Tensor<float>::uninitialised({heads_, n_, stride_})) {}

  Index scores() {
    for (Index h = 0; h < heads_; ++h) detail::multiply_transposed(rows(x_.q, h), rows(x_.k, h), weights(h));
    return weights_.count();
  }

  Index softmax() {
    const float scale = 1 / std::sqrt(static_cast<float>(dim_));
    parallel_ranges(heads_ * n_, 24, [&](Index begin, Index end) {
      const kernels::Kernels& kernels = kernels::active();
      std::vector<float> max(24, -std::numeric_limits<float>::infinity()), sum(24);
      const kernels::Tile tile{weights_.data() + begin * stride_, stride_, end - begin, n_};
      kernels.scale(tile, scale);
      kernels.softmax_step({tile, max.data(), sum.data(), nullptr, nullptr, 0, 0});
      for (float& one : sum) one = 1 / one;
      kernels.scale_rows(tile.data, stride_, {tile.data, stride_, tile.rows, n_}, sum.data());
    });
    return 0;
  }

  Index sum() {
    auto out = Tensor<float>::uninitialised(x_.q.shape());
    for (Index h = 0; h < heads_; ++h)
      detail::multiply({weights(h).data, n_, n_, stride_}, rows(x_.v, h),
                       Matrix<float>{out.data() + h * n_ * dim_, n_, dim_});
    return out.count();
  }

 private:
  Matrix<const float> rows(const Tensor<float>& x, Index h) const { return {x.data() + h * n_ * dim_, n_, dim_}; }
  Matrix<float> weights(Index h) { return {weights_.data() + h * n_ * stride_, n_, n_, stride_}; }

  const Heads& x_;
  Index heads_, n_, dim_, stride_;
  Tensor<float> weights_;
};

std::vector<Work> stored_works(const std::shared_ptr<Heads>& x) {
  const auto whole = [x] {
    StoredAttention once(*x);
    once.scores();
    once.softmax();
    return once.sum();
  };
  // Made by the first step that runs: never two matrices at a time.
  const auto kept = std::make_shared<std::unique_ptr<StoredAttention>>();
  const auto step = [x, kept](Index (StoredAttention::*which)()) {
    return [x, kept, which] {
      if (!*kept) *kept = std::make_unique<StoredAttention>(*x);
      return (**kept.*which)();
    };
  };
  return {{"attention", whole, true},
          {"scores", step(&StoredAttention::scores)},
          {"softmax", step(&StoredAttention::softmax)},
          {"sum", step(&StoredAttention::sum)}};
}

Attention attention_of(const std::string& method, const CostProblem& p) {
  if (method == "causal") return under(causal());
  if (method == "window") return under(sliding_window(p.budget));
  if (method == "linformer") return linformer(p);
  if (method == "performer") return performer(p);
  if (method == "linear") return [](const Heads& x) { return linear_attend(x.views()).out.count(); };
  if (method == "reformer") return reformer(p);
  return under(all_visible());
}

// Of [1, n, model_dim], to columns of each of `outs`.
Work projection(const char* step, const CostProblem& p, const std::vector<Index>& outs) {
  Random random(7);
  const auto layers = std::make_shared<std::vector<Linear<float>>>();
  for (Index out : outs) layers->emplace_back(step, p.model_dim, out, random);
  const auto x = std::make_shared<Node<float>>(normal({1, p.n, p.model_dim}, 4));
  return {step, [layers, x] {
            Tape<float> tape;
            Index given = 0;
            for (Linear<float>& layer : *layers) given += layer.forward(tape, x)->value.count();
            return given;
          }};
}

Work recurrence(RecurrentKind kind, const CostProblem& p) {
  Random random(7);
  const auto layer = std::make_shared<Recurrent<float>>("layer", kind, p.model_dim, p.model_dim, random);
  const auto x = std::make_shared<Node<float>>(normal({1, p.n, p.model_dim}, 4));
  return {"layer",
          [layer, x] {
            Tape<float> tape;
            return layer->forward(tape, x)->value.count();
          },
          true};
}

std::vector<Work> works_of(const std::string& method, const CostProblem& p) {
  if (method == "rnn") return {recurrence(RecurrentKind::tanh, p)};
  if (method == "lstm") return {recurrence(RecurrentKind::lstm, p)};
  const auto x = std::make_shared<Heads>(p);
  std::vector<Work> works;
  // The layer has keys and values in one matrix; queries that are keys share one with the values.
  works.push_back(projection(
      "project", p, method == "reformer" ? std::vector{2 * p.model_dim} : std::vector{p.model_dim, 2 * p.model_dim}));
  if (method == "stored") {
    const auto steps = stored_works(x);
    works.insert(works.end(), steps.begin(), steps.end());
  } else {
    const auto run = attention_of(method, p);
    works.push_back({"attention", [x, run] { return run(*x); }, true});
  }
  works.push_back(projection("output", p, {p.model_dim}));
  return works;
}

double best_milliseconds(const Work& work, double seconds) {
  using Clock = std::chrono::steady_clock;
  double best = 0, total = 0;
  for (int round = 0; round < 2 || total < 1e3 * seconds; ++round) {
    const auto start = Clock::now();
    work.run();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best = round == 0 ? ms : std::min(best, ms);
    total += ms;
  }
  return best;
}

std::optional<double> peak_of(const Work& work) {
  if (!work.remember_peak) return std::nullopt;
  Index given = 0;
  const auto grown = detail::peak_growth([&] { given = work.run(); });
  if (!grown) return std::nullopt;
  return std::max(0.0, *grown - 4 * static_cast<double>(given));
}

bool fits_memory(const MethodCost& cost, const CostProblem& p) {
  // What stands around the steps: inputs and results, and the weights.
  const double around = 4.0 * (8 * static_cast<double>(p.n) * static_cast<double>(p.model_dim) + cost.weights);
  const double memory = detail::physical_memory();
  return memory <= 0 || cost.step("layer").workspace_bytes + around <= memory / 2;
}

}  // namespace

std::vector<MeasuredStep> measure_cost(const std::string& method, const CostProblem& problem, double seconds) {
  if (!fits_memory(method_cost(method, problem), problem)) return {};
  const std::vector<Work> works = works_of(method, problem);
  std::vector<MeasuredStep> measured;
  for (const Work& work : works) measured.push_back({work.step, 0, peak_of(work)});
  // What a layer's neighbours would have left: no pages fresh from the system in every call.
  const KeepMemory keep;
  for (std::size_t i = 0; i < works.size(); ++i) measured[i].ms = best_milliseconds(works[i], seconds);
  if (works.size() == 1) return measured;
  MeasuredStep layer{"layer"};
  for (const MeasuredStep& step : measured)
    if (step.step == "project" || step.step == "attention" || step.step == "output") layer.ms += step.ms;
  measured.push_back(layer);
  return measured;
}

}  // namespace regard
