// regard train: any sequence-to-sequence TSV, or pictures of text, become a model.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checks.h"
#include "commands.h"
#include "picture_data.h"
#include "regard/text_width.h"
#include "regard/threads.h"
#include "regard/training.h"

namespace regard::cli {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> interrupting_signal{0};
void on_interrupt(int signal) {
  interrupting_signal.store(signal);
  interrupted.store(true);
}

// While it lives, Ctrl-C asks training to stop cleanly; a second one kills.
class InterruptGuard {
 public:
  InterruptGuard() {
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    // A file being read is read to its end first.
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigaction(SIGINT, &action, &interrupt_before_);
    sigaction(SIGTERM, &action, &terminate_before_);
  }
  ~InterruptGuard() {
    sigaction(SIGINT, &interrupt_before_, nullptr);
    sigaction(SIGTERM, &terminate_before_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction interrupt_before_ = {}, terminate_before_ = {};
};

struct Arguments {
  std::string train, dev, strings, out, name, norm = "pre", activation = "relu", positions = "sinusoidal",
                                              dtype = "f32";
  std::string schedule = "cosine";
  Seq2SeqConfig sizes;
  TrainingConfig training;
  Index layers = 4, stop_after = 0;
  PatchSizes patches{32, 0, 4};  // patch_height 0: as high as the pictures
  bool resume = false, words = false, skip_bad = false, pictures = false;
};

std::string duration(double seconds) {
  const auto whole = std::lround(seconds);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

void show_progress(const TrainingProgress& p) {
  const double per_second = static_cast<double>(p.examples) / p.seconds;
  const double done = static_cast<double>(p.batch) / static_cast<double>(p.batches);
  const double batches_left = static_cast<double>((p.epochs - p.epoch + 1) * p.batches - p.batch);
  const double left = batches_left * p.seconds / static_cast<double>(p.run_batches);
  constexpr int width = 24;
  const auto full = static_cast<std::size_t>(done * width);
  fmt::print("\repoch {}/{} [{}{}] {:3.0f} %  loss {:.4f}  {:.0f} examples/s  {} left \x1b[K", p.epoch, p.epochs,
             std::string(full, '#'), std::string(width - full, '.'), 100 * done, p.loss, per_second, duration(left));
  std::fflush(stdout);
}

void show_epoch(const EpochReport& r) {
  fmt::print(
      "{}epoch {}/{}  train loss {:.4f}  dev loss {:.4f}  symbol errors {:.2f} %  sequence errors {:.2f} %  {}{}\n",
      isatty(STDOUT_FILENO) ? "\r\x1b[K" : "", r.epoch, r.epochs, r.train_loss, r.dev_loss,
      100 * r.dev.symbol_error_rate(), 100 * r.dev.sequence_error_rate(), duration(r.seconds),
      r.best ? "  best so far, saved" : "");
  std::fflush(stdout);
}

// `sizes` are those of pictures, if the file names any.
Dataset read_part(const std::string& path, const char* what, const TsvOptions& options, const PatchSizes& sizes) {
  Dataset data = options.pictures ? read_checked_pictures(path, options, sizes) : read_tsv(path, options);
  fmt::print("{:<12}{} pairs from {}\n", what, data.examples.size(), printable(path));
  if (data.skipped > 0) fmt::print("{:<12}{} bad lines of {}\n", "skipped", data.skipped, printable(path));
  return data;
}

// What a caption shows is one line of plain text.
void check_name(const std::string& name) {
  if (printable(name) != name) throw UsageError("--name: control characters and broken UTF-8 can't be in a name");
}

void finish_arguments(Arguments& a) {
  const LayerConfig& layer = a.sizes.layer;
  if (layer.model_dim % layer.heads != 0)
    throw UsageError(fmt::format("--model-dim {} can't be split into --heads {}: give a multiple of it",
                                 layer.model_dim, layer.heads));
  if (a.positions == "rotary" && layer.model_dim / layer.heads % 2 != 0)
    throw UsageError(fmt::format("--positions rotary turns pairs, but --model-dim {} in --heads {} gives heads of {}",
                                 layer.model_dim, layer.heads, layer.model_dim / layer.heads));
  check_name(a.name);
  a.sizes.encoder_layers = a.sizes.decoder_layers = a.layers;
  a.sizes.layer.norm = a.norm == "pre" ? NormPlace::pre : NormPlace::post;
  a.sizes.layer.activation = a.activation == "relu"   ? Activation::relu
                             : a.activation == "gelu" ? Activation::gelu
                                                      : Activation::gelu_tanh;
  a.sizes.positions = position_kind(a.positions);
  a.training.dtype = a.dtype == "f32" ? DType::f32 : a.dtype == "f16" ? DType::f16 : DType::bf16;
  a.training.schedule.kind = a.schedule == "cosine"         ? ScheduleKind::cosine
                             : a.schedule == "inverse-sqrt" ? ScheduleKind::inverse_sqrt
                                                            : ScheduleKind::constant;
  if (a.name.empty()) a.name = printable(std::filesystem::path(a.out).lexically_normal().filename().string());
}

// Pictures are at most `widest` pixels wide.
Dataset draw_part(const StringPlan& plan, Part part, Index widest, const std::string& path) {
  Dataset data = drawn_dataset(plan, part, widest);
  fmt::print("{:<12}{} strings to draw, in {} fonts, by {}\n", part == Part::train ? "training" : "development",
             data.examples.size(), plan.fonts.size(), printable(path));
  return data;
}

struct BothParts {
  Dataset train, dev;
};

BothParts read_data(const Arguments& a, const TsvOptions& options, const PatchSizes& sizes) {
  if (a.strings.empty())
    return {read_part(a.train, "training", options, sizes), read_part(a.dev, "development", options, sizes)};
  const StringPlan plan = read_string_plan(a.strings);
  const Index widest = widest_picture(sizes, options.longest.source);
  return {draw_part(plan, Part::train, widest, a.strings), draw_part(plan, Part::dev, widest, a.strings)};
}

// Text in files, pictures in files, or strings that are drawn.
void refuse_other_data(const CLI::App& command, const Arguments& a) {
  if (a.strings.empty()) {
    for (const char* flag : {"--train", "--dev"})
      if (command.count(flag) == 0) throw UsageError(std::string(flag) + " is required");
    for (const char* flag : {"--patch-height", "--patch-width"})
      if (!a.pictures && command.count(flag) > 0)
        throw UsageError(std::string(flag) + " goes with --pictures or --strings");
  } else {
    for (const char* flag : {"--train", "--dev", "--skip-bad", "--pictures", "--picture-height"})
      if (command.count(flag) > 0)
        throw UsageError(std::string(flag) + " does not go with --strings, which draws what is read");
  }
  if (!a.pictures && command.count("--picture-height") > 0) throw UsageError("--picture-height goes with --pictures");
  if (!a.pictures && a.strings.empty()) return;
  for (const char* flag : {"--words", "--shared-vocabulary"})
    if (command.count(flag) > 0) throw UsageError(std::string(flag) + " goes with text, not with pictures");
}

// A fresh run takes nobody's place.
void refuse_what_is_there(const std::string& folder) {
  const auto holds = [&](const char* name) { return std::filesystem::exists(folder + "/" + name); };
  if (holds("training.json"))
    throw UsageError(folder + " holds a run already: give --resume to go on with it, or another --out");
  if (holds("model.json") || holds("model.safetensors"))
    throw UsageError(folder + " holds a model that no run goes on with: give another --out");
}

Trainer start(Arguments& a) {
  if (a.resume) {
    TsvOptions options = Trainer::data_options(a.out);
    options.skip_bad = a.skip_bad;
    const BothParts data = read_data(a, options, Trainer::picture_sizes(a.out));
    return Trainer::resume(a.out, data.train, data.dev);
  }
  LockedFolder folder(a.out);
  refuse_what_is_there(a.out);
  const Index longest = a.sizes.max_length;
  const TsvOptions options{
      .words = a.words, .skip_bad = a.skip_bad, .pictures = a.pictures, .longest = {longest, longest}};
  if (!a.strings.empty()) a.patches.height = read_string_plan(a.strings).height;
  if (a.patches.patch_height == 0) a.patches.patch_height = a.patches.height;
  if (a.pictures || !a.strings.empty()) a.sizes.patches = a.patches;
  check_patches(a.sizes.patches);
  const BothParts data = read_data(a, options, a.sizes.patches);
  return Trainer(std::move(folder), a.training, a.sizes, data.train, data.dev, a.words, a.name);
}

// A run that goes on has the sizes and the plan that it began with.
void refuse_changes(const CLI::App& command) {
  const std::vector<std::string> free{"--train",  "--dev",        "--strings",  "--out",
                                      "--resume", "--stop-after", "--skip-bad", "--threads"};
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0 && std::find(free.begin(), free.end(), option->get_name()) == free.end())
      throw UsageError(option->get_name() + " can't change a run that goes on: leave it out with --resume");
}

void print_plan(Trainer& trainer) {
  fmt::print("{:<12}{} weights, ", "model", trainer.model().network->weight_count());
  const Index finished = trainer.finished_epochs(), epochs = trainer.config().epochs;
  if (finished >= epochs)
    fmt::print("{} finished\n", epochs == 1 ? "its one epoch is" : fmt::format("all {} epochs are", epochs));
  else
    fmt::print("epochs {} to {}\n", finished + 1, epochs);
}

void train(const CLI::App& command, Arguments& a) {
  refuse_other_data(command, a);
  if (a.resume) refuse_changes(command);
  finish_arguments(a);
  threads();  // says what is wrong with REGARD_THREADS before anything is printed
  // Reading the data may take a while: a stop is a stop from here on.
  const InterruptGuard guard;
  Trainer trainer = start(a);
  print_plan(trainer);
  TrainingObserver observer;
  if (isatty(STDOUT_FILENO)) observer.progress = show_progress;
  observer.epoch = show_epoch;
  observer.stop = &interrupted;
  trainer.run(observer, a.stop_after);
  const std::string out = printable(a.out);
  if (trainer.finished_epochs() >= trainer.config().epochs) {
    fmt::print("done: the best model is in {}\n", out);
  } else if (interrupted) {
    fmt::print("\nstopped; `regard train ... --out {} --resume` goes on from here\n", out);
    throw Stopped{interrupting_signal};
  }
}

void add_sizes(CLI::App& command, Arguments& a) {
  const auto at_least_one = CLI::Range(Index{1}, Index{1} << 20);
  LayerConfig& layer = a.sizes.layer;
  command.add_option("--layers", a.layers, "Layers of the encoder, and of the decoder")
      ->check(at_least_one)
      ->capture_default_str();
  command.add_option("--model-dim", layer.model_dim, "Width of the model")->check(at_least_one)->capture_default_str();
  command.add_option("--heads", layer.heads, "Attention heads")->check(at_least_one)->capture_default_str();
  command.add_option("--hidden", layer.hidden, "Inner width of the feed-forward")
      ->check(at_least_one)
      ->capture_default_str();
  command.add_option("--dropout", layer.dropout, "Of residual branches")
      ->check(between(0, 0.99))
      ->capture_default_str();
  command.add_option("--attention-dropout", layer.attention_dropout, "Of attention weights")
      ->check(between(0, 0.99))
      ->capture_default_str();
  command.add_option("--norm", a.norm, "Place of the layer norms")
      ->check(CLI::IsMember({"pre", "post"}))
      ->capture_default_str();
  command.add_option("--activation", a.activation, "Of the feed-forward")
      ->check(CLI::IsMember({"relu", "gelu", "gelu-tanh"}))
      ->capture_default_str();
  std::vector<std::string> schemes;
  for (const NamedPositions& named : named_positions) schemes.emplace_back(named.name);
  command.add_option("--positions", a.positions, "Position scheme")
      ->check(CLI::IsMember(schemes))
      ->capture_default_str();
  command.add_flag("--shared-vocabulary", a.sizes.shared_vocabulary,
                   "One vocabulary, and one table of embeddings, for source and target");
  command.add_option("--max-length", a.sizes.max_length, "Longest sequence, in symbols")
      ->check(at_least_one)
      ->capture_default_str();
}

void add_pictures(CLI::App& command, Arguments& a) {
  const auto at_least_one = CLI::Range(Index{1}, Index{1} << 12);
  command
      .add_option("--strings", a.strings,
                  "Instead of --train and --dev: train on pictures of random strings, drawn as this JSON file plans")
      ->type_name("FILE");
  command.add_flag("--pictures", a.pictures, "Sources in --train and --dev are PNG files, seen from the TSV's folder");
  command.add_option("--picture-height", a.patches.height, "Pixels that pictures are scaled to")
      ->check(at_least_one)
      ->capture_default_str();
  command
      .add_option("--patch-height", a.patches.patch_height,
                  "Pixels of a patch, a divisor of the pictures' height (default: that height)")
      ->check(at_least_one);
  command.add_option("--patch-width", a.patches.patch_width, "Pixels of a patch")
      ->check(at_least_one)
      ->capture_default_str();
}

void add_training(CLI::App& command, Arguments& a) {
  const auto at_least_one = CLI::Range(Index{1}, Index{1} << 30);
  TrainingConfig& t = a.training;
  command.add_option("--epochs", t.epochs, "The plan; the cosine schedule ends with it")
      ->check(at_least_one)
      ->capture_default_str();
  command.add_option("--stop-after", a.stop_after, "Stop after this many epochs; --resume goes on")
      ->check(at_least_one);
  command.add_option("--batch", t.batch, "Pairs a step")->check(at_least_one)->capture_default_str();
  command.add_option("--rate", t.schedule.peak, "Highest learning rate")->check(above(0))->capture_default_str();
  command.add_option("--warmup", t.schedule.warmup, "Steps of warm-up")->check(at_least(0))->capture_default_str();
  command.add_option("--schedule", a.schedule, "Learning rate after the warm-up")
      ->check(CLI::IsMember({"cosine", "inverse-sqrt", "constant"}))
      ->capture_default_str();
  command.add_option("--smoothing", t.smoothing, "Label smoothing")->check(between(0, 0.99))->capture_default_str();
  command.add_option("--weight-decay", t.adamw.weight_decay, "Decoupled weight decay")
      ->check(at_least(0))
      ->capture_default_str();
  command.add_option("--clip", t.clip, "Largest gradient norm")->check(above(0))->capture_default_str();
  command.add_option("--seed", t.seed, "Of initial weights, order and dropout")
      ->check(unsigned_number())
      ->capture_default_str();
  command.add_option("--dtype", a.dtype, "Storage of the saved model")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
}

}  // namespace

void add_train(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("train", "Train a model on TSV files of text or pictures");
  const auto a = std::make_shared<Arguments>();
  command.add_option("--train", a->train, "source<TAB>target symbols separated by spaces")->type_name("FILE");
  command.add_option("--dev", a->dev, "The same, for choosing the best epoch")->type_name("FILE");
  command.add_option("--out", a->out, "Folder of the model and its checkpoints")->required()->type_name("DIR");
  command.add_option("--name", a->name, "Name for captions (default: the folder's)");
  command.add_flag(
      "--resume", a->resume,
      "Go on with the run in --out: give the same --train and --dev, sizes and plan are those it began with");
  command.add_flag("--words", a->words, "Split sources that contain spaces into words");
  command.add_flag("--skip-bad", a->skip_bad, "Pass over bad lines and count them");
  add_pictures(command, *a);
  add_sizes(command, *a);
  add_training(command, *a);
  add_threads_option(command);
  set_example(command,
              "  regard train --train data/cmudict/train.tsv --dev data/cmudict/dev.tsv --out out/phonemes\n"
              "  regard train --strings models/glyphs/seen-fonts.json --out out/glyphs\n\n"
              "Ctrl-C and SIGTERM save a checkpoint and stop with exit code 130 and 143; --resume goes on from there.\n"
              "A second one ends at once.");
  command.callback([a, &command] { train(command, *a); });
}

}  // namespace regard::cli
