// Runs in pieces, and what a run leaves behind.
#include <gtest/gtest.h>

#include "model/toy.h"

namespace regard {
namespace {

using testing::bytes_of;
using testing::expect_contains;
using testing::Folder;
using testing::message_of;
using testing::reversals;

Seq2SeqConfig tiny_sizes() {
  Seq2SeqConfig config = testing::toy_sizes();
  config.layer.hidden = 32;
  config.layer.dropout = config.layer.attention_dropout = 0.1;
  config.encoder_layers = config.decoder_layers = 1;
  return config;
}

TrainingConfig plan(Index epochs, std::uint64_t seed = 1) {
  TrainingConfig config;
  config.epochs = epochs;
  config.batch = 8;
  config.schedule = {.peak = 3e-3, .warmup = 5};
  config.seed = seed;
  return config;
}

Trainer fresh(const std::string& folder, Index epochs = 2, std::uint64_t seed = 1) {
  return Trainer(folder, plan(epochs, seed), tiny_sizes(), reversals(60, 1), reversals(10, 2), false, "toy");
}

Trainer resumed(const std::string& folder) { return Trainer::resume(folder, reversals(60, 1), reversals(10, 2)); }

// Asks to stop after this many steps, and runs.
void run_for(Trainer trainer, Index steps) {
  std::atomic<bool> stop{false};
  TrainingObserver observer;
  observer.progress = [&](const TrainingProgress& p) { stop = p.run_batches >= steps; };
  observer.stop = &stop;
  trainer.run(observer);
}

// 60 examples by 8: 8 steps an epoch. Stops in mid-epoch, at its end, and once
// more on the way.
TEST(Resume, a_stop_anywhere_and_a_resume_equal_an_uninterrupted_run_byte_for_byte) {
  const Folder folder;
  const std::string whole = folder / "whole";
  fresh(whole).run({});
  for (Index steps : {1, 3, 8, 11, 15}) {
    const std::string pieces = folder / "pieces" + std::to_string(steps);
    run_for(fresh(pieces), steps);
    EXPECT_EQ(resumed(pieces).finished_epochs(), steps < 8 ? 0 : 1);
    run_for(resumed(pieces), 1);
    resumed(pieces).run({});
    for (const char* name : {"model.safetensors", "model.json", "training.safetensors", "training.json"})
      EXPECT_TRUE(bytes_of(whole + "/" + name) == bytes_of(pieces + "/" + name))
          << name << " after " << steps << " steps";
  }
}

TEST(Resume, another_seed_is_another_run) {
  const Folder folder;
  fresh(folder / "one", 1, 1).run({});
  fresh(folder / "two", 1, 2).run({});
  EXPECT_FALSE(bytes_of(folder / "one/model.safetensors") == bytes_of(folder / "two/model.safetensors"));
}

TEST(Resume, one_target_symbol_more_is_other_data) {
  const Folder folder;
  fresh(folder / "run").run({}, 1);
  Dataset changed = reversals(60, 1);
  changed.examples[7].target.push_back("a");
  const std::string message =
      message_of<FileError>([&] { Trainer::resume(folder / "run", changed, reversals(10, 2)); });
  expect_contains(message, folder / "run");
  expect_contains(message, "other data");
}

TEST(Run, reports_every_step_and_every_epoch) {
  const Folder folder;
  std::vector<TrainingProgress> steps;
  std::vector<EpochReport> epochs;
  TrainingObserver observer;
  observer.progress = [&](const TrainingProgress& p) { steps.push_back(p); };
  observer.epoch = [&](const EpochReport& r) { epochs.push_back(r); };
  fresh(folder / "run").run(observer);
  ASSERT_EQ(steps.size(), 16u);
  EXPECT_EQ(steps[0].epoch, 1);
  EXPECT_EQ(steps[0].batches, 8);
  EXPECT_EQ(steps[8].batch, 1);
  EXPECT_EQ(steps[15].examples, 120);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[1].epoch, 2);
  EXPECT_LT(epochs[1].train_loss, epochs[0].train_loss);
}

// Untrained answers run on to the length limit: several times more errors than
// symbols, here of words of one letter.
TEST(Run, the_first_epoch_leaves_a_model_however_bad_it_is) {
  double worst = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Folder folder;
    TrainingConfig config = plan(1, seed);
    config.schedule = {.kind = ScheduleKind::constant, .peak = 1e-9, .warmup = 0};
    TrainingObserver observer;
    observer.epoch = [&](const EpochReport& r) { worst = std::max(worst, r.dev.symbol_error_rate()); };
    Trainer(folder / "run", config, tiny_sizes(), reversals(8, 1, 1), reversals(8, 2, 1), false, "toy").run(observer);
    EXPECT_NO_THROW(load_model(folder / "run")) << "seed " << seed;
    EXPECT_NO_THROW(Trainer::resume(folder / "run", reversals(8, 1, 1), reversals(8, 2, 1)));
  }
  EXPECT_GT(worst, 2.0) << "no seed gave answers as bad as this test is about";
}

TEST(Run, the_saved_model_is_the_best_so_far) {
  const Folder folder;
  double best = 1e9;
  TrainingObserver observer;
  observer.epoch = [&](const EpochReport& r) {
    EXPECT_EQ(r.best, r.dev.symbol_error_rate() < best);
    best = std::min(best, r.dev.symbol_error_rate());
  };
  fresh(folder / "run", 5).run(observer);
  const auto counts = evaluate_answers(load_model(folder / "run"), group_references(reversals(10, 2)), {});
  EXPECT_DOUBLE_EQ(counts.symbol_error_rate(), best);
}

TEST(Run, data_longer_than_the_model_is_refused_before_the_first_step) {
  const Folder folder;
  const auto train_on = [&](const Dataset& train, const Dataset& dev) {
    Trainer(folder / "run", plan(1), tiny_sizes(), train, dev, false, "toy");
  };
  Dataset longer = reversals(10, 2);
  longer.examples[3].text = "toolong";
  longer.examples[3].source.assign(41, "a");
  const std::string message = message_of<ArgumentError>([&] { train_on(reversals(60, 1), longer); });
  for (const char* part : {"toolong", "41", "40"}) expect_contains(message, part);
  longer = reversals(10, 2);
  longer.examples[3].target.assign(40, "a");  // and the end
  EXPECT_THROW(train_on(longer, reversals(10, 2)), ArgumentError);
  longer.examples[3].target.assign(39, "a");
  EXPECT_NO_THROW(train_on(longer, reversals(10, 2)));
}

// 7 steps an epoch. Guessing among five letters and the end costs ln 6 = 1.79
// nats a symbol.
TEST(Run, a_small_model_learns_to_reverse_and_a_beam_finds_no_less_than_greedy) {
  const Folder folder;
  TrainingConfig config = plan(30);
  config.batch = 32;
  config.smoothing = 0.0;
  config.schedule = {.peak = 5e-3, .warmup = 40};
  Seq2SeqConfig sizes = tiny_sizes();
  sizes.layer.dropout = sizes.layer.attention_dropout = 0.0;
  EpochReport last;
  TrainingObserver observer;
  observer.epoch = [&](const EpochReport& r) { last = r; };
  Trainer(folder / "run", config, sizes, reversals(200, 1, 3), reversals(30, 2, 3), false, "toy").run(observer);
  EXPECT_LT(last.train_loss, 0.3);
  EXPECT_LT(last.dev_loss, 0.6);
  const Model model = load_model(folder / "run");
  for (const Question& question : group_references(reversals(10, 2, 3))) {
    const auto ids = model.source_ids(question.text);
    const auto greedy = answer(model, {ids}, {.length_penalty = 0});
    const auto beam = answer(model, {ids}, {.beam = 4, .length_penalty = 0});
    EXPECT_GE(beam[0].log_probability, greedy[0].log_probability - 1e-5) << question.text;
  }
}

}  // namespace
}  // namespace regard
