// The ONNX project's LinearAttention cases, through the adapter.
#include "onnx/cases.h"
#include "regard/error.h"

namespace regard::onnx {
namespace {

class LinearAttentionCase : public ::testing::TestWithParam<Case> {};

TEST_P(LinearAttentionCase, gives_the_exact_result) {
  const TensorFile file = read_safetensors(folder_of("linear_attention") + GetParam().name + ".safetensors");
  const Tensors inputs = inputs_of(GetParam(), file);
  const bool half = inputs.at("query").dtype == DType::f16;
  const Tolerance tolerance = half ? Tolerance{0x1p-8, 0x1p-11} : Tolerance{};
  expect_case(GetParam(), file, run({"LinearAttention", 27, GetParam().attributes}, inputs), tolerance);
}

TEST_P(LinearAttentionCase, gives_the_exact_result_in_float64) {
  const TensorFile file = read_safetensors(folder_of("linear_attention") + GetParam().name + ".safetensors");
  Tensors inputs = inputs_of(GetParam(), file);
  for (auto& [name, tensor] : inputs) tensor = any_tensor(to_double(tensor, name));
  const Tensors got = run({"LinearAttention", 27, GetParam().attributes}, inputs);
  for (const std::string& name : GetParam().outputs) {
    EXPECT_EQ(got.at(name).dtype, DType::f64);
    expect_close(name, got.at(name), file.at("exact." + name), {1e-12, 1e-12});
  }
}

INSTANTIATE_TEST_SUITE_P(linear_attention, LinearAttentionCase, ::testing::ValuesIn(cases("linear_attention")),
                         [](const auto& one) { return one.param.name; });

Tensors small_inputs() {
  return {{"query", any_tensor(Tensor<float>({1, 3, 4}, 0.5f))},
          {"key", any_tensor(Tensor<float>({1, 3, 4}, 0.25f))},
          {"value", any_tensor(Tensor<float>({1, 3, 6}, 1.0f))}};
}

const std::string plain = R"({"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"})";

std::string message(const Tensors& inputs, const std::string& attributes = plain, Index opset = 27) {
  try {
    run({"LinearAttention", opset, attributes}, inputs);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

void expect_refusal(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

// Values of their own size: after t tokens S = t * 0.25 everywhere, so out = t * 2 * 0.5 * 0.25 / sqrt(2).
TEST(onnx_linear_attention, values_may_have_a_size_of_their_own) {
  const auto out = to_float(run({"LinearAttention", 27, plain}, small_inputs()).at("output"), "output");
  EXPECT_EQ(out.shape(), (Shape{1, 3, 6}));
  for (Index i = 0; i < 18; ++i) EXPECT_NEAR(out[i], static_cast<float>(i / 6 + 1) * 0.25f / std::sqrt(2.0f), 1e-6);
}

TEST(onnx_linear_attention, outputs_can_be_picked) {
  const auto some = run({"LinearAttention", 27, plain, {"present_state"}}, small_inputs());
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some.at("present_state").shape, (Shape{1, 2, 2, 3}));
}

TEST(onnx_linear_attention, wrong_use_is_named) {
  EXPECT_EQ(message(small_inputs()), "no error");
  expect_refusal(message(small_inputs(), "{}"), "q_num_heads");
  expect_refusal(message(small_inputs(), plain, 26), "27");
  expect_refusal(message(small_inputs(), R"({"q_num_heads": 2, "kv_num_heads": 2})"),
                 "gated_delta needs the input decay");
  expect_refusal(message(small_inputs(), R"({"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "fast"})"),
                 "update_rule");
  expect_refusal(message(small_inputs(), R"({"q_num_heads": 3, "kv_num_heads": 2, "update_rule": "linear"})"),
                 "3 heads");
  Tensors inputs = small_inputs();
  inputs["beta"] = any_tensor(Tensor<float>({1, 3, 2}));
  expect_refusal(message(inputs), "no place for the input beta");
  inputs.erase("beta");
  inputs["past_state"] = any_tensor(Tensor<float>({1, 2, 3, 3}));
  expect_refusal(message(inputs), "[1,2,3,3]");
  inputs["state"] = inputs["past_state"];
  expect_refusal(message(inputs), "'state'");
  LinearAttentionAttributes without_heads{.update_rule = "linear"};
  EXPECT_THROW(linear_attention(small_inputs(), without_heads), ArgumentError);
  inputs = small_inputs();
  inputs.erase("value");
  expect_refusal(message(inputs), "value is missing");
}

}  // namespace
}  // namespace regard::onnx
