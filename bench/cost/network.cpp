#include "network.h"

#include <algorithm>
#include <cmath>

#include "regard/loss.h"

namespace regard::bench {
namespace {

constexpr Index symbols = 8, noise = 8, question = symbols + noise, tokens = question + 1;
constexpr Index copied = 8, batch = 8, width = 64;

}  // namespace

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

Network::Network(const NetworkShape& shape, Random& random) : embedding_("embedding", tokens, width, random) {
  const LayerConfig layer{.model_dim = width, .heads = 4, .hidden = 2 * width, .norm = shape.norm, .dropout = 0};
  for (Index i = 0; i < shape.layers; ++i)
    if (shape.attends)
      encoder_.push_back(std::make_unique<EncoderLayer<float>>("layer", layer, random));
    else
      recurrent_.push_back(std::make_unique<Recurrent<float>>("layer", RecurrentKind::lstm, width, width, random));
  norm_ = LayerNorm<float>("norm", width);
  output_ = Linear<float>("output", width, symbols, random);
}

Var<float> Network::forward(Tape<float>& tape, const Tensor<std::int64_t>& input) {
  auto x = embedding_.forward(tape, input, std::sqrt(static_cast<double>(width)));
  if (!encoder_.empty()) x = add_positions(tape, x, sinusoidal_positions<float>(input.size(1), width));
  for (auto& layer : encoder_) x = layer->forward(tape, x, {.mask = causal()});
  for (auto& layer : recurrent_) x = layer->forward(tape, x);
  return output_.forward(tape, norm_.forward(tape, x));
}

Parameters<float> Network::parameters() {
  Parameters<float> list;
  embedding_.collect(list);
  for (auto& layer : encoder_) layer->collect(list);
  for (auto& layer : recurrent_) layer->collect(list);
  norm_.collect(list);
  output_.collect(list);
  return list;
}

StepReport train_step(Network& network, AdamW<float>& optimizer, const Sample& sample, double rate, double clip) {
  Tape<float> tape(true);
  const auto logits = network.forward(tape, sample.input);
  Tensor<float> gradient;
  StepReport report;
  report.loss = cross_entropy(logits->value, sample.target, no_answer, 0.0, &gradient).mean();
  tape.backward(logits, std::move(gradient));
  report.norm = clip_gradients(optimizer.parameters(), clip);
  optimizer.step(rate);
  return report;
}

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

}  // namespace regard::bench
