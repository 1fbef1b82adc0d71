// Trace: what one run of a model recorded about its attention. Models record
// into it; views draw from it; neither knows the other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regard/patterns.h"
#include "regard/tensor.h"

namespace regard {

// Which attention of the Transformer a map belongs to.
enum class AttentionKind { encoder, decoder, cross };

// "encoder self-attention", "decoder self-attention", "cross-attention".
const char* kind_title(AttentionKind kind);
// "encoder", "decoder", "cross"; the other way throws ArgumentError.
const char* kind_name(AttentionKind kind);
AttentionKind kind_from_name(const std::string& name);

// What the numbers of a trace's maps are: attention weights, as models record
// them; the size of what each key contributes (contributions.h), as shares of its
// row's sum; or rollout (rollout.h).
enum class MapQuantity { weights, norms, rollout };

// "attention weights", "contribution norms", "attention rollout".
const char* quantity_title(MapQuantity quantity);
// One number of them: "attention weight", "share of the contributions", "share of the rollout".
const char* quantity_unit(MapQuantity quantity);
// "weights", "norms", "rollout"; the other way throws ArgumentError.
const char* quantity_name(MapQuantity quantity);
MapQuantity quantity_from_name(const std::string& name);

// All heads of one attention layer.
struct AttentionMap {
  AttentionKind kind = AttentionKind::encoder;
  Index layer = 0;
  Tensor<float> weights = {};         // [heads, q_len, kv_len], after softmax, before dropout; empty: not recorded
  Tensor<float> entropy = {};         // [heads, q_len], nats
  Tensor<std::uint8_t> visible = {};  // [q_len, kv_len], 1 = may attend; empty: everything visible
  // Norms: what all heads together contribute, [q_len, kv_len], instead of their mean.
  Tensor<float> joint = {};
  std::vector<HeadPattern> patterns = {};  // one a head, where they were named while the model ran
};

// The picture that source tokens are patches of: column of patches after column,
// each from top to bottom; the last column may reach beyond the picture.
struct PatchedPicture {
  Tensor<float> pixels = {};  // [height, width], 0 (black) to 1 (white)
  Index patch_height = 0, patch_width = 0;

  Index rows() const { return pixels.size(0) / patch_height; }  // of patches
  Index columns() const { return (pixels.size(1) + patch_width - 1) / patch_width; }
};

struct Trace {
  std::string model;                // name for captions
  std::vector<std::string> source;  // token labels of the encoder's side
  // The decoder's inputs, one a query row (begins with the start symbol), and
  // the symbol each row went on to produce: rows of decoder maps are read as
  // "while producing produced[i]".
  std::vector<std::string> target;
  std::vector<std::string> produced;
  std::vector<AttentionMap> maps;
  MapQuantity quantity = MapQuantity::weights;
  std::optional<PatchedPicture> picture = {};  // where the source was one
  // `produced` without its end, as people read it; "" where nothing was produced.
  std::string answer = {};

  // Labels of a map's axes: queries down, keys across.
  const std::vector<std::string>& query_labels(AttentionKind kind) const;
  const std::vector<std::string>& key_labels(AttentionKind kind) const;
  // Null when there is none.
  const AttentionMap* find(AttentionKind kind, Index layer) const;
  // Layers of this kind, 0 when nothing was recorded.
  Index layers(AttentionKind kind) const;
};

// Lengths, separators and segments of a kind's maps, by the trace's labels.
// Encoder and decoder positions are those of the tokens; in cross-attention
// query i stands beside key i. Everything is visible.
PatternSetting pattern_setting(const Trace& trace, AttentionKind kind);

// Patterns of every head of every recorded layer of a kind.
struct LayerPatterns {
  Index layer = 0;
  std::vector<HeadPattern> heads;
};
struct PatternGrid {
  AttentionKind kind = AttentionKind::encoder;
  std::string model;
  Index q_len = 0, kv_len = 0;
  std::vector<std::string> keys;  // labels, for what vertical scores are about
  std::vector<LayerPatterns> layers;
  PatternOptions options = {};
};
// As recorded where the run named them, else from the weights. Throws
// ArgumentError when the trace holds none of this kind, or a map without both.
PatternGrid pattern_grid(const Trace& trace, AttentionKind kind, const PatternOptions& options = {});

// PATH.safetensors holds the tensors, PATH.json the labels and the list of
// maps (patterns are named anew from the weights). Throws FileError, also for a
// map without weights or with one that is not 0 to 1 (beyond rounding), and for a trace
// of anything but weights.
void save_trace(const Trace& trace, const std::string& path);
Trace load_trace(const std::string& path);

}  // namespace regard
