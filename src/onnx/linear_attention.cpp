// ONNX LinearAttention: packed heads and rules put into the words of linear_recurrence.
#include "onnx/attributes.h"
#include "onnx/types.h"
#include "regard/linear_recurrence.h"
#include "regard/onnx.h"

namespace regard::onnx {
namespace {

const std::string op = "LinearAttention";

[[noreturn]] void refuse(const std::string& what) { throw ArgumentError(op + ": " + what); }

void check_inputs(const Tensors& inputs, const LinearAttentionAttributes& attributes) {
  for (const auto& [name, tensor] : inputs)
    check_known(op, "input", name, {"query", "key", "value", "past_state", "decay", "beta"});
  for (const char* name : {"query", "key", "value"}) {
    if (!inputs.contains(name)) refuse(std::string("input ") + name + " is missing");
    if (inputs.at(name).shape.size() != 3)
      refuse(std::string(name) + " " + shape_text(inputs.at(name).shape) +
             " needs 3 dimensions [batch,length,heads*size]");
  }
  if (attributes.q_num_heads < 1 || attributes.kv_num_heads < 1)
    refuse("q_num_heads " + std::to_string(attributes.q_num_heads) + " and kv_num_heads " +
           std::to_string(attributes.kv_num_heads) + " must be at least 1");
  const std::string& rule = attributes.update_rule;
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  for (const auto& [name, wanted] : {std::pair{"decay", gated}, {"beta", delta}})
    if (inputs.contains(name) != wanted)
      refuse("update_rule " + rule + (wanted ? " needs the input " : " has no place for the input ") + name);
}

// A packed tensor as [batch, heads, length, size], a strided view.
template <class T>
View<const T, 4> split(const std::string& name, const Tensor<T>& x, Index heads) {
  if (x.rank() != 3 || x.size(2) % heads != 0)
    refuse(name + " " + x.text() + " does not split into " + std::to_string(heads) + " heads of one size");
  const Index length = x.size(1), width = x.size(2), size = width / heads;
  return {x.data(), {x.size(0), heads, length, size}, {length * width, size, width, 1}};
}

// beta [batch, length, heads or 1] as [batch, heads or 1, length].
template <class T>
View<const T, 3> beta_view(const Tensor<T>& beta, Index heads) {
  if (beta.rank() != 3 || (beta.size(2) != heads && beta.size(2) != 1))
    refuse("beta " + beta.text() + " needs [batch,length,kv_heads or 1] with " + std::to_string(heads) + " heads");
  return std::as_const(beta).template view<3>().transposed(1, 2);
}

template <class T>
AnyTensor packed_heads(const Tensor<T>& out, DType dtype) {
  auto joined = packed(out.template view<4>().transposed(1, 2));
  joined.reshape({out.size(0), out.size(2), out.size(1) * out.size(3)});
  return stored(joined, dtype);
}

RecurrenceResult<float> recur(const RecurrenceInputs<float>& in) { return linear_recurrence(in); }
RecurrenceResult<double> recur(const RecurrenceInputs<double>& in) { return reference::linear_recurrence(in); }

template <class T>
Tensors compute(const Tensors& inputs, const LinearAttentionAttributes& attributes) {
  std::map<std::string, Tensor<T>> read;
  for (const auto& [name, tensor] : inputs) read[name] = numbers<T>(tensor, op + ": " + name);
  const Index heads = attributes.kv_num_heads;
  RecurrenceInputs<T> in{split("query", read["query"], attributes.q_num_heads), split("key", read["key"], heads),
                         split("value", read["value"], heads)};
  if (inputs.contains("decay")) in.decay = split("decay", read["decay"], heads);
  if (inputs.contains("beta")) in.beta = beta_view(read["beta"], heads);
  if (inputs.contains("past_state")) in.state = std::as_const(read["past_state"]).template view<4>();
  if (attributes.scale != 0) in.scale = static_cast<T>(attributes.scale);
  const auto result = recur(in);
  const DType dtype = inputs.at("query").dtype;
  const DType state = inputs.contains("past_state") ? inputs.at("past_state").dtype : dtype;
  return {{"output", packed_heads(result.out, dtype)}, {"present_state", stored(result.state, state)}};
}

std::string rule_of(const Attribute& one) {
  const std::string name = one.value.is_string() ? one.value.get<std::string>() : "";
  if (!contains({"linear", "gated", "delta", "gated_delta"}, name))
    one.refuse("\"linear\", \"gated\", \"delta\" or \"gated_delta\"");
  return name;
}

Index heads(const Attribute& one) { return one.whole(1, largest_attribute, "a whole number above 0"); }

using All = LinearAttentionAttributes;
const Readers<All> readers{
    {"q_num_heads", [](All& all, const Attribute& one) { all.q_num_heads = heads(one); }},
    {"kv_num_heads", [](All& all, const Attribute& one) { all.kv_num_heads = heads(one); }},
    {"scale", [](All& all, const Attribute& one) { all.scale = one.real("a finite number"); }},
    {"update_rule", [](All& all, const Attribute& one) { all.update_rule = rule_of(one); }},
    {"chunk_size", [](All& all, const Attribute& one) { all.chunk_size = heads(one); }},
};

}  // namespace

LinearAttentionAttributes linear_attention_attributes(const std::string& json) {
  const All all = read_attributes<All>(op, json, readers);
  if (all.q_num_heads == 0 || all.kv_num_heads == 0) refuse("the attributes q_num_heads and kv_num_heads are needed");
  return all;
}

Tensors linear_attention(const Tensors& inputs, const LinearAttentionAttributes& attributes,
                         const std::vector<std::string>& wanted) {
  check_inputs(inputs, attributes);
  Tensors outputs =
      inputs.at("query").dtype == DType::f64 ? compute<double>(inputs, attributes) : compute<float>(inputs, attributes);
  if (!wanted.empty()) std::erase_if(outputs, [&](const auto& output) { return !contains(wanted, output.first); });
  return outputs;
}

}  // namespace regard::onnx
