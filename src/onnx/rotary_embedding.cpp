// ONNX RotaryEmbedding: its layouts and tables put into the words of rotate.
#include "onnx/attributes.h"
#include "onnx/types.h"
#include "regard/onnx.h"
#include "regard/rope.h"

namespace regard::onnx {
namespace {

const std::string op = "RotaryEmbedding";

[[noreturn]] void refuse(const std::string& what) { throw ArgumentError(op + ": " + what); }

void check_inputs(const Tensors& inputs) {
  for (const auto& [name, tensor] : inputs)
    check_known(op, "input", name, {"X", "cos_cache", "sin_cache", "position_ids"});
  for (const char* name : {"X", "cos_cache", "sin_cache"}) {
    if (!inputs.contains(name)) refuse(std::string("input ") + name + " is missing");
    if (inputs.at(name).dtype != inputs.at("X").dtype)
      refuse(std::string(name) + " is " + dtype_name(inputs.at(name).dtype) + " but X is " +
             dtype_name(inputs.at("X").dtype) + "; convert one of them");
  }
  const Shape& cosines = inputs.at("cos_cache").shape;
  if (cosines != inputs.at("sin_cache").shape)
    refuse("cos_cache " + shape_text(cosines) + " and sin_cache " + shape_text(inputs.at("sin_cache").shape) +
           " must have one shape");
  const std::size_t rank = inputs.contains("position_ids") ? 2 : 3;
  if (cosines.size() != rank)
    refuse("cos_cache " + shape_text(cosines) + " needs " +
           (rank == 2 ? "2 dimensions [positions,pairs] beside position_ids"
                      : "3 dimensions [batch,length,pairs] without position_ids"));
}

// X as [batch, heads, length, size]; packed heads are a strided view.
template <class T>
View<T, 4> heads_of(Tensor<T>& x, Index num_heads) {
  const bool is_packed = x.rank() == 3;
  if (!is_packed && x.rank() != 4)
    refuse("X " + x.text() + " needs 4 dimensions [batch,heads,length,size] or 3 [batch,length,width]");
  if (!is_packed) {
    if (num_heads != 0 && num_heads != x.size(1))
      refuse("num_heads is " + std::to_string(num_heads) + " but X " + x.text() + " has " + std::to_string(x.size(1)));
    return x.template view<4>();
  }
  if (num_heads == 0) refuse("a 3-D X needs the attribute num_heads");
  const Index length = x.size(1), width = x.size(2);
  if (width % num_heads != 0)
    refuse("X " + x.text() + " has width " + std::to_string(width) + ", no multiple of num_heads " +
           std::to_string(num_heads));
  const Index size = width / num_heads;
  return {x.data(), {x.size(0), num_heads, length, size}, {length * width, size, width, 1}};
}

// Rows of the caches that the positions name: [batch, length, pairs].
template <class T>
Tensor<T> gathered(const Tensor<T>& cache, const Tensor<std::int64_t>& positions) {
  const Index pairs = cache.size(1);
  Shape shape = positions.shape();
  shape.push_back(pairs);
  auto rows = Tensor<T>::uninitialised(shape);
  for (Index i = 0; i < positions.count(); ++i) {
    if (positions[i] < 0 || positions[i] >= cache.size(0))
      refuse("position_ids holds " + std::to_string(positions[i]) + " but cos_cache " + cache.text() +
             " has positions 0 to " + std::to_string(cache.size(0) - 1));
    std::copy_n(cache.data() + positions[i] * pairs, pairs, rows.data() + i * pairs);
  }
  return rows;
}

template <class T>
RopeTable<T> table_of(const Tensors& inputs) {
  RopeTable<T> table{numbers<T>(inputs.at("cos_cache"), op + ": cos_cache"),
                     numbers<T>(inputs.at("sin_cache"), op + ": sin_cache")};
  if (!inputs.contains("position_ids")) return table;
  const auto positions = to_int64(inputs.at("position_ids"), op + ": position_ids");
  if (positions.rank() != 2) refuse("position_ids " + positions.text() + " needs 2 dimensions [batch,length]");
  return {gathered(table.cosines, positions), gathered(table.sines, positions)};
}

template <class T>
Tensors compute(const Tensors& inputs, const RotaryAttributes& attributes) {
  auto x = numbers<T>(inputs.at("X"), op + ": X");
  const auto heads = heads_of(x, attributes.num_heads);
  const auto table = table_of<T>(inputs);
  const Index rotated = attributes.rotary_embedding_dim == 0 ? heads.size(3) : attributes.rotary_embedding_dim;
  if (2 * table.cosines.size(2) != rotated)
    refuse("cos_cache " + shape_text(inputs.at("cos_cache").shape) + " turns " +
           std::to_string(2 * table.cosines.size(2)) + " elements of a head but " + std::to_string(rotated) +
           (attributes.rotary_embedding_dim == 0 ? " are its size" : " are asked for by rotary_embedding_dim"));
  rotate(heads, heads, table, attributes.interleaved ? RopePairing::interleaved : RopePairing::half_split);
  return {{"Y", stored(x, inputs.at("X").dtype)}};
}

using All = RotaryAttributes;
const Readers<All> readers{
    {"interleaved", [](All& all, const Attribute& one) { all.interleaved = one.flag(); }},
    {"num_heads",
     [](All& all, const Attribute& one) {
       all.num_heads = one.whole(0, largest_attribute, "a whole number, 0 or above");
     }},
    {"rotary_embedding_dim",
     [](All& all, const Attribute& one) {
       all.rotary_embedding_dim = one.whole(0, largest_attribute, "a whole number, 0 or above");
     }},
};

}  // namespace

RotaryAttributes rotary_attributes(const std::string& json) { return read_attributes<All>(op, json, readers); }

Tensors rotary_embedding(const Tensors& inputs, const RotaryAttributes& attributes) {
  check_inputs(inputs);
  return inputs.at("X").dtype == DType::f64 ? compute<double>(inputs, attributes) : compute<float>(inputs, attributes);
}

}  // namespace regard::onnx
