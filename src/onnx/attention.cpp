// ONNX Attention: its layouts, masks and offsets put into the words of attend.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "onnx/names.h"
#include "onnx/types.h"
#include "regard/attend.h"
#include "regard/onnx.h"

namespace regard::onnx {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw ArgumentError("Attention: " + what); }

template <class T>
Tensor<T> numbers(const Tensors& inputs, const std::string& name) {
  return onnx::numbers<T>(inputs.at(name), "Attention: " + name);
}

// One node with its inputs, the sizes they agree on, and what is wanted.
struct Call {
  const Tensors& inputs;
  const AttentionAttributes& attributes;
  Index opset;
  std::vector<std::string> wanted;
  bool packed_heads = false;  // 3-D inputs
  Index batch = 0, q_heads = 0, kv_heads = 0, q_len = 0, past_len = 0, total_len = 0;

  bool has(const std::string& name) const { return inputs.contains(name); }
  bool wants(const std::string& name) const { return contains(wanted, name); }
  const Shape& shape(const std::string& name) const { return inputs.at(name).shape; }
};

std::vector<std::string> known_inputs(Index opset) {
  std::vector<std::string> names{"Q", "K", "V", "attn_mask", "past_key", "past_value"};
  if (opset >= 24) names.emplace_back("nonpad_kv_seqlen");
  return names;
}

void check_inputs(const Call& call) {
  for (const auto& [name, tensor] : call.inputs)
    check_known("Attention (opset " + std::to_string(call.opset) + ")", "input", name, known_inputs(call.opset));
  for (const char* name : {"Q", "K", "V"})
    if (!call.has(name)) refuse(std::string("input ") + name + " is missing");
  if (call.has("past_key") != call.has("past_value")) refuse("past_key and past_value come together, one is missing");
  if (call.has("past_key") && call.has("nonpad_kv_seqlen"))
    refuse("nonpad_kv_seqlen can't stand beside past_key and past_value: the cache is either inside or outside");
  const DType dtype = call.inputs.at("Q").dtype;
  if (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::f16 && dtype != DType::bf16)
    refuse(std::string("Q is ") + dtype_name(dtype) + " where F64, F32, F16 or BF16 is needed");
  for (const auto& [name, tensor] : call.inputs) {
    const bool other_type = name == "nonpad_kv_seqlen" || (name == "attn_mask" && tensor.dtype == DType::boolean);
    if (!other_type && tensor.dtype != dtype)
      refuse(name + " is " + dtype_name(tensor.dtype) + " but Q is " + dtype_name(dtype) + "; convert one of them");
  }
}

// What the node can give: a cache kept outside has no present_key of its own.
std::vector<std::string> wanted_outputs(const Tensors& inputs, const std::vector<std::string>& wanted) {
  std::vector<std::string> all{"Y", "qk_matmul_output"};
  if (!inputs.contains("nonpad_kv_seqlen")) all = outputs("Attention");
  const std::string op = all.size() == 2 ? "Attention with nonpad_kv_seqlen" : "Attention";
  for (const std::string& name : wanted) check_known(op, "output", name, all);
  return wanted.empty() ? all : wanted;
}

// Heads of a tensor: the second axis, or what the attribute says of a packed one.
Index heads_of(const Call& call, const std::string& name, Index attribute, const std::string& attribute_name) {
  const Shape& shape = call.shape(name);
  if (call.packed_heads) {
    if (attribute == 0) refuse("3-D inputs need the attribute " + attribute_name);
    if (shape[2] % attribute != 0)
      refuse(name + " " + shape_text(shape) + " has width " + std::to_string(shape[2]) + ", no multiple of " +
             attribute_name + " " + std::to_string(attribute));
    return attribute;
  }
  if (attribute != 0 && attribute != shape[1])
    refuse(attribute_name + " is " + std::to_string(attribute) + " but " + name + " " + shape_text(shape) + " has " +
           std::to_string(shape[1]) + " heads");
  return shape[1];
}

Index size_of_head(const Call& call, const std::string& name) {
  const Shape& shape = call.shape(name);
  if (!call.packed_heads) return shape[3];
  return shape[2] / (name == "Q" ? call.q_heads : call.kv_heads);
}

// A past must fit in front of the tensor it continues.
void check_past(const Call& call, const std::string& past, const std::string& name) {
  const Shape& shape = call.shape(past);
  const Shape wanted{call.batch, call.kv_heads, call.past_len, size_of_head(call, name)};
  if (shape != wanted)
    refuse(past + " has shape " + shape_text(shape) + " but " + name + " " + shape_text(call.shape(name)) + " needs " +
           shape_text(wanted) + " in front of it");
}

void read_sizes(Call& call) {
  const std::size_t rank = call.shape("Q").size();
  for (const char* name : {"Q", "K", "V"})
    if (call.shape(name).size() != rank || (rank != 3 && rank != 4))
      refuse("Q " + shape_text(call.shape("Q")) + ", K " + shape_text(call.shape("K")) + " and V " +
             shape_text(call.shape("V")) +
             " need 4 dimensions [batch,heads,length,size] or 3 [batch,length,width] each");
  call.packed_heads = rank == 3;
  call.batch = call.shape("Q")[0];
  call.q_len = call.shape("Q")[call.packed_heads ? 1 : 2];
  call.q_heads = heads_of(call, "Q", call.attributes.q_num_heads, "q_num_heads");
  call.kv_heads = heads_of(call, "K", call.attributes.kv_num_heads, "kv_num_heads");
  heads_of(call, "V", call.attributes.kv_num_heads, "kv_num_heads");
  if (call.has("past_key")) {
    if (call.shape("past_key").size() != 4)
      refuse("past_key " + shape_text(call.shape("past_key")) + " needs 4 dimensions [batch,kv_heads,past,size]");
    call.past_len = call.shape("past_key")[2];
    check_past(call, "past_key", "K");
    check_past(call, "past_value", "V");
  }
  call.total_len = call.past_len + call.shape("K")[call.packed_heads ? 1 : 2];
}

// Q, K or V as [batch, heads, length, size]; packed heads are a strided view.
template <class T>
View<const T, 4> split(const Tensor<T>& tensor, const Call& call, Index heads) {
  if (!call.packed_heads) return tensor.template view<4>();
  const Index length = tensor.size(1), width = tensor.size(2), size = width / heads;
  return {tensor.data(), {tensor.size(0), heads, length, size}, {length * width, size, width, 1}};
}

// `past` in front of `fresh`, packed.
template <class T>
Tensor<T> concatenated(const View<const T, 4>& past, const View<const T, 4>& fresh) {
  const Index old_length = past.size(2), length = old_length + fresh.size(2), size = fresh.size(3);
  auto joined = Tensor<T>::uninitialised({fresh.size(0), fresh.size(1), length, size});
  View<T, 4> to = joined;
  for (Index b = 0; b < to.size(0); ++b)
    for (Index h = 0; h < to.size(1); ++h)
      for (Index t = 0; t < length; ++t)
        for (Index d = 0; d < size; ++d)
          to(b, h, t, d) = t < old_length ? past(b, h, t, d) : fresh(b, h, t - old_length, d);
  return joined;
}

// Keys or values of the whole length.
template <class T>
struct Cache {
  Tensor<T> fresh, joined;
  View<const T, 4> all;

  Cache(const Call& call, const std::string& name, const std::string& past) : fresh(numbers<T>(call.inputs, name)) {
    all = split(fresh, call, call.kv_heads);
    if (!call.has(past)) return;
    const auto before = numbers<T>(call.inputs, past);
    joined = concatenated<T>(before.template view<4>(), all);
    all = std::as_const(joined).template view<4>();
  }
};

// The mask's shape read from the right, and its last axis brought to the total
// length: keys beyond a short mask are hidden (`hidden` is what says so). Opset
// 23 still broadcast a last axis of 1.
template <class M>
Tensor<M> four_dimensional_mask(Tensor<M> mask, const Call& call, M hidden) {
  if (mask.rank() < 1 || mask.rank() > 4) refuse("attn_mask " + mask.text() + " needs 1 to 4 dimensions");
  const Shape wanted{call.batch, call.q_heads, call.q_len, call.total_len};
  Shape shape(4 - mask.shape().size(), 1);
  shape.insert(shape.end(), mask.shape().begin(), mask.shape().end());
  for (int axis = 0; axis < 3; ++axis)
    if (shape[axis] != 1 && shape[axis] != wanted[axis])
      refuse("attn_mask " + mask.text() +
             " does not broadcast to [batch,q_heads,q_len,total_len] = " + shape_text(wanted));
  const Index given = shape[3], total = call.total_len;
  if (given > total)
    refuse("attn_mask " + mask.text() + " has " + std::to_string(given) + " keys but there are " +
           std::to_string(total));
  mask.reshape(shape);
  if (given == total || (given == 1 && call.opset < 24)) return mask;
  Tensor<M> padded({shape[0], shape[1], shape[2], total}, hidden);
  for (Index row = 0; row < shape[0] * shape[1] * shape[2]; ++row)
    std::copy_n(mask.data() + row * given, given, padded.data() + row * total);
  return padded;
}

// What of the mask, the lengths and the attributes must outlive the options.
template <class T>
struct Rules {
  Tensor<std::uint8_t> allowed;
  Tensor<T> bias;
  std::vector<Index> lengths;
  BasicAttendOptions<T> options;

  explicit Rules(const Call& call) {
    const AttentionAttributes& attributes = call.attributes;
    if (call.has("attn_mask")) add_mask(call);
    if (attributes.is_causal) options.mask = options.mask & causal();
    if (attributes.left_window_size >= 0 || attributes.right_window_size >= 0)
      options.mask = options.mask & window(attributes.left_window_size, attributes.right_window_size);
    if (attributes.softcap > 0) options.score = softcap(attributes.softcap);
    if (attributes.scale) options.scale = static_cast<T>(*attributes.scale);
    options.q_start = call.past_len;
    if (call.has("nonpad_kv_seqlen")) add_lengths(call);
  }
  Rules(const Rules&) = delete;  // the options point into it

 private:
  void add_mask(const Call& call) {
    const AnyTensor& mask = call.inputs.at("attn_mask");
    if (mask.dtype == DType::boolean) {
      allowed = four_dimensional_mask<std::uint8_t>(to_boolean(mask, "attn_mask"), call, 0);
      options.mask = boolean(std::as_const(allowed).template view<4>());
    } else {
      bias = four_dimensional_mask<T>(numbers<T>(call.inputs, "attn_mask"), call, -std::numeric_limits<T>::infinity());
      options.bias = std::as_const(bias).template view<4>();
    }
  }
  void add_lengths(const Call& call) {
    const auto given = to_int64(call.inputs.at("nonpad_kv_seqlen"), "Attention: nonpad_kv_seqlen");
    if (given.shape() != Shape{call.batch})
      refuse("nonpad_kv_seqlen has shape " + given.text() + " but Q has batch " + std::to_string(call.batch));
    std::vector<Index> starts;
    for (Index length : given.values()) {
      if (length < 0 || length > call.total_len)
        refuse("nonpad_kv_seqlen holds " + std::to_string(length) + " but there are " + std::to_string(call.total_len) +
               " keys");
      lengths.push_back(length);
      starts.push_back(length - call.q_len);
    }
    options.kv_lengths = lengths;
    if (!starts.empty()) options.q_start = starts;
  }
};

// qk_matmul_output is every score or weight: one rectangle a head.
std::vector<Rectangle> rectangles(const Call& call) {
  constexpr Stage stages[] = {Stage::scaled, Stage::capped, Stage::masked, Stage::weights};
  std::vector<Rectangle> wanted;
  for (Index b = 0; b < call.batch; ++b)
    for (Index h = 0; h < call.q_heads; ++h)
      wanted.push_back({b, h, 0, call.q_len, 0, call.total_len,
                        stages[static_cast<std::size_t>(call.attributes.qk_matmul_output_mode)]});
  return wanted;
}

template <class T>
Tensor<T> stacked(const std::vector<Tensor<T>>& parts, const Call& call) {
  auto whole = Tensor<T>::uninitialised({call.batch, call.q_heads, call.q_len, call.total_len});
  T* to = whole.data();
  for (const Tensor<T>& part : parts) to = std::copy_n(part.data(), part.count(), to);
  return whole;
}

AttendResult forward(const View<const float, 4>& q, const View<const float, 4>& k, const View<const float, 4>& v,
                     const AttendOptions& options) {
  return attend(q, k, v, options);
}
reference::Result forward(const View<const double, 4>& q, const View<const double, 4>& k,
                          const View<const double, 4>& v, const reference::Options& options) {
  return reference::attend(q, k, v, options);
}

// [batch, heads, length, size] as the inputs were: packed heads again for 3-D ones.
template <class T>
Tensor<T> as_inputs(Tensor<T> out, const Call& call) {
  if (!call.packed_heads) return out;
  auto joined = packed(out.template view<4>().transposed(1, 2));
  joined.reshape({out.size(0), out.size(2), out.size(1) * out.size(3)});
  return joined;
}

template <class T>
Tensors compute(const Call& call) {
  const auto q = numbers<T>(call.inputs, "Q");
  const Cache<T> keys(call, "K", "past_key"), values(call, "V", "past_value");
  Rules<T> rules(call);
  if (call.wants("qk_matmul_output")) rules.options.observe.rectangles = rectangles(call);
  auto result = forward(split(q, call, call.q_heads), keys.all, values.all, rules.options);
  const DType dtype = call.inputs.at("Q").dtype;
  Tensors outputs;
  if (call.wants("Y")) outputs["Y"] = stored(as_inputs(std::move(result.out), call), dtype);
  if (call.wants("present_key")) outputs["present_key"] = stored(packed(keys.all), dtype);
  if (call.wants("present_value")) outputs["present_value"] = stored(packed(values.all), dtype);
  if (call.wants("qk_matmul_output")) outputs["qk_matmul_output"] = stored(stacked(result.rectangles, call), dtype);
  return outputs;
}

}  // namespace

Tensors attention(const Tensors& inputs, const AttentionAttributes& attributes, Index opset,
                  const std::vector<std::string>& wanted) {
  if (opset < first_opset || opset > last_opset)
    refuse("opset " + std::to_string(opset) + " is unknown here; use " + std::to_string(first_opset) + " to " +
           std::to_string(last_opset));
  Call call{inputs, attributes, opset, wanted_outputs(inputs, wanted)};
  check_inputs(call);
  read_sizes(call);
  const bool in_double = inputs.at("Q").dtype == DType::f64 || attributes.softmax_precision == DType::f64;
  return in_double ? compute<double>(call) : compute<float>(call);
}

}  // namespace regard::onnx
