// The attributes of Attention: what a JSON object says, checked.
#include "onnx/attributes.h"
#include "regard/onnx.h"

namespace regard::onnx {
namespace {

// ONNX numbers its types: 1 float, 10 float16, 11 double, 16 bfloat16.
DType precision(const Attribute& attribute) {
  const auto& value = attribute.value;
  const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
  if (name == "F32" || name == "1") return DType::f32;
  if (name == "F16" || name == "10") return DType::f16;
  if (name == "F64" || name == "11") return DType::f64;
  if (name == "BF16" || name == "16") return DType::bf16;
  attribute.refuse("F32, F16, F64 or BF16, or the number 1, 10, 11 or 16");
}

double soft_cap(const Attribute& attribute) {
  const std::string needs = "a finite number, 0 or above";
  const double cap = attribute.real(needs);
  if (cap < 0) attribute.refuse(needs);
  return cap;
}

Index heads(const Attribute& attribute) { return attribute.whole(1, largest_attribute, "a whole number above 0"); }

Index window_size(const Attribute& attribute) {
  return attribute.whole(-1, largest_attribute, "a whole number from -1 (open) up");
}

using All = AttentionAttributes;
const Readers<All> readers{
    {"is_causal", [](All& all, const Attribute& one) { all.is_causal = one.flag(); }},
    {"q_num_heads", [](All& all, const Attribute& one) { all.q_num_heads = heads(one); }},
    {"kv_num_heads", [](All& all, const Attribute& one) { all.kv_num_heads = heads(one); }},
    {"qk_matmul_output_mode",
     [](All& all, const Attribute& one) { all.qk_matmul_output_mode = one.whole(0, 3, "0, 1, 2 or 3"); }},
    {"scale", [](All& all, const Attribute& one) { all.scale = one.real("a finite number"); }},
    {"softcap", [](All& all, const Attribute& one) { all.softcap = soft_cap(one); }},
    {"softmax_precision", [](All& all, const Attribute& one) { all.softmax_precision = precision(one); }},
    {"left_window_size", [](All& all, const Attribute& one) { all.left_window_size = window_size(one); }},
    {"right_window_size", [](All& all, const Attribute& one) { all.right_window_size = window_size(one); }},
};

}  // namespace

AttentionAttributes attention_attributes(const std::string& json, Index opset) {
  const AttentionAttributes all = read_attributes<All>("Attention", json, readers);
  if (opset < 25 && (all.left_window_size != -1 || all.right_window_size != -1))
    throw ArgumentError("Attention: left_window_size and right_window_size exist from opset 25 on, this is opset " +
                        std::to_string(opset));
  return all;
}

}  // namespace regard::onnx
