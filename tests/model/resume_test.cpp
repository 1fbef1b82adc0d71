// Runs in pieces, and what a run leaves behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "model/toy.h"

namespace regard {
namespace {

using testing::bytes_of;
using testing::expect_contains;
using testing::expect_same_run;
using testing::Folder;
using testing::message_of;
using testing::reversals;
using testing::tensors_of;

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
    SCOPED_TRACE("after " + std::to_string(steps) + " steps");
    expect_same_run(whole, pieces);
  }
}

// Standing in its way, a folder keeps training.json from being written, as a
// disk that fills up right then would.
TEST(Resume, a_checkpoint_that_could_not_be_finished_leaves_the_one_before) {
  const Folder folder;
  const std::string run = folder / "run", json = run + "/training.json";
  fresh(folder / "whole").run({});
  std::optional<Trainer> trainer(fresh(run));
  trainer->run({}, 1);
  const std::string before = tensors_of(run);
  std::filesystem::rename(json, folder / "aside");
  std::filesystem::create_directory(json);
  EXPECT_THROW(trainer->run({}), FileError);
  trainer.reset();  // and with it the hold on the folder
  EXPECT_EQ(tensors_of(run), before) << "tensors without a description are left behind";
  std::filesystem::remove(json);
  std::filesystem::rename(folder / "aside", json);
  EXPECT_EQ(resumed(run).finished_epochs(), 1);
  resumed(run).run({});
  expect_same_run(folder / "whole", run);
}

// While it lives, no file can grow as large as the tensors: a full disk.
class SmallFiles {
 public:
  SmallFiles() {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit small = old_;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallFiles() { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST(Resume, tensors_that_could_not_be_written_leave_the_checkpoint_before) {
  const Folder folder;
  const std::string run = folder / "run";
  fresh(run).run({}, 1);
  const std::string before = tensors_of(run), bytes = bytes_of(before);
  {
    const SmallFiles full_disk;
    EXPECT_THROW(run_for(resumed(run), 1), FileError);
  }
  EXPECT_EQ(tensors_of(run), before);
  EXPECT_TRUE(bytes_of(before) == bytes);
  EXPECT_EQ(resumed(run).finished_epochs(), 1);
}

// What kills between two writes leave: whole tensors of a later step, and half of one.
TEST(Resume, tensors_of_a_checkpoint_that_was_never_finished_do_no_harm_and_go) {
  const Folder folder;
  const std::string run = folder / "run";
  fresh(run).run({}, 1);
  folder.write("run/training-11.safetensors", bytes_of(tensors_of(run)));
  folder.write("run/training-12.safetensors.tmp-77-0", "half");
  folder.write("run/training-notes.safetensors", "mine");
  EXPECT_EQ(resumed(run).finished_epochs(), 1);
  fresh(folder / "whole").run({});
  resumed(run).run({});
  EXPECT_TRUE(std::filesystem::remove(run + "/training-notes.safetensors")) << "not ours to remove";
  expect_same_run(folder / "whole", run);
}

// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv: what runs were saved with first.
std::string first_digest(const Dataset& data) {
  std::string all;
  for (const Example& example : data.examples) {
    all += example.text + "\n";
    for (const std::string& symbol : example.target) all += symbol + "\n";
  }
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : all) hash = (hash ^ byte) * 0x100000001b3u;
  return std::to_string(hash);
}

// Makes of a run what the first version of this format would have left.
void make_old(const std::string& run) {
  std::filesystem::rename(tensors_of(run), run + "/training.safetensors");
  auto json = nlohmann::json::parse(bytes_of(run + "/training.json"));
  json.erase("tensors");
  json.erase("digest_version");
  json["data"] = first_digest(reversals(60, 1)) + "/" + first_digest(reversals(10, 2));
  testing::write_bytes(run + "/training.json", json.dump());
}

TEST(Resume, a_run_of_the_first_format_goes_on) {
  const Folder folder;
  fresh(folder / "whole").run({});
  const std::string run = folder / "run";
  fresh(run).run({}, 1);
  make_old(run);
  EXPECT_THROW(Trainer::resume(run, reversals(60, 3), reversals(10, 2)), FileError);
  EXPECT_EQ(resumed(run).finished_epochs(), 1);
  resumed(run).run({});
  expect_same_run(folder / "whole", run);
}

// The same strings in the same order, cut into examples elsewhere.
TEST(Resume, examples_that_end_elsewhere_are_other_data) {
  Dataset data = reversals(60, 1), changed = data;
  data.examples.push_back({"a", {"a"}, {"b", "c", "d"}});
  changed.examples.push_back({"a", {"a"}, {"b"}});
  changed.examples.push_back({"c", {"c"}, {"d"}});
  const Folder folder;
  Trainer(folder / "run", plan(2), tiny_sizes(), data, reversals(10, 2), false, "toy").run({}, 1);
  EXPECT_NO_THROW(Trainer::resume(folder / "run", data, reversals(10, 2)));
  expect_contains(message_of<FileError>([&] { Trainer::resume(folder / "run", changed, reversals(10, 2)); }),
                  "other data");
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
