// Small models, small data and what a run leaves behind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "files.h"
#include "regard/model.h"
#include "regard/random.h"
#include "regard/training.h"

namespace regard::testing {

// The tensors of the checkpoint in a run's folder: the one file of its kind.
inline std::string tensors_of(const std::string& run) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("training") && name != "training.json") found.push_back(name);
  }
  EXPECT_EQ(found.size(), 1u) << run;
  return run + "/" + (found.empty() ? "none" : found.front());
}

// The finished runs in two folders are the same to the byte.
inline void expect_same_run(const std::string& a, const std::string& b) {
  for (const char* name : {"/model.safetensors", "/model.json", "/training.json"}) {
    ASSERT_FALSE(bytes_of(a + name).empty()) << name;
    EXPECT_TRUE(bytes_of(a + name) == bytes_of(b + name)) << name << " differs";
  }
  EXPECT_TRUE(bytes_of(tensors_of(a)) == bytes_of(tensors_of(b))) << tensors_of(a) << " differs";
}

// Two layers of width 32, without dropout.
inline Seq2SeqConfig toy_sizes(NormPlace norm = NormPlace::pre, PositionKind positions = PositionKind::sinusoidal) {
  Seq2SeqConfig config;
  config.layer = {.model_dim = 32, .heads = 4, .hidden = 64, .norm = norm, .dropout = 0.0};
  config.encoder_layers = config.decoder_layers = 2;
  config.positions = positions;
  config.max_length = 40;
  return config;
}

// `count` words of 1 to `longest` letters a to e; the target is the word backwards.
inline Dataset reversals(Index count, std::uint64_t seed, std::uint64_t longest = 4) {
  Random random(seed);
  Dataset data;
  for (Index i = 0; i < count; ++i) {
    Example example;
    for (std::uint64_t left = 1 + random.below(longest); left > 0; --left)
      example.source.push_back(std::string(1, static_cast<char>('a' + random.below(5))));
    for (const std::string& letter : example.source) example.text += letter;
    example.target.assign(example.source.rbegin(), example.source.rend());
    data.examples.push_back(std::move(example));
  }
  return data;
}

// An untrained model over the letters a to e, with weights large enough for
// answers to differ.
inline Model toy_model(const Seq2SeqConfig& sizes = toy_sizes(), std::uint64_t seed = 3) {
  Model model;
  model.name = "toy";
  model.source = model.target = Vocabulary({"a", "b", "c", "d", "e"});
  model.config = sizes;
  model.make_network(seed);
  return model;
}

}  // namespace regard::testing
