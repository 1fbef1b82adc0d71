// Training steps of the shipped model's size on made-up words, words a second:
//   build/bench/training_speed [threads] [seconds]
// bench/peers/training.py is the same in PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "regard/cpu.h"
#include "regard/loss.h"
#include "regard/optimizer.h"
#include "regard/random.h"
#include "regard/seq2seq.h"
#include "regard/threads.h"

namespace {

using namespace regard;

constexpr Index batch = 256, source_length = 9, target_length = 8;
constexpr Index source_vocabulary = 33, target_vocabulary = 43;  // four special symbols each
constexpr double smoothing = 0.1, clip = 1.0, learning_rate = 1e-3;

Tensor<std::int64_t> made_up_ids(Index length, Index vocabulary, Random& random) {
  const std::int64_t specials = 4;
  Tensor<std::int64_t> ids({batch, length});
  for (std::int64_t& id : ids.values())
    id = specials + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(vocabulary - specials)));
  return ids;
}

class Training {
 public:
  Training() : optimizer_(network_.parameters()) {}

  double step() {
    Tape<float> tape(true, ++steps_);
    const auto logits = network_.decode(tape, network_.encode(tape, source_), source_, input_);
    Tensor<float> gradient;
    const Loss loss = cross_entropy(logits->value, target_, Vocabulary::pad, smoothing, &gradient);
    tape.backward(logits, std::move(gradient));
    clip_gradients(optimizer_.parameters(), clip);
    optimizer_.step(learning_rate);
    return loss.mean();
  }

  Index weight_count() { return network_.weight_count(); }

 private:
  Random random_{1};
  Tensor<std::int64_t> source_ = made_up_ids(source_length, source_vocabulary, random_);
  Tensor<std::int64_t> input_ = made_up_ids(target_length, target_vocabulary, random_);
  Tensor<std::int64_t> target_ = made_up_ids(target_length, target_vocabulary, random_);
  Seq2Seq<float> network_{Seq2SeqConfig{}, source_vocabulary, target_vocabulary, 1};
  AdamW<float> optimizer_;
  std::uint64_t steps_ = 0;
};

double seconds_of(Training& training, double& loss) {
  const auto start = std::chrono::steady_clock::now();
  loss = training.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const double limit = argc > 2 ? std::atof(argv[2]) : 10;
  const KeepMemory keep;
  Training training;
  double loss = 0, total = 0;
  seconds_of(training, loss);  // not counted: memory is touched for the first time
  std::vector<double> times;
  while (total < limit) total += times.emplace_back(seconds_of(training, loss));
  std::sort(times.begin(), times.end());
  const double words = static_cast<double>(batch);
  fmt::print("regard {:.1f} words/s (median of {} steps; best {:.1f}), {} weights, {} thread(s), loss {:.4f}, {}\n",
             words / times[times.size() / 2], times.size(), words / times[0], training.weight_count(), threads(), loss,
             cpu_name());
}
