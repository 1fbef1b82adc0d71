#include "published.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "measure/resident.h"
#include "regard/error.h"
#include "regard/loss.h"
#include "regard/optimizer.h"
#include "regard/seq2seq.h"

namespace regard::bench {
namespace {

constexpr Index vocabulary = 37000, pairs = 8, tokens = 32;

double milliseconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double mebibytes(const std::function<void()>& work) {
  const auto grown = detail::peak_growth(work);
  if (!grown) throw Error("this system does not report a peak of memory that can be reset");
  return *grown / (1 << 20);
}

Tensor<std::int64_t> random_ids(std::uint64_t seed) {
  Random random(seed);
  Tensor<std::int64_t> ids({pairs, tokens});
  for (auto& id : ids.values()) id = 4 + static_cast<std::int64_t>(random.below(vocabulary - 4));
  return ids;
}

struct Run {
  explicit Run(const Seq2SeqConfig& config) : model(config, vocabulary, vocabulary, 1) {}

  Var<float> forward(Tape<float>& tape) { return model.decode(tape, model.encode(tape, source), source, input); }

  void train() {
    Tape<float> tape(true, 1);
    const auto logits = forward(tape);
    Tensor<float> gradient;
    cross_entropy(logits->value, target, Vocabulary::pad, 0.1, &gradient);
    tape.backward(logits, std::move(gradient));
    clip_gradients(optimizer->parameters(), 1.0);
    optimizer->step(1e-4);
  }

  Seq2Seq<float> model;
  std::unique_ptr<AdamW<float>> optimizer;
  Tensor<std::int64_t> source = random_ids(1), input = random_ids(2), target = random_ids(3);
};

std::vector<double> row_of(const Seq2SeqConfig& config) {
  std::unique_ptr<Run> run;
  const double built = mebibytes([&] { run = std::make_unique<Run>(config); });
  const double moments = mebibytes([&] { run->optimizer = std::make_unique<AdamW<float>>(run->model.parameters()); });
  const double step = mebibytes([&] { run->train(); });
  const KeepMemory keep;  // as Trainer does
  const auto better = [](const std::function<void()>& work) {
    work();
    const double first = milliseconds(work);
    return std::min(first, milliseconds(work));
  };
  const double forward = better([&] {
    Tape<float> tape;
    run->forward(tape);
  });
  const double training = better([&] { run->train(); });
  return {static_cast<double>(config.layer.model_dim),
          static_cast<double>(weight_count(config, vocabulary, vocabulary)),
          static_cast<double>(run->model.weight_count()),
          forward,
          training,
          built,
          built + moments,
          step};
}

}  // namespace

Table published_table() {
  return {{"model_dim", "weights by formula", "weights counted", "forward ms", "training step ms", "built MiB",
           "with optimiser MiB", "a step besides MiB"},
          {row_of(transformer_base()), row_of(transformer_large())}};
}

}  // namespace regard::bench
