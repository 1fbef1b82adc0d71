// Sizes and vocabularies as JSON, the same in model.json and training.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "regard/model.h"
#include "regard/safetensors.h"

namespace regard::detail {

nlohmann::json model_json(const Model& model);
// Throws FileError naming `path` for a missing or impossible entry.
Model model_from_json(const nlohmann::json& json, const std::string& path);
// Throws FileError naming file and tensor for one that is missing, of another
// shape or no floating-point type.
Tensor<float> load_tensor(const TensorFile& file, const std::string& name, const Shape& shape);

// Copies tensors into parameters by name, as load_tensor does. Names carry `prefix` in the file.
void load_parameters(const TensorFile& file, const std::string& prefix, const Parameters<float>& parameters);

// Throws FileError for a tensor that is no parameter's.
void refuse_strangers(const TensorFile& file, const Parameters<float>& parameters);

}  // namespace regard::detail
