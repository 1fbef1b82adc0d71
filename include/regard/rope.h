// Rotary positions (RoPE): each pair of elements of a query or key turns by an
// angle that grows with its position, so that q . k depends on distance only.
//
//   const auto table = regard::rope_table<float>(regard::rope_frequencies(64), positions);
//   regard::rotate(q, q, table);   // in place, before attend; the same for k
//
// Source: Su et al., "RoFormer: enhanced Transformer with rotary position
// embedding", 2021. Angles are computed in double; only their cosines and sines
// are rounded.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

// Which elements of a head turn together, for R = 2 * pairs rotated elements:
// half_split (k, k + R/2), as Llama and GPT-NeoX do; interleaved (2k, 2k + 1),
// as the paper does. A model trained one way needs that way.
enum class RopePairing { half_split, interleaved };

// Pair k of position p turns by p * inverse[k] radians. Elements beyond
// 2 * inverse.size() of a head pass unchanged (partial rotation).
struct RopeFrequencies {
  std::vector<double> inverse;
  double factor = 1.0;  // cosines and sines are multiplied by it (YaRN's attention factor)
  Index rotary_dim() const { return 2 * static_cast<Index>(inverse.size()); }
};

// inverse[k] = base^(-2k / rotary_dim). Give the rotated part, not the head's
// size. Throws ArgumentError for an odd or negative rotary_dim, or base <= 0.
RopeFrequencies rope_frequencies(Index rotary_dim, double base = 10000.0);

// Pairs over the whole head, of which only the first rotary_dim / 2 turn:
// base^(-2k / head_dim), then zeros ("proportional" partial rotation, which
// pairs k with k + head_dim / 2).
RopeFrequencies rope_proportional(Index head_dim, Index rotary_dim, double base = 10000.0);

// Longer inputs than a model was trained on, by positions that move closer:
// every frequency divided by `factor`. Source: Chen et al., "Extending context
// window of large language models via positional interpolation", 2023.
RopeFrequencies rope_linear(RopeFrequencies frequencies, double factor);

// A larger base for inputs longer than `trained_length`:
// base * (factor * length / trained - (factor - 1))^(R / (R - 2)); unchanged up
// to the trained length. Source: "dynamic NTK-aware scaling", 2023, as in
// published checkpoints.
struct DynamicNtk {
  double factor = 1.0;
  Index trained_length = 0;
  Index length = 0;  // of this input, cached positions included
};
RopeFrequencies rope_dynamic_ntk(Index rotary_dim, double base, const DynamicNtk& scaling);

// Fast pairs keep their frequency, slow ones are divided by `factor`, with a
// ramp between. The attention factor is `attention_factor` where given; else
// the ratio of the two mscale terms where both are given; else
// 0.1 ln(factor) + 1. Source: Peng et al., "YaRN", ICLR 2024.
struct Yarn {
  double factor = 1.0;
  Index trained_length = 0;
  double beta_fast = 32.0, beta_slow = 1.0;  // turns over the trained length where the ramp begins and ends
  bool truncate = true;                      // ramp ends rounded outwards to whole pairs
  std::optional<double> attention_factor = {};
  std::optional<double> mscale = {}, mscale_all_dim = {};
};
RopeFrequencies rope_yarn(Index rotary_dim, double base, const Yarn& scaling);

// Wavelengths above trained_length / low_frequency_factor are divided by
// `factor`, those below trained_length / high_frequency_factor kept, with a
// smooth step between. Source: Llama 3.1 (2024).
struct Llama3Scaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;
  Index trained_length = 8192;
};
RopeFrequencies rope_llama3(RopeFrequencies frequencies, const Llama3Scaling& scaling);

// Cosines and sines, times RopeFrequencies::factor: [batch or 1, seq, pairs].
template <class T>
struct RopeTable {
  Tensor<T> cosines, sines;
};

// positions [batch or 1, seq], any integers.
template <class T>
RopeTable<T> rope_table(const RopeFrequencies& frequencies, View<const std::int64_t, 2> positions);
// Positions first, first + 1, ... of every batch entry: [1, count, pairs].
template <class T>
RopeTable<T> rope_table(const RopeFrequencies& frequencies, Index first, Index count);

// out = x [batch, heads, seq, head_dim] with its pairs turned; any strides. out
// may be x itself; else the two must not overlap. Throws ArgumentError where the
// table's batch or seq is not x's, or its pairs need more than head_dim.
template <class T>
void rotate(std::type_identity_t<View<T, 4>> out, std::type_identity_t<View<const T, 4>> x, const RopeTable<T>& table,
            RopePairing pairing = RopePairing::half_split);

// The exact backward pass of `rotate` (turns back): dx from dout. With factor 1
// it is also the inverse.
template <class T>
void rotate_back(std::type_identity_t<View<T, 4>> dx, std::type_identity_t<View<const T, 4>> dout,
                 const RopeTable<T>& table, RopePairing pairing = RopePairing::half_split);

// Positions of left- or right-padded tokens: real ones (id != pad) count 0, 1,
// ... from the first real one on, and padded ones stand at 0. ids [batch, seq].
Tensor<std::int64_t> token_positions(View<const std::int64_t, 2> ids, std::int64_t pad);

}  // namespace regard
