// Frequencies of rotary positions and their scalings for longer inputs.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "regard/error.h"
#include "regard/rope.h"

namespace regard {
namespace {

[[noreturn]] void refuse(const char* call, const std::string& what) {
  throw ArgumentError(std::string(call) + ": " + what);
}

void check_base(const char* call, Index rotary_dim, double base) {
  if (rotary_dim < 0 || rotary_dim % 2 != 0)
    refuse(call, "rotary_dim must be even and not negative, got " + std::to_string(rotary_dim));
  if (!(base > 0) || !std::isfinite(base))
    refuse(call, "base must be positive and finite, got " + std::to_string(base));
}

void check_positive(const char* call, const char* name, double value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse(call, std::string(name) + " must be positive and finite, got " + std::to_string(value));
}

// The pair (not a whole number) that turns `turns` times over the trained length.
double pair_of_turns(double turns, Index rotary_dim, double base, Index length) {
  return static_cast<double>(rotary_dim) * std::log(static_cast<double>(length) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

double yarn_attention_factor(const Yarn& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale && scaling.mscale_all_dim)
    return yarn_mscale(scaling.factor, *scaling.mscale) / yarn_mscale(scaling.factor, *scaling.mscale_all_dim);
  return yarn_mscale(scaling.factor, 1.0);
}

}  // namespace

RopeFrequencies rope_frequencies(Index rotary_dim, double base) {
  return rope_proportional(rotary_dim, rotary_dim, base);
}

RopeFrequencies rope_proportional(Index head_dim, Index rotary_dim, double base) {
  check_base("rope_frequencies", rotary_dim, base);
  check_base("rope_frequencies", head_dim, base);
  if (rotary_dim > head_dim)
    refuse("rope_frequencies",
           "rotary_dim " + std::to_string(rotary_dim) + " exceeds head_dim " + std::to_string(head_dim));
  RopeFrequencies frequencies;
  for (Index k = 0; k < head_dim / 2; ++k)
    frequencies.inverse.push_back(
        k < rotary_dim / 2 ? std::pow(base, -2.0 * static_cast<double>(k) / static_cast<double>(head_dim)) : 0.0);
  return frequencies;
}

RopeFrequencies rope_linear(RopeFrequencies frequencies, double factor) {
  check_positive("rope_linear", "factor", factor);
  for (double& inverse : frequencies.inverse) inverse /= factor;
  return frequencies;
}

RopeFrequencies rope_dynamic_ntk(Index rotary_dim, double base, const DynamicNtk& scaling) {
  check_base("rope_dynamic_ntk", rotary_dim, base);
  check_positive("rope_dynamic_ntk", "factor", scaling.factor);
  check_positive("rope_dynamic_ntk", "trained_length", static_cast<double>(scaling.trained_length));
  if (scaling.length <= scaling.trained_length || rotary_dim <= 2) return rope_frequencies(rotary_dim, base);
  const double stretch =
      scaling.factor * static_cast<double>(scaling.length) / static_cast<double>(scaling.trained_length) -
      (scaling.factor - 1);
  const double dim = static_cast<double>(rotary_dim);
  return rope_frequencies(rotary_dim, base * std::pow(stretch, dim / (dim - 2)));
}

RopeFrequencies rope_yarn(Index rotary_dim, double base, const Yarn& scaling) {
  check_base("rope_yarn", rotary_dim, base);
  check_positive("rope_yarn", "factor", scaling.factor);
  check_positive("rope_yarn", "trained_length", static_cast<double>(scaling.trained_length));
  check_positive("rope_yarn", "beta_fast", scaling.beta_fast);
  check_positive("rope_yarn", "beta_slow", scaling.beta_slow);
  if (base == 1.0) refuse("rope_yarn", "base 1 gives every pair the same frequency: there is nothing to ramp over");
  double first = pair_of_turns(scaling.beta_fast, rotary_dim, base, scaling.trained_length);
  double last = pair_of_turns(scaling.beta_slow, rotary_dim, base, scaling.trained_length);
  if (scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(rotary_dim) - 1);
  if (first == last) last += 0.001;  // a step instead of a ramp
  RopeFrequencies frequencies = rope_frequencies(rotary_dim, base);
  for (std::size_t k = 0; k < frequencies.inverse.size(); ++k) {
    const double slow = std::clamp((static_cast<double>(k) - first) / (last - first), 0.0, 1.0);
    frequencies.inverse[k] *= slow / scaling.factor + (1 - slow);
  }
  frequencies.factor = yarn_attention_factor(scaling);
  return frequencies;
}

RopeFrequencies rope_llama3(RopeFrequencies frequencies, const Llama3Scaling& scaling) {
  check_positive("rope_llama3", "factor", scaling.factor);
  check_positive("rope_llama3", "low_frequency_factor", scaling.low_frequency_factor);
  check_positive("rope_llama3", "trained_length", static_cast<double>(scaling.trained_length));
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  if (!(high > low))
    refuse("rope_llama3", "high_frequency_factor " + std::to_string(high) + " must exceed low_frequency_factor " +
                              std::to_string(low));
  for (double& inverse : frequencies.inverse) {
    // Turns over the trained length: fewer than `low` are slow, more than `high` fast.
    const double turns = static_cast<double>(scaling.trained_length) * inverse / (2 * std::numbers::pi);
    const double fast = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    inverse *= (1 - fast) / scaling.factor + fast;
  }
  return frequencies;
}

}  // namespace regard
