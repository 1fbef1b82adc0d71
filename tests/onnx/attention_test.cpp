// The ONNX project's own Attention cases, through the adapter.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "onnx/cases.h"
#include "regard/error.h"
#include "regard/instruction_set.h"

namespace regard::onnx {
namespace {

const std::string folder = folder_of("attention");

class OnnxCase : public ::testing::TestWithParam<Case> {};

TEST_P(OnnxCase, gives_the_exact_result_on_every_instruction_set) {
  const TensorFile file = read_safetensors(folder + GetParam().name + ".safetensors");
  const Node node{"Attention", GetParam().opset, GetParam().attributes};
  for (const std::string& set : instruction_sets()) {
    SCOPED_TRACE(set);
    set_instruction_set(set);
    expect_case(GetParam(), file, run(node, inputs_of(GetParam(), file)));
  }
  set_instruction_set("");
}

TEST_P(OnnxCase, gives_the_exact_result_in_float64_too) {
  const TensorFile file = read_safetensors(folder + GetParam().name + ".safetensors");
  Tensors inputs = inputs_of(GetParam(), file);
  for (auto& [name, tensor] : inputs)
    if (tensor.dtype != DType::boolean && tensor.dtype != DType::i64) tensor = any_tensor(to_double(tensor, name));
  const Tensors got = run({"Attention", GetParam().opset, GetParam().attributes}, inputs);
  for (const std::string& name : GetParam().outputs) {
    EXPECT_EQ(got.at(name).dtype, DType::f64);
    expect_close(name, got.at(name), file.at((file.has("exact." + name) ? "exact." : "out.") + name));
  }
}

// No shipped case depends on what a later opset changed.
TEST_P(OnnxCase, gives_the_same_in_every_later_opset) {
  const TensorFile file = read_safetensors(folder + GetParam().name + ".safetensors");
  for (Index opset = GetParam().opset + 1; opset <= last_opset; ++opset)
    expect_case(GetParam(), file, run({"Attention", opset, GetParam().attributes}, inputs_of(GetParam(), file)));
}

INSTANTIATE_TEST_SUITE_P(attention, OnnxCase, ::testing::ValuesIn(cases("attention")),
                         [](const auto& one) { return one.param.name; });

Tensors small_inputs() {
  return {{"Q", any_tensor(Tensor<float>({1, 2, 2, 4}, 0.5f))},
          {"K", any_tensor(Tensor<float>({1, 2, 3, 4}, 0.25f))},
          {"V", any_tensor(Tensor<float>({1, 2, 3, 4}, 1.0f))}};
}

std::string message(const Node& node, const Tensors& inputs) {
  try {
    run(node, inputs);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

TEST(onnx_attention, writes_every_output_unless_some_are_picked) {
  const auto all = run({"Attention", 23}, small_inputs());
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(all.at("qk_matmul_output").shape, (Shape{1, 2, 2, 3}));
  const auto some = run({"Attention", 23, "{}", {"present_key"}}, small_inputs());
  ASSERT_EQ(some.size(), 1u);
  EXPECT_TRUE(some.at("present_key").bytes == small_inputs().at("K").bytes);
}

TEST(onnx_attention, scores_before_the_soft_cap_are_uncapped_in_mode_0_and_capped_in_mode_1) {
  // q.k = 4 * 0.5 * 0.25 = 0.5, scale 1: 0.5 before, 0.25 * tanh(2) = 0.241007 after the cap.
  const auto score = [](const std::string& mode) {
    const auto outputs = run({"Attention",
                              23,
                              R"({"scale": 1.0, "softcap": 0.25, "qk_matmul_output_mode": )" + mode + "}",
                              {"qk_matmul_output"}},
                             small_inputs());
    return to_float(outputs.at("qk_matmul_output"), "scores")[0];
  };
  EXPECT_FLOAT_EQ(score("0"), 0.5f);
  EXPECT_NEAR(score("1"), 0.24100689f, 1e-7);
}

TEST(onnx_attention, mask_with_one_key_broadcasts_in_opset_23_and_hides_the_rest_later) {
  Tensors inputs = small_inputs();
  inputs["attn_mask"] = any_boolean(Tensor<std::uint8_t>({2, 1}, std::uint8_t{1}));
  const auto weights = [&](Index opset) {
    const auto outputs = run({"Attention", opset, R"({"qk_matmul_output_mode": 3})"}, inputs);
    return to_float(outputs.at("qk_matmul_output"), "weights");
  };
  EXPECT_NEAR(weights(23)[2], 1.0f / 3.0f, 1e-6);
  EXPECT_EQ(weights(24)[0], 1.0f);
  EXPECT_EQ(weights(24)[1], 0.0f);
}

TEST(onnx_attention, softmax_precision_f64_gives_results_in_the_type_of_q) {
  for (const char* precision : {R"("F64")", "11"}) {
    const auto outputs =
        run({"Attention", 23, std::string(R"({"softmax_precision": )") + precision + "}"}, small_inputs());
    EXPECT_EQ(outputs.at("Y").dtype, DType::f32);
    EXPECT_EQ(to_float(outputs.at("Y"), "Y")[0], 1.0f);
  }
}

TEST(onnx_attention, no_keys_at_all_give_zeros) {
  Tensors inputs = small_inputs();
  inputs["K"] = any_tensor(Tensor<float>({1, 2, 0, 4}));
  inputs["V"] = any_tensor(Tensor<float>({1, 2, 0, 4}));
  const auto outputs = run({"Attention", 23}, inputs);
  EXPECT_EQ(to_float(outputs.at("Y"), "Y")[5], 0.0f);
  EXPECT_EQ(outputs.at("qk_matmul_output").shape, (Shape{1, 2, 2, 0}));
}

TEST(onnx_attention, unknown_names_are_refused_with_the_known_ones) {
  Tensors inputs = small_inputs();
  EXPECT_NE(message({"Atention", 23}, inputs).find("'Atention'"), std::string::npos);
  EXPECT_NE(message({"Atention", 23}, inputs).find("Attention"), std::string::npos);
  EXPECT_NE(message({"Attention", 23, R"({"causal": 1})"}, inputs).find("'causal'"), std::string::npos);
  EXPECT_NE(message({"Attention", 23, R"({"causal": 1})"}, inputs).find("is_causal"), std::string::npos);
  EXPECT_NE(message({"Attention", 23, "{}", {"Z"}}, inputs).find("'Z'"), std::string::npos);
  inputs["mask"] = inputs["Q"];
  EXPECT_NE(message({"Attention", 23}, inputs).find("'mask'"), std::string::npos);
}

TEST(onnx_attention, wrong_attribute_values_are_refused_by_name) {
  const auto inputs = small_inputs();
  for (const char* json :
       {R"({"is_causal": 2})", R"({"is_causal": "yes"})", R"({"qk_matmul_output_mode": 4})", R"({"softcap": -1.0})",
        R"({"scale": null})", R"({"softmax_precision": "F8"})", R"({"q_num_heads": 0})", R"({"q_num_heads": 3})"}) {
    const std::string text = message({"Attention", 25, json}, inputs);
    const std::string name = nlohmann::json::parse(json).begin().key();
    EXPECT_NE(text.find(name), std::string::npos) << json << ": " << text;
  }
  EXPECT_NE(message({"Attention", 23, "{is_causal: 1}"}, inputs).find("JSON"), std::string::npos);
  EXPECT_NE(message({"Attention", 23, "[]"}, inputs).find("JSON"), std::string::npos);
  const char* huge = R"({"left_window_size": 18446744073709551615})";  // -1 in 64 bits
  EXPECT_NE(message({"Attention", 25, huge}, inputs).find("left_window_size"), std::string::npos);
}

TEST(onnx_attention, what_an_opset_does_not_have_is_refused) {
  Tensors inputs = small_inputs();
  EXPECT_NE(message({"Attention", 24, R"({"left_window_size": 2})"}, inputs).find("opset 25"), std::string::npos);
  EXPECT_EQ(message({"Attention", 23, R"({"left_window_size": -1})"}, inputs), "no error");
  EXPECT_NE(message({"Attention", 22}, inputs).find("22"), std::string::npos);
  inputs["nonpad_kv_seqlen"] = any_tensor(Tensor<std::int64_t>({1}, std::int64_t{2}));
  EXPECT_NE(message({"Attention", 23}, inputs).find("nonpad_kv_seqlen"), std::string::npos);
  EXPECT_EQ(message({"Attention", 24}, inputs), "no error");
  EXPECT_NE(message({"Attention", 24, "{}", {"present_key"}}, inputs).find("present_key"), std::string::npos);
}

TEST(onnx_attention, sizes_that_disagree_are_refused_with_both_shapes) {
  const auto with = [](const std::string& name, const AnyTensor& tensor) {
    Tensors inputs = small_inputs();
    inputs[name] = tensor;
    return message({"Attention", 24}, inputs);
  };
  const auto floats = [](Shape shape) { return any_tensor(Tensor<float>(std::move(shape))); };
  EXPECT_NE(with("K", floats({1, 2, 3, 5})).find("[1,2,3,5]"), std::string::npos);
  EXPECT_NE(with("V", floats({1, 2, 4, 4})).find("[1,2,4,4]"), std::string::npos);
  EXPECT_NE(with("K", floats({2, 3, 4})).find("[2,3,4]"), std::string::npos);
  EXPECT_NE(with("attn_mask", floats({3, 3})).find("[3,3]"), std::string::npos);
  EXPECT_NE(with("attn_mask", floats({2, 4})).find("[2,4]"), std::string::npos);
  EXPECT_NE(with("past_key", floats({1, 2, 3, 4})).find("past_value"), std::string::npos);
  EXPECT_NE(with("nonpad_kv_seqlen", any_tensor(Tensor<std::int64_t>({1}, std::int64_t{4}))).find("4"),
            std::string::npos);
  EXPECT_NE(with("nonpad_kv_seqlen", any_tensor(Tensor<std::int64_t>({2}))).find("[2]"), std::string::npos);
  EXPECT_NE(with("V", any_tensor(Tensor<double>({1, 2, 3, 4}))).find("F64"), std::string::npos);
  EXPECT_NE(with("Q", any_tensor(Tensor<float>({1, 2, 2, 4}), DType::f16)).find("F16"), std::string::npos);
}

TEST(onnx_attention, packed_width_that_does_not_split_into_heads_is_refused) {
  const auto packed = any_tensor(Tensor<float>({1, 2, 8}));
  const Tensors inputs{{"Q", packed}, {"K", packed}, {"V", packed}};
  EXPECT_NE(message({"Attention", 23}, inputs).find("q_num_heads"), std::string::npos);
  const std::string text = message({"Attention", 23, R"({"q_num_heads": 3, "kv_num_heads": 2})"}, inputs);
  EXPECT_NE(text.find("8"), std::string::npos);
  EXPECT_NE(text.find("3"), std::string::npos);
}

}  // namespace
}  // namespace regard::onnx
