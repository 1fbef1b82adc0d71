#include "regard/score.h"

#include <cmath>

#include "regard/error.h"

namespace regard {
namespace {

class SoftCap final : public ScoreModifier {
 public:
  explicit SoftCap(double cap) : exact_(cap), cap_(static_cast<float>(cap)) {}
  std::string name() const override { return "softcap"; }
  Kind kind() const override { return Kind::softcap; }
  float softcap_value() const override { return cap_; }

  bool apply(const ScoreTile<float>& tile, const TileOrigin&) const override {
    for (std::int32_t i = 0; i < tile.rows; ++i)
      for (std::int32_t j = 0; j < tile.keys; ++j) {
        float& score = tile.scores[i * tile.stride + j];
        score = cap_ * std::tanh(score / cap_);
      }
    return false;
  }
  double apply_one(double score, const Position&) const override { return exact_ * std::tanh(score / exact_); }
  bool differentiable() const override { return true; }
  void chain(const ScoreTile<float>& gradients, const float* scores, const TileOrigin&) const override {
    for (std::int32_t i = 0; i < gradients.rows; ++i)
      for (std::int32_t j = 0; j < gradients.keys; ++j) {
        const Index at = i * gradients.stride + j;
        const float capped = std::tanh(scores[at] / cap_);
        gradients.scores[at] *= 1.0f - capped * capped;
      }
  }
  double derivative_one(double score, const Position&) const override {
    const double capped = std::tanh(score / exact_);
    return 1.0 - capped * capped;
  }

 private:
  double exact_;  // for the reference
  float cap_;
};

class Alibi final : public ScoreModifier {
 public:
  explicit Alibi(std::span<const float> slopes) : slopes_(slopes.begin(), slopes.end()) {}
  std::string name() const override { return "alibi"; }
  Kind kind() const override { return Kind::alibi; }
  std::span<const float> slopes() const override { return slopes_; }

  bool apply(const ScoreTile<float>& tile, const TileOrigin& origin) const override {
    const float slope = slopes_[static_cast<std::size_t>(origin.head)];
    for (std::int32_t i = 0; i < tile.rows; ++i)
      for (std::int32_t j = 0; j < tile.keys; ++j)
        tile.scores[i * tile.stride + j] -= slope * static_cast<float>(std::abs(Position{origin, i, j}.distance()));
    return false;
  }
  double apply_one(double score, const Position& at) const override {
    return score - static_cast<double>(slopes_[static_cast<std::size_t>(at.head())]) * std::abs(at.distance());
  }
  bool differentiable() const override { return true; }
  void chain(const ScoreTile<float>&, const float*, const TileOrigin&) const override {}
  double derivative_one(double, const Position&) const override { return 1.0; }

  Index parameter_count() const override { return static_cast<Index>(slopes_.size()); }
  void add_parameter_gradient(const ScoreTile<const float>& gradients, const float*, const TileOrigin& origin,
                              std::span<double> sums) const override {
    double sum = 0;
    for (std::int32_t i = 0; i < gradients.rows; ++i)
      for (std::int32_t j = 0; j < gradients.keys; ++j)
        sum -= static_cast<double>(gradients.scores[i * gradients.stride + j]) *
               std::abs(Position{origin, i, j}.distance());
    sums[static_cast<std::size_t>(origin.head)] += sum;
  }
  void add_parameter_gradient_one(double gradient, double, const Position& at, std::span<double> sums) const override {
    sums[static_cast<std::size_t>(at.head())] -= gradient * std::abs(at.distance());
  }
  void check(const ScoreShape& shape) const override {
    if (static_cast<Index>(slopes_.size()) != shape.q_heads)
      throw ArgumentError("alibi: " + std::to_string(slopes_.size()) + " slopes but q has " +
                          std::to_string(shape.q_heads) + " heads");
  }

 private:
  std::vector<float> slopes_;
};

}  // namespace

ScoreModifiers softcap(double cap) {
  if (!(static_cast<float>(cap) > 0.0f) || !std::isfinite(static_cast<float>(cap)))
    throw ArgumentError("softcap: cap must be positive and finite, got " + std::to_string(cap));
  return ScoreModifiers(std::make_shared<SoftCap>(cap));
}

ScoreModifiers alibi(std::span<const float> slopes) { return ScoreModifiers(std::make_shared<Alibi>(slopes)); }

std::vector<float> alibi_slopes(Index heads) {
  if (heads < 1) throw ArgumentError("alibi_slopes: heads must be at least 1, got " + std::to_string(heads));
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto slope = [](double step, Index n) { return static_cast<float>(std::exp2(-step * static_cast<double>(n))); };
  std::vector<float> slopes;
  for (Index n = 1; n <= power; ++n) slopes.push_back(slope(8.0 / static_cast<double>(power), n));
  // The remaining heads take every other slope of the series for twice as many.
  for (Index n = 1; static_cast<Index>(slopes.size()) < heads; n += 2)
    slopes.push_back(slope(4.0 / static_cast<double>(power), n));
  return slopes;
}

}  // namespace regard
