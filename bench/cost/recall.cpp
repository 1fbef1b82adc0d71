#include "recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "regard/loss.h"
#include "regard/optimizer.h"
#include "regard/recurrent.h"
#include "regard/transformer.h"

namespace regard::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr Index symbols = 8, noise = 8, question = symbols + noise, tokens = question + 1;
constexpr Index copied = 8, batch = 8, width = 64, layers = 2;
constexpr std::int64_t no_answer = -1;

struct Sample {
  Tensor<std::int64_t> input, target;  // [batch, len]
};

// Symbols, noise up to the distance, then as many questions.
Sample sample_of(RecallTask task, Index distance, Random& random) {
  const Index count = task == RecallTask::copy ? copied : 1, len = distance + count;
  Sample sample{Tensor<std::int64_t>({batch, len}), Tensor<std::int64_t>({batch, len})};
  sample.target.fill(no_answer);
  for (Index b = 0; b < batch; ++b)
    for (Index i = 0; i < len; ++i) {
      const auto drawn = static_cast<std::int64_t>(random.below(i < count ? symbols : noise));
      sample.input[b * len + i] = i < count ? drawn : i < distance ? symbols + drawn : question;
      if (i < count) sample.target[b * len + distance + i] = drawn;
    }
  return sample;
}

// Two layers of 32,768 weights each, between an embedding and an output, either way.
class Network {
 public:
  Network(bool attends, Random& random) : embedding_("embedding", tokens, width, random) {
    for (Index i = 0; i < layers; ++i)
      if (attends)
        encoder_.push_back(std::make_unique<EncoderLayer<float>>(
            "layer", LayerConfig{.model_dim = width, .heads = 4, .hidden = 2 * width, .dropout = 0}, random));
      else
        recurrent_.push_back(std::make_unique<Recurrent<float>>("layer", RecurrentKind::lstm, width, width, random));
    norm_ = LayerNorm<float>("norm", width);
    output_ = Linear<float>("output", width, symbols, random);
  }

  // [batch, len] -> [batch, len, symbols]
  Var<float> forward(Tape<float>& tape, const Tensor<std::int64_t>& input) {
    auto x = embedding_.forward(tape, input, std::sqrt(static_cast<double>(width)));
    if (!encoder_.empty()) x = add_positions(tape, x, sinusoidal_positions<float>(input.size(1), width));
    for (auto& layer : encoder_) x = layer->forward(tape, x, {.mask = causal()});
    for (auto& layer : recurrent_) x = layer->forward(tape, x);
    return output_.forward(tape, norm_.forward(tape, x));
  }

  Parameters<float> parameters() {
    Parameters<float> list;
    embedding_.collect(list);
    for (auto& layer : encoder_) layer->collect(list);
    for (auto& layer : recurrent_) layer->collect(list);
    norm_.collect(list);
    output_.collect(list);
    return list;
  }

 private:
  Embedding<float> embedding_;
  std::vector<std::unique_ptr<EncoderLayer<float>>> encoder_;
  std::vector<std::unique_ptr<Recurrent<float>>> recurrent_;
  LayerNorm<float> norm_;
  Linear<float> output_;
};

// Share of questions answered right, over fresh samples.
double accuracy(Network& network, RecallTask task, Index distance, Random& random) {
  Index right = 0, asked = 0;
  while (asked < 128) {
    const Sample sample = sample_of(task, distance, random);
    Tape<float> tape;
    const auto logits = network.forward(tape, sample.input);
    for (Index i = 0; i < sample.target.count(); ++i) {
      if (sample.target[i] == no_answer) continue;
      const float* row = logits->value.data() + i * symbols;
      right += std::max_element(row, row + symbols) - row == sample.target[i];
      ++asked;
    }
  }
  return static_cast<double>(right) / static_cast<double>(asked);
}

void train_step(Network& network, AdamW<float>& optimizer, const Sample& sample) {
  Tape<float> tape(true);
  const auto logits = network.forward(tape, sample.input);
  Tensor<float> gradient;
  cross_entropy(logits->value, sample.target, no_answer, 0.0, &gradient);
  tape.backward(logits, std::move(gradient));
  clip_gradients(optimizer.parameters(), 1.0);
  const Schedule schedule{.kind = ScheduleKind::constant, .peak = 2e-3, .warmup = 50};
  optimizer.step(schedule.at(optimizer.steps + 1));
}

// Accuracy, steps, microseconds a token in training and forward alone.
std::vector<double> trained(bool attends, RecallTask task, Index distance, const RecallPlan& plan) {
  Random random(3, static_cast<std::uint64_t>(distance));
  Network network(attends, random);
  AdamW<float> optimizer(network.parameters());
  const auto start = Clock::now();
  double fastest = 1e300, found = 0;
  Index length = 0;
  while (optimizer.steps < plan.most_steps && seconds_since(start) < plan.most_seconds && found < plan.enough) {
    const Sample sample = sample_of(task, distance, random);
    const auto begin = Clock::now();
    train_step(network, optimizer, sample);
    fastest = std::min(fastest, seconds_since(begin));
    length = sample.input.count();
    if (optimizer.steps % 25 == 0) found = accuracy(network, task, distance, random);
  }
  Random test(4);
  const Sample sample = sample_of(task, distance, test);
  double forward = 1e300;
  for (int round = 0; round < 5; ++round) {
    const auto begin = Clock::now();
    Tape<float> tape;
    network.forward(tape, sample.input);
    forward = std::min(forward, seconds_since(begin));
  }
  const double each = 1e6 / static_cast<double>(length);
  return {accuracy(network, task, distance, test), static_cast<double>(optimizer.steps), fastest * each,
          forward * each};
}

}  // namespace

Table recall_table(RecallTask task, const RecallPlan& plan) {
  Table table{{"distance"}, {}};
  for (const char* model : {"attention", "lstm"})
    for (const char* what : {"accuracy", "training steps", "us a token, training", "us a token, forward"})
      table.columns.push_back(fmt::format("{}: {}", model, what));
  for (Index distance : plan.distances) {
    std::vector<double> row{static_cast<double>(distance)};
    for (bool attends : {true, false}) {
      const auto numbers = trained(attends, task, distance, plan);
      row.insert(row.end(), numbers.begin(), numbers.end());
      fmt::print(stderr, "distance {}: {} {}\n", distance, attends ? "attention" : "lstm", fmt::join(numbers, " "));
    }
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace regard::bench
