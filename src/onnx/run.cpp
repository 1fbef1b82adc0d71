#include "onnx/names.h"
#include "regard/onnx.h"

namespace regard::onnx {

std::vector<std::string> operators() { return {"Attention"}; }

std::vector<std::string> outputs(const std::string& op) {
  if (op == "Attention") return {"Y", "present_key", "present_value", "qk_matmul_output"};
  throw ArgumentError("operator '" + op + "' is unknown; this version has " + joined(operators()));
}

Tensors run(const Node& node, const Tensors& inputs) {
  if (!contains(operators(), node.op))
    throw ArgumentError("operator '" + node.op + "' is unknown; this version has " + joined(operators()));
  return attention(inputs, attention_attributes(node.attributes, node.opset), node.opset, node.outputs);
}

}  // namespace regard::onnx
