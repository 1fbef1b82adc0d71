// ONNX operators by their own conventions, on top of regard's attention.
//
//   auto outputs = regard::onnx::run({.op = "Attention", .opset = 23}, {{"Q", q}, {"K", k}, {"V", v}});
//
// Inputs and outputs carry the operator's formal names. Source: the ONNX
// operator specification: Attention-23, -24 and -25, RotaryEmbedding-23,
// LinearAttention-27.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "regard/dtype.h"

namespace regard::onnx {

using Tensors = std::map<std::string, AnyTensor>;

// The opsets whose operators are known here; Attention and RotaryEmbedding exist
// from 23 on, LinearAttention from 27.
inline constexpr Index first_opset = 23, last_opset = 27;

// Operators that `run` knows.
std::vector<std::string> operators();

// One operator node.
struct Node {
  std::string op;
  Index opset = last_opset;
  std::string attributes = "{}";          // a JSON object, names as in the specification
  std::vector<std::string> outputs = {};  // the wanted ones; empty: every one the node has
};

// Runs one node. Throws ArgumentError for an unknown operator, attribute, input
// or output (listing the known names), for types the operator does not take
// here, and where sizes disagree.
Tensors run(const Node& node, const Tensors& inputs);

// The first opset that has this operator.
Index since(const std::string& op);

// Every output that a node of this operator can have.
std::vector<std::string> outputs(const std::string& op);

// Throws ArgumentError for attributes the operator does not have or that have
// values it does not take; reads nothing but the node.
void check_attributes(const Node& node);

// Attributes of Attention. What a node may leave out has the default here.
struct AttentionAttributes {
  bool is_causal = false;
  Index q_num_heads = 0;  // 3-D inputs: how the width splits; 4-D: 0, or what the tensors say
  Index kv_num_heads = 0;
  Index qk_matmul_output_mode = 0;   // 0 scaled, 1 after softcap, 2 after mask, 3 probabilities
  std::optional<double> scale = {};  // default 1 / sqrt(head size)
  double softcap = 0;                // 0: none
  // F64 computes in the double-precision reference. F32 (the default) and the
  // halves compute in the type of the inputs, which is never less.
  DType softmax_precision = DType::f32;
  Index left_window_size = -1;  // opset 25; -1: open
  Index right_window_size = -1;
};

// From a JSON object. Attributes an opset does not have are refused unless they
// have their default value; types are given by name ("F64") or ONNX number (11).
AttentionAttributes attention_attributes(const std::string& json, Index opset);

// Attention. 4-D tensors are [batch, heads, length, size]; 3-D ones [batch,
// length, heads * size], and Y is packed as Q is.
//
// Inputs: Q, K, V; attn_mask (BOOL, true = may attend, or float, added; up to
// 4-D, broadcast from the right to [batch, q_heads, q_len, total]; keys beyond
// a short last axis are hidden); past_key and past_value, 4-D, which go in
// front of K and V; nonpad_kv_seqlen [batch] (opset 24), the keys of each
// batch entry that exist. Outputs: Y; present_key and present_value (not beside
// nonpad_kv_seqlen); qk_matmul_output [batch, q_heads, q_len, total].
//
// Query i stands at i + offset: offset is the past length, or nonpad_kv_seqlen
// - q_len, else 0. A row that sees no key is 0. An empty `wanted` asks for
// every output.
Tensors attention(const Tensors& inputs, const AttentionAttributes& attributes, Index opset,
                  const std::vector<std::string>& wanted = {});

// Attributes of RotaryEmbedding.
struct RotaryAttributes {
  bool interleaved = false;        // pairs (2k, 2k + 1) instead of (k, k + R/2)
  Index num_heads = 0;             // 3-D X: how the width splits; 4-D: 0, or what X says
  Index rotary_embedding_dim = 0;  // R, the elements of a head that turn; 0: all of them
};
RotaryAttributes rotary_attributes(const std::string& json);

// RotaryEmbedding on F64, F32, F16 or BF16 (the halves compute in float). X 4-D
// [batch, heads, length, size] or 3-D [batch, length, heads * size]; cos_cache
// and sin_cache [positions, R/2] beside position_ids [batch, length], or [batch,
// length, R/2] without. Output: Y, shaped as X.
Tensors rotary_embedding(const Tensors& inputs, const RotaryAttributes& attributes);

// Attributes of LinearAttention.
struct LinearAttentionAttributes {
  Index q_num_heads = 0, kv_num_heads = 0;  // needed: how the widths split
  double scale = 0;                         // 0: 1 / sqrt(key size)
  std::string update_rule = "gated_delta";  // or "linear", "gated", "delta"
  Index chunk_size = 64;                    // a hint that changes no result; tokens are taken one by one here
};
LinearAttentionAttributes linear_attention_attributes(const std::string& json);

// LinearAttention on F64, F32, F16 or BF16 (the halves compute in float). query,
// key and value are packed [batch, length, heads * size]; past_state [batch,
// kv_heads, key size, value size]; decay [batch, length, kv_heads * key size or
// kv_heads] for the gated rules; beta [batch, length, kv_heads or 1] for the
// delta rules. Outputs: output, packed as query; present_state.
Tensors linear_attention(const Tensors& inputs, const LinearAttentionAttributes& attributes,
                         const std::vector<std::string>& wanted = {});

}  // namespace regard::onnx
