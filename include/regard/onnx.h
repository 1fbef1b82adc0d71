// ONNX operators by their own conventions, on top of regard's attention.
//
//   auto outputs = regard::onnx::run({.op = "Attention", .opset = 23}, {{"Q", q}, {"K", k}, {"V", v}});
//
// Inputs and outputs carry the operator's formal names. Source: the ONNX
// operator specification, Attention-23, -24 and -25.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "regard/dtype.h"

namespace regard::onnx {

using Tensors = std::map<std::string, AnyTensor>;

// The opsets whose operators are known here; Attention exists from 23 on.
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
// or output (listing the known names), for types other than F32 and F64, and
// where sizes disagree.
Tensors run(const Node& node, const Tensors& inputs);

// Every output that a node of this operator can have.
std::vector<std::string> outputs(const std::string& op);

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

}  // namespace regard::onnx
