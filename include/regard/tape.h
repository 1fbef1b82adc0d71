// A small reverse-mode tape: layers compute forward and leave behind how to go
// back. Everything is a template over float (what models run) and double (what
// gradient checks run).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "regard/tensor.h"

namespace regard {

// A weight: its value, its gradient (same shape, kept between steps) and
// whether weight decay applies (matrices yes, biases and norms no).
template <class T>
struct Parameter {
  std::string name;
  Tensor<T> value;
  Tensor<T> gradient;
  bool decays = true;

  Parameter() = default;
  Parameter(std::string given_name, Shape shape, bool decay)
      : name(std::move(given_name)), value(shape), gradient(std::move(shape)), decays(decay) {}
};

template <class T>
using Parameters = std::vector<Parameter<T>*>;

// A value on the tape. `gradient` stays empty until something flows back.
template <class T>
struct Node {
  explicit Node(Tensor<T> v) : value(std::move(v)) {}
  Tensor<T> value;
  Tensor<T> gradient;
  bool wants_gradient = true;
};

template <class T>
using Var = std::shared_ptr<Node<T>>;

// One forward pass and its way back. With `training` off nothing is recorded
// and dropout does nothing; differentiating() records without dropout.
template <class T>
class Tape {
 public:
  // `seed` names the dropout masks of this pass: same seed, same masks.
  explicit Tape(bool training = false, std::uint64_t seed = 0)
      : recording_(training), dropping_(training), seed_(seed) {}

  // For gradients of what a model answers, instead of what it is trained on.
  static Tape differentiating() {
    Tape tape(true);
    tape.dropping_ = false;
    return tape;
  }

  bool recording() const { return recording_; }
  bool dropping() const { return dropping_; }
  Var<T> node(Tensor<T> value) const { return std::make_shared<Node<T>>(std::move(value)); }
  // A fresh seed for one dropout; counts up, so a pass draws the same again.
  std::uint64_t next_seed() { return seed_ * 0x9E3779B97F4A7C15u + ++dropouts_; }

  // `backward` adds to the gradients of its inputs; called in reverse order.
  void record(std::function<void()> backward) {
    if (recording_) steps_.push_back(std::move(backward));
  }
  // Starts from d(loss)/d(output) = `gradient` and runs everything back; each
  // step is dropped once it ran, so memory shrinks on the way.
  void backward(const Var<T>& output, Tensor<T> gradient) {
    output->gradient = std::move(gradient);
    while (!steps_.empty()) {
      auto step = std::move(steps_.back());
      steps_.pop_back();
      step();
    }
  }

 private:
  bool recording_, dropping_;
  std::uint64_t seed_;
  std::uint64_t dropouts_ = 0;
  std::vector<std::function<void()>> steps_;
};

}  // namespace regard
