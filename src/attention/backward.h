// The work item of the streaming backward pass and what all items share.
#pragma once

#include <atomic>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "attention/panels.h"

namespace regard::detail {

// Keeps items in line: who adds to shared memory goes after all earlier items
// that add to the same place.
class Turnstile {
 public:
  static constexpr Index finished = std::numeric_limits<Index>::max();
  explicit Turnstile(Index items) : passed_(std::make_unique<std::atomic<Index>[]>(static_cast<std::size_t>(items))) {}
  // The item has done its first `steps` steps.
  void pass(Index item, Index steps) { at(item).store(steps, std::memory_order_release); }
  Index passed(Index item) const { return at(item).load(std::memory_order_acquire); }
  void wait(Index item, Index steps) const {
    while (passed(item) < steps) std::this_thread::yield();
  }

 private:
  std::atomic<Index>& at(Index item) const { return passed_[static_cast<std::size_t>(item)]; }
  std::unique_ptr<std::atomic<Index>[]> passed_;
};

// What a backward call reads and writes besides q, k and v.
struct BackwardViews {
  GradientViews gradients;
  InputView dout;
  AttendForward forward;
  View<const float, 3> dlse;  // may be left out
};
// The backward pass of a call that is not regrouped.
AttendGradients differentiate(Call& call, const BackwardViews& views);

struct BackwardState {
  InputView dout;
  AttendForward forward;
  View<const float, 3> dlse;  // may be left out
  OutputView dq, dk, dv;
  // Where dq collects over key blocks: its own memory when that holds floats.
  View<float, 4> dq_sums;
  // Where dbias collects: floats where every pair has an entry of its own,
  // doubles where entries are shared and sums are long. At most one is given.
  View<float, 4> dbias_dense;
  View<double, 4> dbias_shared;  // broadcast
  Tensor<float> lse;             // [batch, q_heads, q_len]
  Tensor<float> shared;          // [batch, q_heads, q_len]: dout . out - dlse
  Index key_blocks = 0;
  std::vector<Index> first_parameter;  // per modifier, offset into an item's sums
  Index parameters = 0;
  std::vector<double> sums;  // [items, parameters]
  std::unique_ptr<Turnstile> turnstile;

  std::span<double> parameter_sums(Index item, std::size_t modifier, Index count) {
    return {sums.data() + item * parameters + first_parameter[modifier], static_cast<std::size_t>(count)};
  }
};

struct BackwardBuffers {
  float *key_columns, *value_columns, *key_panels;
  float *dk, *dv, *dq;
  float *queries, *dout;
  float *weights, *gradients, *keep;
  std::uint8_t* scratch;
};

class BackwardBlock {
 public:
  BackwardBlock(const Call& call, BackwardState& state, Index item);
  ~BackwardBlock();
  BackwardBlock(const BackwardBlock&) = delete;
  BackwardBlock& operator=(const BackwardBlock&) = delete;
  void run();

 private:
  // Packed keys or values of the block.
  struct PackedKeys {
    const float* data;
    Index depth;
  };
  // Where rows of the chunk, times a tile of numbers, are added up for each key.
  struct KeySums {
    const float* rows;
    float* to;
    Index depth;
  };

  BackwardBuffers carve(Layout& layout);
  void pack_keys();
  void meet_chunk(const Spot& tile, const PanelCoverage& panels, Index step);
  bool take_chunk(const Spot& spot);
  void score_run(const Spot& tile, const PanelCoverage& panels, const SeenRun& run);
  void multiply_forward(const float* rows, const PackedKeys& keys, Index first, const kernels::Tile& tile) const;
  void pass_through_changes(const Spot& tile, const PanelCoverage& panels, const kernels::Tile& gradients);
  void add_transposed(const kernels::Tile& tile, const PanelCoverage& panels, const KeySums& sums, bool select) const;
  void multiply_keys(const kernels::Tile& gradients, const PanelCoverage& panels, bool select) const;
  void add_queries(const Spot& spot, Index step);
  template <class T>
  void add_tile(const View<T, 4>& dbias, const Spot& spot, const kernels::Tile& gradients) const;
  void add_bias_gradient(const Spot& spot, const kernels::Tile& gradients);
  void chain_modifiers(const Spot& spot, const kernels::Tile& gradients);
  void wait_for_earlier_blocks(Index step);
  void write(float* from, Index stride, const OutputView& to) const;

  const Call& call_;
  const kernels::Kernels& kernels_;
  BackwardState& state_;
  Index item_;
  Index oldest_open_ = 0;   // earlier items of this key head below it have finished
  Index bias_before_ = -1;  // the item whose share of dbias comes right before ours
  Index b_ = 0, kv_head_ = 0, key_ = 0, keys_ = 0;
  Index visible_keys_ = 0;  // keys of the block below the batch entry's length
  Index wide_depth_ = 0, wide_values_ = 0;
  bool keys_finite_ = true;
  BackwardBuffers memory_ = {};
  ModifierInputs inputs_;
};

}  // namespace regard::detail
