// Trace: what one run of a model recorded about its attention. Models record
// into it; views draw from it; neither knows the other.
#pragma once

#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard {

// Which attention of the Transformer a map belongs to.
enum class AttentionKind { encoder, decoder, cross };

// "encoder self-attention", "decoder self-attention", "cross-attention".
const char* kind_title(AttentionKind kind);
// "encoder", "decoder", "cross"; the other way throws ArgumentError.
const char* kind_name(AttentionKind kind);
AttentionKind kind_from_name(const std::string& name);

// All heads of one attention layer.
struct AttentionMap {
  AttentionKind kind = AttentionKind::encoder;
  Index layer = 0;
  Tensor<float> weights;         // [heads, q_len, kv_len], after softmax, before dropout
  Tensor<float> entropy;         // [heads, q_len], nats
  Tensor<std::uint8_t> visible;  // [q_len, kv_len], 1 = may attend; empty: everything visible
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

  // Labels of a map's axes: queries down, keys across.
  const std::vector<std::string>& query_labels(AttentionKind kind) const;
  const std::vector<std::string>& key_labels(AttentionKind kind) const;
  // Null when there is none.
  const AttentionMap* find(AttentionKind kind, Index layer) const;
  // Layers of this kind, 0 when nothing was recorded.
  Index layers(AttentionKind kind) const;
};

// PATH.safetensors holds the tensors, PATH.json the labels and the list of
// maps. Throws FileError.
void save_trace(const Trace& trace, const std::string& path);
Trace load_trace(const std::string& path);

}  // namespace regard
