#include "regard/training.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/toy.h"
#include "regard/threads.h"

namespace regard {
namespace {

using testing::bytes_of;
using testing::expect_contains;
using testing::expect_file_error;
using testing::expect_same_run;
using testing::Folder;
using testing::message_of;
using testing::tensors_of;
using testing::write_bytes;

// Words over a few letters, as they are or with a mark behind them; the answer
// spells the letters backwards in capitals.
Dataset backwards(Index count, std::uint64_t seed, bool marked = false) {
  Random random(seed);
  Dataset data;
  for (Index i = 0; i < count; ++i) {
    Example example;
    const auto length = 1 + random.below(4);
    for (std::uint64_t j = 0; j < length; ++j) {
      const char letter = static_cast<char>('a' + random.below(5));
      example.text += letter;
      example.source.push_back(std::string(1, letter));
      example.target.insert(example.target.begin(), std::string(1, static_cast<char>(letter - 'a' + 'A')));
    }
    if (marked) example.text += '.', example.source.emplace_back(".");
    data.examples.push_back(example);
  }
  return data;
}

Seq2SeqConfig sizes() {
  Seq2SeqConfig config;
  config.layer = {.model_dim = 32, .heads = 2, .hidden = 64, .attention_dropout = 0.1};
  config.encoder_layers = config.decoder_layers = 1;
  config.max_length = 16;
  return config;
}

TrainingConfig plan(Index epochs) {
  TrainingConfig config;
  config.epochs = epochs;
  config.batch = 32;
  config.schedule = {.peak = 5e-3, .warmup = 20};
  return config;
}

const Dataset& train_data() {
  static const Dataset data = backwards(800, 1);
  return data;
}
const Dataset& dev_data() {
  static const Dataset data = backwards(60, 2);
  return data;
}

Trainer trainer_in(const std::string& folder, Index epochs) {
  return Trainer(folder, plan(epochs), sizes(), train_data(), dev_data(), false, "backwards");
}

// Steps this small are not worth a team of threads.
struct OneThread {
  OneThread() { set_threads(1); }
  ~OneThread() { set_threads(0); }
};

// Distances alone can't count a letter that is all there is: "aa" and "aaa" look
// alike. Hence the mark, as T5 puts one behind its inputs.
class PositionSchemes : public ::testing::TestWithParam<NamedPositions> {};

TEST_P(PositionSchemes, learn_to_spell_backwards) {
  const OneThread guard;
  const Folder folder;
  Seq2SeqConfig certain = sizes();
  certain.layer.heads = 4;
  certain.positions = GetParam().kind;
  certain.layer.dropout = certain.layer.attention_dropout = 0;
  const Dataset train = backwards(800, 1, true), dev = backwards(60, 2, true);
  Trainer trainer(folder / "run", plan(40), certain, train, dev, false, "backwards");
  double first_loss = 0;
  EpochReport last;
  TrainingObserver observer;
  observer.epoch = [&](const EpochReport& report) {
    if (report.epoch == 1) first_loss = report.train_loss;
    last = report;
  };
  trainer.run(observer);
  EXPECT_EQ(last.epoch, 40);
  EXPECT_LT(last.train_loss, first_loss / 2);
  EXPECT_LT(last.dev.sequence_error_rate(), 0.1);
  // What is saved answers as well as what was measured.
  const Model model = load_model(folder / "run");
  EXPECT_EQ(model.config.positions, GetParam().kind);
  EXPECT_LT(evaluate_answers(model, group_references(dev), {}).sequence_error_rate(), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Trainer, PositionSchemes, ::testing::ValuesIn(named_positions),
                         [](const auto& scheme) { return std::string(scheme.param.name); });

TEST(Trainer, two_epochs_are_one_and_one_resumed_to_the_byte) {
  const OneThread guard;
  const Folder folder;
  trainer_in(folder / "whole", 2).run({});
  trainer_in(folder / "parts", 2).run({}, 1);
  auto resumed = Trainer::resume(folder / "parts", train_data(), dev_data());
  EXPECT_EQ(resumed.finished_epochs(), 1);
  resumed.run({});
  expect_same_run(folder / "whole", folder / "parts");
}

TEST(Trainer, stopped_within_an_epoch_it_goes_on_to_the_same_bytes) {
  const OneThread guard;
  const Folder folder;
  trainer_in(folder / "whole", 2).run({});
  std::atomic<bool> stop{false};
  TrainingObserver observer;
  observer.progress = [&](const TrainingProgress& progress) { stop = progress.epoch == 2 && progress.batch == 3; };
  observer.stop = &stop;
  trainer_in(folder / "parts", 2).run(observer);
  EXPECT_TRUE(stop);
  EXPECT_NO_THROW(load_model(folder / "parts")) << "the best model so far stays whole";
  Trainer::resume(folder / "parts", train_data(), dev_data()).run({});
  expect_same_run(folder / "whole", folder / "parts");
}

TEST(Trainer, no_byte_depends_on_the_number_of_threads) {
  const Folder folder;
  set_threads(1);
  trainer_in(folder / "one", 1).run({});
  set_threads(3);
  trainer_in(folder / "three", 1).run({});
  set_threads(0);
  expect_same_run(folder / "one", folder / "three");
}

TEST(Trainer, resuming_on_other_data_or_without_a_run_is_refused) {
  const Folder folder;
  EXPECT_THROW(Trainer::resume(folder / "none", train_data(), dev_data()), FileError);
  trainer_in(folder / "run", 2).run({}, 1);
  EXPECT_THROW(Trainer::resume(folder / "run", dev_data(), dev_data()), FileError);
  const std::string path = tensors_of(folder / "run"), tensors = bytes_of(path);
  write_bytes(path, tensors.substr(0, tensors.size() / 2));
  EXPECT_THROW(Trainer::resume(folder / "run", train_data(), dev_data()), FileError);
  std::filesystem::remove(path);
  EXPECT_THROW(Trainer::resume(folder / "run", train_data(), dev_data()), FileError);
  folder.write("run/training.json", "{\"model\": 3");
  EXPECT_THROW(Trainer::resume(folder / "run", train_data(), dev_data()), FileError);
}

TEST(Trainer, a_loss_that_is_not_finite_stops_with_the_last_checkpoint_whole) {
  const Folder folder;
  auto trainer = trainer_in(folder / "run", 3);
  trainer.run({}, 1);
  const std::string path = tensors_of(folder / "run"), before = bytes_of(path);
  trainer.model().network->parameters()[0]->value.fill(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(trainer.run({}), Error);
  EXPECT_EQ(tensors_of(folder / "run"), path);
  EXPECT_TRUE(bytes_of(path) == before);
  expect_contains(message_of<Error>([&] { trainer.run({}); }), "the last checkpoint is whole");
}

TEST(Trainer, a_loss_that_is_not_finite_at_once_speaks_of_no_checkpoint) {
  const Folder folder;
  {
    auto trainer = trainer_in(folder / "run", 3);
    trainer.model().network->parameters()[0]->value.fill(std::numeric_limits<float>::quiet_NaN());
    expect_contains(message_of<Error>([&] { trainer.run({}); }), "nothing was saved yet");
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << "an empty folder is left";
}

TEST(Trainer, one_run_at_a_time_in_a_folder) {
  const Folder folder;
  auto first = trainer_in(folder / "run", 2);
  expect_file_error(folder / "run", "another run", [&] { trainer_in(folder / "run", 2); });
  first.run({}, 1);
  expect_file_error(folder / "run", "another run", [&] { Trainer::resume(folder / "run", train_data(), dev_data()); });
}

TEST(Trainer, a_lost_best_model_is_written_by_the_next_epoch_or_missed) {
  const OneThread guard;
  const Folder folder;
  trainer_in(folder / "run", 2).run({}, 1);
  std::filesystem::remove(folder / "run/model.safetensors");
  Trainer::resume(folder / "run", train_data(), dev_data()).run({});
  EXPECT_NO_THROW(load_model(folder / "run"));
  for (const char* name : {"model.json", "model.safetensors"}) {
    std::filesystem::remove(folder / "run/" + name);
    expect_file_error(folder / "run/" + name, "is gone",
                      [&] { Trainer::resume(folder / "run", train_data(), dev_data()); });
    folder.write(std::string("run/") + name, "{}");
  }
}

TEST(Trainer, a_folder_that_can_not_be_made_is_an_error) {
  const Folder folder;
  folder.write("file", "x");
  EXPECT_THROW(trainer_in(folder / "file/run", 1).run({}), FileError);
}

TEST(Trainer, a_plan_of_nothing_is_refused) {
  const Folder folder;
  EXPECT_THROW(trainer_in(folder / "run", 0), ArgumentError);
}

}  // namespace
}  // namespace regard
