// The attributes of Attention: what a JSON object says, checked.
#include <cmath>
#include <nlohmann/json.hpp>

#include "onnx/names.h"
#include "regard/onnx.h"

namespace regard::onnx {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& name, const Json& value, const std::string& needs) {
  throw ArgumentError("Attention: attribute " + name + " is " + value.dump() + " but needs " + needs);
}

Index whole(const std::string& name, const Json& value, Index lowest, Index highest, const std::string& needs) {
  if (!value.is_number_integer()) refuse(name, value, needs);
  const Index number = value.get<Index>();
  if (number < lowest || number > highest) refuse(name, value, needs);
  return number;
}

double real(const std::string& name, const Json& value, const std::string& needs) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(name, value, needs);
  return value.get<double>();
}

// ONNX numbers its types: 1 float, 10 float16, 11 double, 16 bfloat16.
DType precision(const Json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
  if (name == "F32" || name == "1") return DType::f32;
  if (name == "F16" || name == "10") return DType::f16;
  if (name == "F64" || name == "11") return DType::f64;
  if (name == "BF16" || name == "16") return DType::bf16;
  refuse("softmax_precision", value, "F32, F16, F64 or BF16, or the number 1, 10, 11 or 16");
}

constexpr Index limit = Index{1} << 40;  // far beyond any length, and sums of two still fit

using Reader = void (*)(AttentionAttributes&, const std::string&, const Json&);
const std::map<std::string, Reader> readers{
    {"is_causal",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.is_causal = value.is_boolean() ? value.get<bool>() : whole(name, value, 0, 1, "0 or 1") == 1;
     }},
    {"q_num_heads",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.q_num_heads = whole(name, value, 1, limit, "a whole number above 0");
     }},
    {"kv_num_heads",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.kv_num_heads = whole(name, value, 1, limit, "a whole number above 0");
     }},
    {"qk_matmul_output_mode",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.qk_matmul_output_mode = whole(name, value, 0, 3, "0, 1, 2 or 3");
     }},
    {"scale", [](AttentionAttributes& all, const std::string& name,
                 const Json& value) { all.scale = real(name, value, "a finite number"); }},
    {"softcap",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.softcap = real(name, value, "a finite number, 0 or above");
       if (all.softcap < 0) refuse(name, value, "a finite number, 0 or above");
     }},
    {"softmax_precision",
     [](AttentionAttributes& all, const std::string&, const Json& value) { all.softmax_precision = precision(value); }},
    {"left_window_size",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.left_window_size = whole(name, value, -1, limit, "a whole number from -1 (open) up");
     }},
    {"right_window_size",
     [](AttentionAttributes& all, const std::string& name, const Json& value) {
       all.right_window_size = whole(name, value, -1, limit, "a whole number from -1 (open) up");
     }},
};

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const auto& [name, reader] : readers) names.push_back(name);
  return names;
}

}  // namespace

AttentionAttributes attention_attributes(const std::string& json, Index opset) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object())
    throw ArgumentError("Attention: attributes need a JSON object such as {\"is_causal\": 1}, got '" + json + "'");
  AttentionAttributes all;
  for (const auto& [name, value] : object.items()) {
    check_known("Attention", "attribute", name, known_names());
    readers.at(name)(all, name, value);
  }
  if (opset < 25 && (all.left_window_size != -1 || all.right_window_size != -1))
    throw ArgumentError("Attention: left_window_size and right_window_size exist from opset 25 on, this is opset " +
                        std::to_string(opset));
  return all;
}

}  // namespace regard::onnx
