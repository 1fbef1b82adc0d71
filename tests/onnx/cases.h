// The ONNX project's own cases, read from tests/data/onnx, and how their outputs
// are compared. `exact` is the operator evaluated in float64 from the stored
// inputs (tests/data/onnx/README.md).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/file.h"
#include "regard/onnx.h"
#include "regard/safetensors.h"

namespace regard::onnx {

// How GoogleTest names an operator case.
struct Case {
  std::string name;
  Index opset = 0;
  std::string attributes;
  std::vector<std::string> inputs, outputs;
};
inline void PrintTo(const Case& one, std::ostream* stream) { *stream << one.name; }

// `op` names the folder: "attention".
inline std::string folder_of(const std::string& op) { return std::string(REGARD_TEST_DATA) + "/onnx/" + op + "/"; }

inline std::vector<Case> cases(const std::string& op) {
  std::vector<Case> all;
  const auto index = nlohmann::json::parse(read_file(folder_of(op) + "index.json"));
  for (const auto& entry : index.at("cases")) {
    Case one{entry.at("name"), entry.at("opset"), entry.at("attributes").dump(), {}, {}};
    for (const auto& input : entry.at("inputs")) one.inputs.push_back(input.at("name"));
    for (const auto& output : entry.at("outputs")) one.outputs.push_back(output.at("name"));
    all.push_back(one);
  }
  return all;
}

inline Tensors inputs_of(const Case& one, const TensorFile& file) {
  Tensors inputs;
  for (const std::string& name : one.inputs) inputs[name] = file.at(name);
  return inputs;
}

// Half a unit in the last place of a result that is rounded once.
inline double rounding_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0; }

// |got - wanted| <= atol + rtol * |wanted|; equal infinities match, NaN never does.
struct Tolerance {
  double relative = 1e-5, absolute = 1e-6;
};
inline void expect_close(const std::string& what, const AnyTensor& got, const AnyTensor& wanted,
                         const Tolerance& tolerance = {}) {
  ASSERT_EQ(got.shape, wanted.shape) << what;
  const auto ours = to_double(got, what), right = to_double(wanted, what);
  const double relative = tolerance.relative + rounding_of(got.dtype);
  for (Index i = 0; i < ours.count(); ++i) {
    const bool close =
        ours[i] == right[i] || std::abs(ours[i] - right[i]) <= tolerance.absolute + relative * std::abs(right[i]);
    ASSERT_TRUE(close && std::isfinite(right[i]) == std::isfinite(ours[i]))
        << what << "[" << i << "] is " << ours[i] << ", right is " << right[i];
  }
}

inline void expect_case(const Case& one, const TensorFile& file, const Tensors& got, const Tolerance& tolerance = {}) {
  for (const std::string& name : one.outputs) {
    const AnyTensor& stored = file.at("out." + name);
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).dtype, stored.dtype) << name;
    if (file.has("exact." + name)) {
      expect_close(name, got.at(name), file.at("exact." + name), tolerance);
    } else {
      EXPECT_EQ(got.at(name).shape, stored.shape) << name;
      EXPECT_TRUE(got.at(name).bytes == stored.bytes) << name << " is not a copy, bit for bit";
    }
  }
}

}  // namespace regard::onnx
