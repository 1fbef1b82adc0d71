// Training a model of text or of pictures: batches by length, AdamW, checkpoints
// after every epoch, exact continuation.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "regard/locked_folder.h"
#include "regard/model.h"
#include "regard/optimizer.h"

namespace regard {

struct TrainingConfig {
  Index epochs = 30;       // the plan; the cosine schedule ends with it
  Index batch = 256;       // examples a step
  Schedule schedule = {};  // `total` is filled in from epochs and data
  AdamWConfig adamw = {};
  double smoothing = 0.1;
  double clip = 1.0;  // largest gradient norm
  std::uint64_t seed = 1;
  DType dtype = DType::f32;  // of the saved model
};

struct TrainingProgress {
  Index epoch = 0, epochs = 0;  // epoch counts from 1
  Index batch = 0, batches = 0;
  Index examples = 0;     // done in this run
  Index run_batches = 0;  // the same in batches
  double seconds = 0;     // of training in this run
  double loss = 0;        // mean over the epoch so far, nats a symbol
};

struct EpochReport {
  Index epoch = 0, epochs = 0;
  double train_loss = 0;
  double dev_loss = 0;  // without smoothing
  ErrorCounts dev;      // greedy
  double seconds = 0;   // training and evaluation
  bool best = false;
};

struct TrainingObserver {
  std::function<void(const TrainingProgress&)> progress = {};
  std::function<void(const EpochReport&)> epoch = {};
  const std::atomic<bool>* stop = nullptr;  // becomes true: finish the step, save, return
};

// One training run in a folder: model.safetensors + model.json are the best
// model so far (lowest symbol error rate on the development set), training.json
// and the training-STEPS.safetensors it names everything needed to go on. A
// checkpoint is complete once training.json is; a kill or a full disk before
// that leaves the one before. The folder is held against other runs.
class Trainer {
 public:
  // A fresh run. Vocabularies come from `train`. Pictures (sizes.patches and
  // Dataset::picture, both or neither) are made for every batch of training anew,
  // those of `dev` once. Throws FileError when another run holds the folder,
  // ArgumentError for examples the model can't take, among them pictures of `dev`;
  // pictures of `train` are first made in run(): whoever reads them from files checks
  // them before (TsvOptions::check).
  Trainer(LockedFolder folder, const TrainingConfig& config, const Seq2SeqConfig& sizes, const Dataset& train,
          const Dataset& dev, bool words, std::string name);
  // Goes on where the run in `folder` stopped. Throws FileError when there is
  // none, when another run holds the folder, when the data (of pictures, their files
  // too) is not what it was trained on, or when all epochs are finished and their best model is gone.
  // Before the last epoch a best model that is gone is written again: by the next
  // epoch, whatever its rate.
  static Trainer resume(const std::string& folder, const Dataset& train, const Dataset& dev);

  // How the data of the run in `folder` must be read before resume.
  static TsvOptions data_options(const std::string& folder);
  // Of the pictures that the run reads; height 0: it reads text.
  static PatchSizes picture_sizes(const std::string& folder);

  // Trains up to the end of the plan, or `stop_after` epochs of this call (0:
  // all). A run in pieces ends with the same bytes as one in a single piece, at
  // an equal number of threads and any interruption. First removes what a
  // killed run left half written in the folder. Throws Error when the loss is no
  // longer finite, and for a picture that can't be made or read, naming its example;
  // the last checkpoint is whole.
  void run(const TrainingObserver& observer, Index stop_after = 0);

  const TrainingConfig& config() const { return config_; }
  Index finished_epochs() const { return epoch_; }
  Model& model() { return model_; }

 private:
  Trainer(LockedFolder folder, const TrainingConfig& config, Model model, const Dataset& train, const Dataset& dev);
  Tensor<float> training_patches(Index example) const;
  Batch training_batch(const std::vector<Index>& indices) const;
  double train_batch(const std::vector<Index>& indices, std::uint64_t step);
  bool train_epoch(const TrainingObserver& observer);
  EpochReport evaluate();
  void save_tensors(const std::string& path) const;
  std::string description(const std::string& tensors) const;
  [[noreturn]] void refuse_divergence() const;
  void miss_lost_model();
  void save_state() const;
  void save_epoch() const;
  void load_state(const std::string& tensors);

  LockedFolder folder_;
  TrainingConfig config_;
  Model model_;
  std::vector<Encoded> train_, dev_;
  PictureMaker pictures_;           // of train_, by epoch
  std::vector<std::string> texts_;  // of train_, where it has pictures
  std::vector<Question> questions_;
  AdamW<float> optimizer_;
  std::string data_digest_;

  Index epoch_ = 0;                           // finished epochs
  Index next_batch_ = 0;                      // within the epoch under way
  double loss_sum_ = 0, loss_tokens_ = 0;     // of the epoch under way
  double best_rate_ = -1;                     // symbol error rate of the saved model; negative: none yet
  Index run_examples_ = 0, run_batches_ = 0;  // of this process, for speed
  double run_seconds_ = 0;
};

}  // namespace regard
