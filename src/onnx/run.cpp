#include "onnx/names.h"
#include "regard/onnx.h"

namespace regard::onnx {
namespace {

// All that `run` has to know of an operator.
struct Operator {
  const char* name;
  Index since;  // its first opset
  std::vector<std::string> outputs;
  void (*check)(const Node&);  // the attributes alone
  Tensors (*run)(const Node&, const Tensors&);
};

const std::vector<Operator>& table() {
  static const std::vector<Operator> all{
      {"Attention",
       23,
       {"Y", "present_key", "present_value", "qk_matmul_output"},
       [](const Node& node) { attention_attributes(node.attributes, node.opset); },
       [](const Node& node, const Tensors& inputs) {
         return attention(inputs, attention_attributes(node.attributes, node.opset), node.opset, node.outputs);
       }},
      {"RotaryEmbedding",
       23,
       {"Y"},
       [](const Node& node) { rotary_attributes(node.attributes); },
       [](const Node& node, const Tensors& inputs) {
         return rotary_embedding(inputs, rotary_attributes(node.attributes));
       }},
      {"LinearAttention",
       27,
       {"output", "present_state"},
       [](const Node& node) { linear_attention_attributes(node.attributes); },
       [](const Node& node, const Tensors& inputs) {
         return linear_attention(inputs, linear_attention_attributes(node.attributes), node.outputs);
       }},
  };
  return all;
}

const Operator& find(const std::string& op) {
  for (const Operator& one : table())
    if (op == one.name) return one;
  throw ArgumentError("operator '" + op + "' is unknown; this version has " + joined(operators()));
}

}  // namespace

std::vector<std::string> operators() {
  std::vector<std::string> names;
  for (const Operator& one : table()) names.emplace_back(one.name);
  return names;
}

Index since(const std::string& op) { return find(op).since; }

std::vector<std::string> outputs(const std::string& op) { return find(op).outputs; }

void check_attributes(const Node& node) { find(node.op).check(node); }

Tensors run(const Node& node, const Tensors& inputs) {
  const Operator& op = find(node.op);
  if (node.opset < op.since || node.opset > last_opset)
    throw ArgumentError(node.op + ": opset " + std::to_string(node.opset) + " is unknown here; use " +
                        std::to_string(op.since) + " to " + std::to_string(last_opset));
  // Attention checks its own: what it has depends on the inputs.
  if (node.op != "Attention")
    for (const std::string& name : node.outputs) check_known(node.op, "output", name, op.outputs);
  return op.run(node, inputs);
}

}  // namespace regard::onnx
