// The ONNX project's RotaryEmbedding cases, through the adapter.
#include "onnx/cases.h"
#include "regard/error.h"

namespace regard::onnx {
namespace {

class RotaryCase : public ::testing::TestWithParam<Case> {};

Tensors run_case(const Case& one, const Tensors& inputs, Index opset) {
  return run({"RotaryEmbedding", opset, one.attributes}, inputs);
}

TEST_P(RotaryCase, gives_the_exact_result_in_every_opset) {
  const TensorFile file = read_safetensors(folder_of("rotary_embedding") + GetParam().name + ".safetensors");
  for (Index opset = GetParam().opset; opset <= last_opset; ++opset)
    expect_case(GetParam(), file, run_case(GetParam(), inputs_of(GetParam(), file), opset));
}

// Every float input in another type; rounds where that is a half.
Tensors inputs_as(DType dtype, Tensors inputs) {
  for (auto& [name, tensor] : inputs)
    if (name != "position_ids")
      tensor = dtype == DType::f64 ? any_tensor(to_double(tensor, name)) : any_tensor(to_float(tensor, name), dtype);
  return inputs;
}

TEST_P(RotaryCase, gives_the_exact_result_in_float64) {
  const TensorFile file = read_safetensors(folder_of("rotary_embedding") + GetParam().name + ".safetensors");
  const auto got = run_case(GetParam(), inputs_as(DType::f64, inputs_of(GetParam(), file)), 23).at("Y");
  EXPECT_EQ(got.dtype, DType::f64);
  expect_close("Y", got, file.at("exact.Y"), {1e-12, 1e-12});
}

// The float64 result of the same rounded inputs, rounded once.
TEST_P(RotaryCase, rounds_halves_once) {
  const TensorFile file = read_safetensors(folder_of("rotary_embedding") + GetParam().name + ".safetensors");
  for (const auto& [type, rounding] : {std::pair{DType::f16, 0x1p-11}, {DType::bf16, 0x1p-8}}) {
    const Tensors inputs = inputs_as(type, inputs_of(GetParam(), file));
    const auto got = run_case(GetParam(), inputs, 23).at("Y");
    EXPECT_EQ(got.dtype, type);
    expect_close("Y", got, run_case(GetParam(), inputs_as(DType::f64, inputs), 23).at("Y"), {rounding * 1.001, 1e-7});
  }
}

INSTANTIATE_TEST_SUITE_P(rotary_embedding, RotaryCase, ::testing::ValuesIn(cases("rotary_embedding")),
                         [](const auto& one) { return one.param.name; });

Tensors small_inputs() {
  return {{"X", any_tensor(Tensor<float>({1, 2, 3, 4}, 1.0f))},
          {"cos_cache", any_tensor(Tensor<float>({5, 2}, 0.5f))},
          {"sin_cache", any_tensor(Tensor<float>({5, 2}, 0.25f))},
          {"position_ids", any_tensor(Tensor<std::int64_t>({1, 3}, {4, 0, 2}))}};
}

std::string message(const Tensors& inputs, const std::string& attributes = "{}", Index opset = 23) {
  try {
    run({"RotaryEmbedding", opset, attributes}, inputs);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

void expect_refusal(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(onnx_rotary_embedding, wrong_use_is_named) {
  EXPECT_EQ(message(small_inputs()), "no error");
  expect_refusal(message(small_inputs(), R"({"interleave": 1})"), "interleaved");
  expect_refusal(message(small_inputs(), R"({"rotary_embedding_dim": 2})"), "[5,2]");
  expect_refusal(message(small_inputs(), R"({"num_heads": 3})"), "num_heads is 3");
  expect_refusal(message(small_inputs(), "{}", 22), "22");
  Tensors inputs = small_inputs();
  inputs["position_ids"] = any_tensor(Tensor<std::int64_t>({1, 3}, {4, 0, 5}));
  expect_refusal(message(inputs), "position_ids holds 5");
  inputs["position_ids"] = any_tensor(Tensor<std::int64_t>({1, 2}, {4, 0}));
  expect_refusal(message(inputs), "[1,2,2]");
  inputs.erase("position_ids");
  expect_refusal(message(inputs), "3 dimensions");
  inputs.erase("sin_cache");
  expect_refusal(message(inputs), "sin_cache is missing");
  inputs = small_inputs();
  inputs["X"] = any_tensor(Tensor<float>({1, 3, 8}));
  expect_refusal(message(inputs), "num_heads");
  inputs["x"] = inputs["X"];
  expect_refusal(message(inputs), "'x'");
}

}  // namespace
}  // namespace regard::onnx
