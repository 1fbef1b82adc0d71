// Score modifiers: functions of (score, position) between q.k and the softmax.
//
// A modifier is a small struct:
//
//   struct Recency {
//     float rate;
//     float operator()(float score, const regard::Position& at) const {
//       return score - rate * static_cast<float>(at.distance());
//     }
//     float derivative(float, const regard::Position&) const { return 1.0f; }
//   };
//   regard::attend(q, k, v, {.score = Recency{0.1f}});
//
// It is erased once per tile, never per score: the loop over the tile is
// compiled with the modifier inlined, and runs in the same kernel as the
// built-in ones. A result of -inf hides the pair.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "regard/view.h"

namespace regard {

// Where a tile of scores lies. Positions: see semantics of q_start in attend.h.
struct TileOrigin {
  Index batch = 0;
  Index head = 0;   // query head
  Index row = 0;    // row of the tile's first query
  Index query = 0;  // absolute position of the tile's first query
  Index key = 0;    // absolute position of the tile's first key
};

// One pair inside a tile; offsets are 32-bit so that loops over it vectorise.
struct Position {
  const TileOrigin& tile;
  std::int32_t i;  // row within the tile
  std::int32_t j;  // key within the tile

  Index batch() const { return tile.batch; }
  Index head() const { return tile.head; }
  Index row() const { return tile.row + i; }
  Index query() const { return tile.query + i; }
  Index key() const { return tile.key + j; }
  // query - key, in 32 bits: with modifiers, attend refuses |q_start| + q_len + kv_len of 2^31 and more.
  std::int32_t distance() const { return static_cast<std::int32_t>(tile.query - tile.key) + i - j; }
};

// A tile of numbers, row-major with `stride` elements between rows.
template <class T>
struct ScoreTile {
  T* scores;
  Index stride;
  std::int32_t rows;
  std::int32_t keys;
};

// Of all scores of a call.
struct ScoreShape {
  Index batch = 0;
  Index q_heads = 0;
  Index q_len = 0;
  Index kv_len = 0;
};

// What a modifier looks like once its type is erased; one virtual call a tile.
// float is what the kernels run, double the reference.
class ScoreModifier {
 public:
  virtual ~ScoreModifier() = default;
  virtual std::string name() const = 0;
  // Built-in modifiers that the kernels have vector code for; `user` runs apply.
  enum class Kind { softcap, alibi, user };
  virtual Kind kind() const { return Kind::user; }
  virtual float softcap_value() const { return 0; }             // Kind::softcap only
  virtual std::span<const float> slopes() const { return {}; }  // Kind::alibi only

  // Replaces every score; returns true if any result is -inf.
  virtual bool apply(const ScoreTile<float>& tile, const TileOrigin& origin) const = 0;
  virtual double apply_one(double score, const Position& at) const = 0;

  virtual bool differentiable() const = 0;
  // gradients *= d(result)/d(score), as a function of the input score.
  virtual void chain(const ScoreTile<float>& gradients, const float* scores, const TileOrigin& origin) const = 0;
  virtual double derivative_one(double score, const Position& at) const = 0;

  // Parameters with gradients of their own (ALiBi: one slope a head).
  virtual Index parameter_count() const { return 0; }
  // sums[p] += gradient of pair * d(result)/d(parameter p), over the tile.
  virtual void add_parameter_gradient(const ScoreTile<const float>&, const float*, const TileOrigin&,
                                      std::span<double>) const {}
  virtual void add_parameter_gradient_one(double, double, const Position&, std::span<double>) const {}
  // Throws ArgumentError when the modifier does not fit (ALiBi: slopes per head).
  virtual void check(const ScoreShape& /*shape*/) const {}
};

namespace detail {

template <class M, class T>
concept HasDerivative = requires(const M& m, T score, const Position& at) {
  { m.derivative(score, at) } -> std::convertible_to<T>;
};
template <class M>
concept HasParameters = requires(const M& m, float score, float gradient, const Position& at, std::span<double> sums) {
  { m.parameter_count() } -> std::convertible_to<Index>;
  m.add_parameter_gradient(gradient, score, at, sums);
};

template <class M>
class ErasedModifier final : public ScoreModifier {
 public:
  explicit ErasedModifier(M modifier) : modifier_(std::move(modifier)) {}

  std::string name() const override {
    if constexpr (requires { std::string(M::name); })
      return M::name;
    else
      return "user modifier";
  }
  bool apply(const ScoreTile<float>& tile, const TileOrigin& origin) const override {
    float smallest = 0;
    for (std::int32_t i = 0; i < tile.rows; ++i) {
      float* row = tile.scores + i * tile.stride;
      for (std::int32_t j = 0; j < tile.keys; ++j) {
        row[j] = modifier_(row[j], Position{origin, i, j});
        smallest = row[j] < smallest ? row[j] : smallest;
      }
    }
    return smallest == -std::numeric_limits<float>::infinity();
  }
  // A modifier that also takes double is evaluated in double by the reference.
  double apply_one(double score, const Position& at) const override {
    if constexpr (std::is_same_v<decltype(modifier_(score, at)), double>)
      return modifier_(score, at);
    else
      return static_cast<double>(modifier_(static_cast<float>(score), at));
  }
  bool differentiable() const override { return HasDerivative<M, float>; }
  void chain(const ScoreTile<float>& gradients, const float* scores, const TileOrigin& origin) const override {
    if constexpr (HasDerivative<M, float>)
      for (std::int32_t i = 0; i < gradients.rows; ++i)
        for (std::int32_t j = 0; j < gradients.keys; ++j) {
          const Index at = i * gradients.stride + j;
          // A gradient of 0 stays 0: hidden pairs pass nothing on, whatever their score.
          const float slope = modifier_.derivative(scores[at], Position{origin, i, j});
          gradients.scores[at] = gradients.scores[at] == 0.0f ? 0.0f : gradients.scores[at] * slope;
        }
  }
  double derivative_one(double score, const Position& at) const override {
    if constexpr (HasDerivative<M, float>) {
      if constexpr (std::is_same_v<decltype(modifier_.derivative(score, at)), double>)
        return modifier_.derivative(score, at);
      else
        return static_cast<double>(modifier_.derivative(static_cast<float>(score), at));
    }
    return 0;
  }
  Index parameter_count() const override {
    if constexpr (HasParameters<M>)
      return modifier_.parameter_count();
    else
      return 0;
  }
  void add_parameter_gradient(const ScoreTile<const float>& gradients, const float* scores, const TileOrigin& origin,
                              std::span<double> sums) const override {
    if constexpr (HasParameters<M>)
      for (std::int32_t i = 0; i < gradients.rows; ++i)
        for (std::int32_t j = 0; j < gradients.keys; ++j) {
          const Index at = i * gradients.stride + j;
          if (gradients.scores[at] != 0.0f)
            modifier_.add_parameter_gradient(gradients.scores[at], scores[at], Position{origin, i, j}, sums);
        }
  }
  void add_parameter_gradient_one(double gradient, double score, const Position& at,
                                  std::span<double> sums) const override {
    if constexpr (HasParameters<M>)
      modifier_.add_parameter_gradient(static_cast<float>(gradient), static_cast<float>(score), at, sums);
  }

 private:
  M modifier_;
};

}  // namespace detail

template <class M>
concept ModifierStruct = requires(const M& m, float score, const Position& at) {
  { m(score, at) } -> std::convertible_to<float>;
};

// A chain of modifiers, applied left to right. `a + b` appends.
class ScoreModifiers {
 public:
  ScoreModifiers() = default;
  explicit ScoreModifiers(std::shared_ptr<const ScoreModifier> modifier) : chain_{std::move(modifier)} {}
  template <ModifierStruct M>
  ScoreModifiers(M modifier)  // NOLINT: implicit on purpose
      : chain_{std::make_shared<detail::ErasedModifier<M>>(std::move(modifier))} {}

  const std::vector<std::shared_ptr<const ScoreModifier>>& chain() const { return chain_; }
  bool empty() const { return chain_.empty(); }
  friend ScoreModifiers operator+(ScoreModifiers a, const ScoreModifiers& b) {
    a.chain_.insert(a.chain_.end(), b.chain_.begin(), b.chain_.end());
    return a;
  }

 private:
  std::vector<std::shared_ptr<const ScoreModifier>> chain_;
};

// cap * tanh(score / cap); cap > 0. Stands first in a chain, or is refused.
// Source: Gemma 2 (2024).
ScoreModifiers softcap(double cap);

// score - slope[head] * |query - key|; slopes [q_heads], copied. They get
// gradients. Source: Press, Smith, Lewis, "Train short, test long", ICLR 2022.
ScoreModifiers alibi(std::span<const float> slopes);

// The published slopes for any number of heads (powers of two, and the
// authors' interleaving for the rest): 3 heads give 2^-4, 2^-8, 2^-2.
std::vector<float> alibi_slopes(Index heads);

}  // namespace regard
