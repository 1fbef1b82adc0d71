// The benchmark's case table: shapes and compositions with stable names, each
// measured against this machine's own FMA peak and read bandwidth. The same
// cases, shrunk, are tested against the double-precision reference.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "regard/attend.h"

namespace regard {

// observe_rows: forward with log-sum-exp, entropy and row maximum. observe_all:
// with every observer but the full weights: also the distance, 8 top keys, mass
// by key and by offset, the map pooled to 64 x 64, two whole rows of weights.
enum class BenchKind { forward, backward, decode, observe_rows, observe_all };

// What comes between q . k and the softmax.
enum class BenchVariant {
  plain,
  causal,
  window,     // causal, 256 keys
  documents,  // of 512 tokens
  padding,    // the second half of the keys of every batch entry
  boolean,    // a [q_len, kv_len] tensor with everything visible
  bias,       // an additive bias [1, heads, q_len, kv_len]
  dropout,    // p = 0.1
  softcap,
  alibi,
  user  // the formula of ALiBi as a user's own modifier
};

struct BenchCase {
  std::string name;  // "causal/n2048/d64/f32"
  BenchKind kind = BenchKind::forward;
  BenchVariant variant = BenchVariant::plain;
  Index batch = 1, q_heads = 8, kv_heads = 8, q_len = 0, kv_len = 0, head_dim = 64, value_dim = 64;
  // What q, k, v and the gradients are stored in; i8 stands for keys and values
  // only, beside float queries.
  DType storage = DType::f32;
};

// Every case, in the order of the report. Names never change their meaning.
const std::vector<BenchCase>& bench_cases();

// The same composition at most `length` long, with at most two batch entries
// and four heads: small enough for the reference.
BenchCase shrunk(const BenchCase& full, Index length);

// Inputs and options of a case. Movable, not copyable; options point into it.
class BenchProblem {
 public:
  explicit BenchProblem(const BenchCase& which);
  // What is timed: writes into memory that was there before, so that fresh
  // pages are not part of the figure.
  void run();
  double visible_pairs() const { return visible_pairs_; }
  // Floating-point operations of one run: 4 * pairs * head_dim forward and 10
  // backward (for value_dim = head_dim).
  double operations() const;
  // Bytes of k, v, q and out that one run has to read or write.
  double bytes() const;
  const AttendOptions& options() const { return options_; }
  InputView q() const { return q_.view(); }
  InputView k() const { return k_[turn_].view(); }
  InputView v() const { return v_[turn_].view(); }
  InputView dout() const { return dout_.view(); }

 private:
  void set_options();
  void count_pairs();

  // A tensor of one of the storage types; the others stay empty.
  struct Stored {
    Tensor<float> f32;
    Tensor<BFloat16> bf16;
    Tensor<Float16> f16;
    Quantized i8;
    InputView view() const;
    OutputView output();
  };
  static Stored stored(const Tensor<float>& numbers, DType storage);

  BenchCase case_;
  DType type_;  // of everything but k and v
  Tensor<float> bias_;
  Stored q_, out_, dout_, dq_, dk_, dv_;
  // Decoding reads other copies every run: what stays in a cache is not read
  // from memory.
  std::vector<Stored> k_, v_;
  std::size_t turn_ = 0;
  Tensor<std::uint8_t> allowed_;
  std::vector<Index> lengths_;
  AttendOptions options_;
  Tensor<float> lse_;
  double visible_pairs_ = 0;
};

// Figures of this machine with threads() threads, measured.
struct BenchMachine {
  std::string cpu, isa;
  int threads = 1;
  double peak_gflops = 0;
  double read_gbs = 0;
};
BenchMachine measure_machine();

struct BenchResult {
  std::string name;
  double ms = 0;
  double gflops = 0;                // of visible pairs
  double percent_of_peak = 0;       // gflops over the machine's peak
  double percent_of_bandwidth = 0;  // bytes over time, over the machine's read bandwidth
  Index workspace_bytes = 0;
  Index skipped_blocks = 0;  // tiles of scores that nobody computes
  std::string kernel;
};
// The best of several runs within about `seconds`.
BenchResult measure_case(const BenchCase& which, const BenchMachine& machine, double seconds);

}  // namespace regard
