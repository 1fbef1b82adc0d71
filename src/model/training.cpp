#include "regard/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "io/json_file.h"
#include "model/model_json.h"
#include "regard/digest.h"
#include "regard/error.h"
#include "regard/file.h"
#include "regard/loss.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int digest_version = 3;

// Over all examples: tells one data set from another. Version 1 marked the end of
// a string only, so that a symbol of one example could pass for the text of the
// next; version 2 knew pictures by their names only. Both are still here for runs
// that were begun with them.
std::string digest(const Dataset& data, int version) {
  std::uint64_t hash = fnv1a("");
  const auto feed = [&](const std::string& bytes) { hash = fnv1a(bytes, hash); };
  const auto feed_string = [&](const std::string& text) {
    feed(version == 1 ? text + '\n' : std::to_string(text.size()) + ':' + text);
  };
  feed(data.origin);
  if (version > 2) feed(data.contents);
  for (const Example& example : data.examples) {
    if (version > 1) feed(std::to_string(example.target.size()) + ':');
    feed_string(example.text);
    for (const std::string& symbol : example.target) feed_string(symbol);
  }
  return std::to_string(hash);
}

std::string digest_of_both(const Dataset& train, const Dataset& dev, int version) {
  return digest(train, version) + "/" + digest(dev, version);
}

void check_data(const nlohmann::json& json, const std::string& folder, const Dataset& train, const Dataset& dev) {
  const int version = json.value("digest_version", 1);
  if (version < 1 || version > digest_version)
    throw ArgumentError("digest_version is " + std::to_string(version) + ", known are 1 to " +
                        std::to_string(digest_version));
  if (json.at("data") != digest_of_both(train, dev, version))
    throw FileError(folder + ": this run was trained on other data; give the same files as before");
}

// The tensors of a checkpoint have a name of their own for every step, so that
// those of the last one are there until training.json names the new ones.
std::string tensors_name(std::int64_t steps) { return "training-" + std::to_string(steps) + ".safetensors"; }

// What can't be listed or removed stays: it is in nobody's way.
void remove_files(const std::string& folder, bool (*wanted)(std::string_view name), const std::string& kept = "") {
  std::error_code failure;
  std::vector<std::filesystem::path> others;
  for (std::filesystem::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name != kept && wanted(name)) others.push_back(entry->path());
  }
  for (const auto& path : others) std::filesystem::remove(path, failure);
}

bool only_has(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

// training.safetensors (of earlier versions) or training-STEPS.safetensors.
bool holds_tensors(std::string_view name) {
  constexpr std::string_view first = "training", last = ".safetensors";
  if (!name.starts_with(first) || !name.ends_with(last) || name.size() < first.size() + last.size()) return false;
  name = name.substr(first.size(), name.size() - first.size() - last.size());
  return name.empty() || (name.size() > 1 && name.front() == '-' && only_has(name.substr(1), "0123456789"));
}

// FILE.tmp-PROCESS-COUNT beside a file of a run.
bool is_half_written(std::string_view name) {
  const auto at = name.find(".tmp-");
  if (at == std::string_view::npos || !only_has(name.substr(at + 5), "-0123456789")) return false;
  const std::string_view whole = name.substr(0, at);
  return holds_tensors(whole) || whole == "training.json" || whole == "model.safetensors" || whole == "model.json";
}

// The tensors of earlier checkpoints.
void remove_other_tensors(const std::string& folder, const std::string& kept) {
  remove_files(folder, holds_tensors, kept);
}

// What a kill in the middle of writing left behind.
void remove_leftovers(const std::string& folder) { remove_files(folder, is_half_written); }

std::vector<Encoded> encode_all(const Dataset& data, const Model& model) {
  std::vector<Encoded> all;
  for (const Example& example : data.examples) {
    try {
      refuse_longer(example, {model.config.max_length, model.config.max_length});
    } catch (const ArgumentError& error) {
      throw ArgumentError("training: \"" + example.text + "\": " + error.what());
    }
    all.push_back(encode(example, model.source, model.target));
  }
  return all;
}

// Each question's patches go to the examples that it is made of.
void take_patches(std::vector<Encoded>& encoded, const Dataset& data, const std::vector<Question>& questions) {
  std::unordered_map<std::string, const Tensor<float>*> patches;
  for (const Question& question : questions) patches[question.text] = &question.patches;
  for (std::size_t i = 0; i < encoded.size(); ++i) encoded[i].patches = *patches.at(data.examples[i].text);
}

std::vector<std::string> texts_of(const Dataset& data) {
  std::vector<std::string> texts;
  for (const Example& example : data.examples) texts.push_back(example.text);
  return texts;
}

// What is wrong with an entry of training.json is said beside its name.
template <class F>
auto read_state(const std::string& path, F read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw FileError(path + ": not a training state (" + detail::json_reason(error) + ")");
  } catch (const ArgumentError& error) {
    throw FileError(path + ": not a training state (" + error.what() + ")");
  }
}

void check_kind(const Model& model, const Dataset& train, const Dataset& dev) {
  for (const Dataset* data : {&train, &dev})
    if (model.reads_pictures() != static_cast<bool>(data->picture))
      throw ArgumentError(model.reads_pictures() ? "training: the model reads pictures, the data has none"
                                                 : "training: the data are pictures, the model reads text");
}

Batch batch_of(const std::vector<Encoded>& data, const std::vector<Index>& indices) {
  std::vector<const Encoded*> examples;
  examples.reserve(indices.size());
  for (Index i : indices) examples.push_back(&data[static_cast<std::size_t>(i)]);
  return make_batch(examples);
}

Model fresh_model(const Seq2SeqConfig& sizes, const Dataset& train, bool words, std::string name, std::uint64_t seed) {
  std::vector<std::string> source, target;
  for (const Example& example : train.examples) {
    source.insert(source.end(), example.source.begin(), example.source.end());
    target.insert(target.end(), example.target.begin(), example.target.end());
  }
  if (sizes.shared_vocabulary) {
    source.insert(source.end(), target.begin(), target.end());
    target = source;
  }
  Model model;
  model.name = std::move(name);
  model.words = words;
  model.source = Vocabulary(source);
  model.target = Vocabulary(target);
  model.config = sizes;
  model.make_network(seed);
  return model;
}

nlohmann::json config_json(const TrainingConfig& config) {
  return {{"epochs", config.epochs},
          {"batch", config.batch},
          {"schedule", static_cast<int>(config.schedule.kind)},
          {"peak", config.schedule.peak},
          {"warmup", config.schedule.warmup},
          {"beta1", config.adamw.beta1},
          {"beta2", config.adamw.beta2},
          {"epsilon", config.adamw.epsilon},
          {"weight_decay", config.adamw.weight_decay},
          {"smoothing", config.smoothing},
          {"clip", config.clip},
          {"seed", config.seed},
          {"dtype", dtype_name(config.dtype)}};
}

void check_config(const TrainingConfig& config) {
  if (config.batch < 1 || config.epochs < 1)
    throw ArgumentError("training: epochs and batch must be at least 1, got " + std::to_string(config.epochs) +
                        " and " + std::to_string(config.batch));
}

TrainingConfig config_from(const nlohmann::json& json) {
  TrainingConfig config;
  config.epochs = json.at("epochs");
  config.batch = json.at("batch");
  config.schedule.kind = static_cast<ScheduleKind>(json.at("schedule").get<int>());
  config.schedule.peak = json.at("peak");
  config.schedule.warmup = json.at("warmup");
  config.adamw.beta1 = json.at("beta1");
  config.adamw.beta2 = json.at("beta2");
  config.adamw.epsilon = json.at("epsilon");
  config.adamw.weight_decay = json.at("weight_decay");
  config.smoothing = json.at("smoothing");
  config.clip = json.at("clip");
  config.seed = json.at("seed");
  config.dtype = dtype_from_name(json.at("dtype"));
  check_config(config);
  return config;
}

}  // namespace

Trainer::Trainer(LockedFolder folder, const TrainingConfig& config, Model model, const Dataset& train,
                 const Dataset& dev)
    : folder_(std::move(folder)),
      config_(config),
      model_(std::move(model)),
      train_(encode_all(train, model_)),
      dev_(encode_all(dev, model_)),
      pictures_(train.picture),
      optimizer_(model_.network->parameters(), config.adamw),
      data_digest_(digest_of_both(train, dev, digest_version)) {
  check_config(config);
  check_kind(model_, train, dev);
  questions_ = model_.reads_pictures() ? picture_questions(model_, dev) : group_references(dev);
  if (model_.reads_pictures()) take_patches(dev_, dev, questions_);
  if (model_.reads_pictures()) texts_ = texts_of(train);
  const Index batches = (static_cast<Index>(train_.size()) + config.batch - 1) / config.batch;
  config_.schedule.total = batches * config.epochs;
}

Trainer::Trainer(LockedFolder folder, const TrainingConfig& config, const Seq2SeqConfig& sizes, const Dataset& train,
                 const Dataset& dev, bool words, std::string name)
    : Trainer(std::move(folder), config, fresh_model(sizes, train, words, std::move(name), config.seed), train, dev) {}

Trainer Trainer::resume(const std::string& folder, const Dataset& train, const Dataset& dev) {
  LockedFolder locked = LockedFolder::existing(folder);
  const std::string path = folder + "/training.json";
  const auto json = detail::read_json(path);
  auto [config, model] = read_state(path, [&] {
    check_data(json, folder, train, dev);
    return std::pair(config_from(json.at("training")), detail::model_from_json(json.at("model"), path));
  });
  // What is wrong from here to the next reading is wrong with the data.
  Trainer trainer(std::move(locked), config, std::move(model), train, dev);
  read_state(path, [&] {
    trainer.epoch_ = json.at("epoch");
    trainer.next_batch_ = json.at("next_batch");
    trainer.loss_sum_ = json.at("loss_sum");
    trainer.loss_tokens_ = json.at("loss_tokens");
    trainer.best_rate_ = json.at("best_rate");
    trainer.optimizer_.steps = json.at("steps");
    // Runs of earlier versions have one file of this name and say nothing.
    trainer.load_state(json.value("tensors", "training.safetensors"));
  });
  trainer.miss_lost_model();
  return trainer;
}

TsvOptions Trainer::data_options(const std::string& folder) {
  const std::string path = folder + "/training.json";
  const auto json = detail::read_json(path);
  return read_state(path, [&] {
    const auto& model = json.at("model");
    const auto longest = model.at("config").at("max_length").get<Index>();
    const bool pictures = model.at("config").contains("patches");
    return TsvOptions{.words = model.at("words").get<bool>(), .pictures = pictures, .longest = {longest, longest}};
  });
}

PatchSizes Trainer::picture_sizes(const std::string& folder) {
  const std::string path = folder + "/training.json";
  const auto json = detail::read_json(path);
  return read_state(path, [&] { return detail::model_from_json(json.at("model"), path).config.patches; });
}

// The best model of a checkpoint that says it saved one.
void Trainer::miss_lost_model() {
  if (best_rate_ < 0) return;
  for (const char* name : {"model.safetensors", "model.json"}) {
    const std::string path = folder_.path() + "/" + name;
    if (std::filesystem::exists(path)) continue;
    if (epoch_ >= config_.epochs)
      throw FileError(path + ": is gone, and all epochs are finished: nothing will write it again");
    best_rate_ = -1;
  }
}

void Trainer::refuse_divergence() const {
  const bool saved = std::filesystem::exists(folder_.path() + "/training.json");
  throw Error("training: the loss is no longer finite after " + std::to_string(optimizer_.steps) + " steps; " +
              (saved ? "the last checkpoint is whole, try a smaller learning rate"
                     : "nothing was saved yet, try a smaller learning rate"));
}

Tensor<float> Trainer::training_patches(Index example) const {
  try {
    return model_.patches(pictures_(example, static_cast<std::uint64_t>(epoch_)));
  } catch (const Error& error) {
    throw Error("training: picture of \"" + texts_[static_cast<std::size_t>(example)] + "\": " + error.what());
  }
}

Batch Trainer::training_batch(const std::vector<Index>& indices) const {
  if (!pictures_) return batch_of(train_, indices);
  std::vector<Encoded> drawn;
  for (Index i : indices) {
    drawn.push_back(train_[static_cast<std::size_t>(i)]);
    drawn.back().patches = training_patches(i);
  }
  std::vector<const Encoded*> examples;
  for (const Encoded& one : drawn) examples.push_back(&one);
  return make_batch(examples);
}

double Trainer::train_batch(const std::vector<Index>& indices, std::uint64_t step) {
  const Batch batch = training_batch(indices);
  Tape<float> tape(true, config_.seed * 0x2545F4914F6CDD1Du + step);
  const auto memory = model_.network->encode(tape, {batch.source, batch.patches});
  const auto logits = model_.network->decode(tape, memory, batch.source, batch.input);
  Tensor<float> gradient;
  const Loss loss = cross_entropy(logits->value, batch.target, Vocabulary::pad, config_.smoothing, &gradient);
  tape.backward(logits, std::move(gradient));
  const double norm = clip_gradients(optimizer_.parameters(), config_.clip);
  if (!std::isfinite(loss.sum) || !std::isfinite(norm)) refuse_divergence();
  optimizer_.step(config_.schedule.at(optimizer_.steps + 1));
  loss_sum_ += loss.sum;
  loss_tokens_ += static_cast<double>(loss.tokens);
  return loss.mean();
}

// Returns false when asked to stop on the way.
bool Trainer::train_epoch(const TrainingObserver& observer) {
  const auto batches = plan_batches(train_, config_.batch, config_.seed, static_cast<std::uint64_t>(epoch_));
  for (; next_batch_ < static_cast<Index>(batches.size());) {
    if (observer.stop && observer.stop->load()) return false;
    const auto start = Clock::now();
    const auto& indices = batches[static_cast<std::size_t>(next_batch_)];
    train_batch(indices, static_cast<std::uint64_t>(optimizer_.steps));
    ++next_batch_;
    run_seconds_ += seconds_since(start);
    run_examples_ += static_cast<Index>(indices.size());
    ++run_batches_;
    if (observer.progress)
      observer.progress({epoch_ + 1, config_.epochs, next_batch_, static_cast<Index>(batches.size()), run_examples_,
                         run_batches_, run_seconds_, loss_sum_ / loss_tokens_});
  }
  return true;
}

EpochReport Trainer::evaluate() {
  EpochReport report;
  report.epoch = epoch_ + 1;
  report.epochs = config_.epochs;
  report.train_loss = loss_sum_ / loss_tokens_;
  Loss total;
  for (const auto& indices : plan_batches(dev_, config_.batch, 0, 0)) {
    const Batch batch = batch_of(dev_, indices);
    Tape<float> tape;
    const auto memory = model_.network->encode(tape, {batch.source, batch.patches});
    const auto logits = model_.network->decode(tape, memory, batch.source, batch.input);
    const Loss loss = cross_entropy<float>(logits->value, batch.target, Vocabulary::pad, 0.0, nullptr);
    total.sum += loss.sum;
    total.tokens += loss.tokens;
  }
  report.dev_loss = total.mean();
  report.dev = evaluate_answers(model_, questions_, {});
  report.best = best_rate_ < 0 || report.dev.symbol_error_rate() < best_rate_;
  return report;
}

void Trainer::run(const TrainingObserver& observer, Index stop_after) {
  remove_leftovers(folder_.path());
  const KeepMemory keep;  // every step makes the same tensors
  const Index last = stop_after > 0 ? std::min(config_.epochs, epoch_ + stop_after) : config_.epochs;
  while (epoch_ < last) {
    const auto start = Clock::now();
    if (!train_epoch(observer)) return save_state();
    EpochReport report = evaluate();
    if (report.best) {
      best_rate_ = report.dev.symbol_error_rate();
      save_model(model_, folder_.path(), config_.dtype);
    }
    ++epoch_;
    next_batch_ = 0;
    loss_sum_ = loss_tokens_ = 0;
    save_epoch();
    report.seconds = seconds_since(start);
    if (observer.epoch) observer.epoch(report);
  }
}

void Trainer::save_tensors(const std::string& path) const {
  TensorFile file;
  const auto& parameters = optimizer_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    file.tensors["value." + parameters[i]->name] = any_tensor(parameters[i]->value);
    file.tensors["first." + parameters[i]->name] = any_tensor(optimizer_.first_moments[i]);
    file.tensors["second." + parameters[i]->name] = any_tensor(optimizer_.second_moments[i]);
  }
  file.metadata["steps"] = std::to_string(optimizer_.steps);
  write_safetensors(path, file);
}

// training.json, for a checkpoint whose tensors are in this file of the folder.
std::string Trainer::description(const std::string& tensors) const {
  return detail::json_text({{"model", detail::model_json(model_)},
                            {"training", config_json(config_)},
                            {"data", data_digest_},
                            {"digest_version", digest_version},
                            {"tensors", tensors},
                            {"epoch", epoch_},
                            {"next_batch", next_batch_},
                            {"loss_sum", loss_sum_},
                            {"loss_tokens", loss_tokens_},
                            {"best_rate", best_rate_},
                            {"steps", optimizer_.steps}});
}

// training.json goes last and in one piece: before that the checkpoint is the
// old one, after it the new one.
void Trainer::save_state() const {
  const std::string tensors = tensors_name(optimizer_.steps), path = folder_.path() + "/" + tensors;
  const bool saved_before = std::filesystem::exists(path);
  save_tensors(path);
  try {
    write_file(folder_.path() + "/training.json", description(tensors));
  } catch (const FileError&) {
    std::error_code failure;
    if (!saved_before) std::filesystem::remove(path, failure);
    throw;
  }
  remove_other_tensors(folder_.path(), tensors);
}

// A model without a run beside it could be neither gone on with nor replaced: it
// goes when the first checkpoint fails.
void Trainer::save_epoch() const {
  try {
    save_state();
  } catch (const FileError&) {
    std::error_code failure;
    if (!std::filesystem::exists(folder_.path() + "/training.json"))
      for (const char* name : {"model.safetensors", "model.json"})
        std::filesystem::remove(folder_.path() + "/" + name, failure);
    throw;
  }
}

void Trainer::load_state(const std::string& tensors) {
  const TensorFile file = read_safetensors(folder_.path() + "/" + tensors);
  const auto steps = file.metadata.find("steps");
  if (steps == file.metadata.end() || steps->second != std::to_string(optimizer_.steps))
    throw FileError(file.path + ": does not belong to training.json beside it");
  const auto& parameters = optimizer_.parameters();
  detail::load_parameters(file, "value.", parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, shape] = std::pair(parameters[i]->name, parameters[i]->value.shape());
    optimizer_.first_moments[i] = detail::load_tensor(file, "first." + name, shape);
    optimizer_.second_moments[i] = detail::load_tensor(file, "second." + name, shape);
  }
}

}  // namespace regard
