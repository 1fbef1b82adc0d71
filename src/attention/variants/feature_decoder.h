// The recurrent form of attention through features: states that are kept from
// step to step.
#pragma once

#include <string>
#include <vector>

#include "attention/variants/feature_attention.h"
#include "regard/error.h"

namespace regard::detail {

class FeatureSteps {
 public:
  explicit FeatureSteps(const char* name) : name_(name) {}

  Tensor<float> step(const LinearInputs& inputs, const FeatureMap& map) {
    const FeatureCall call = make_feature_call(name_, inputs, {.causal = true}, map);
    const Sizes& now = call.sizes;
    if (now.q_len != now.kv_len)
      throw ArgumentError(std::string(name_) + ": q has " + std::to_string(now.q_len) + " new tokens but k has " +
                          std::to_string(now.kv_len) + " (q " + inputs.q.text() + ", k " + inputs.k.text() + ")");
    const Shape sizes{now.batch, now.q_heads, now.kv_heads, now.head_dim, now.value_dim};
    if (states_.empty()) {
      sizes_ = sizes;
      states_.resize(static_cast<std::size_t>(now.batch * now.kv_heads));
      for (FeatureState& state : states_) state.reset(map.count(), now.value_dim);
    }
    if (sizes != sizes_)
      throw ArgumentError(std::string(name_) + ": [batch,q_heads,kv_heads,head_dim,value_dim] was " +
                          shape_text(sizes_) + " in the first step and is " + shape_text(sizes));
    return feature_step(call, states_).out;
  }

 private:
  const char* name_;
  Shape sizes_;
  std::vector<FeatureState> states_;  // [batch * kv_heads]
};

}  // namespace regard::detail
