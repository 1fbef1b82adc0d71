// Small models, small data and one-line errors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "model/folder.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/random.h"
#include "regard/training.h"

namespace regard::testing {

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// The message of the E that `body` must throw: one line.
template <class E, class F>
std::string message_of(F body) {
  try {
    body();
  } catch (const E& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
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
