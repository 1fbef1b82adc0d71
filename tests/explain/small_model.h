// Small models in double, with every weight known by its name.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "regard/experiments.h"
#include "regard/random.h"

namespace regard::testing {

using Network = Seq2Seq<double>;

constexpr Index small_width = 8, small_heads = 2, small_dim = small_width / small_heads;
// pad, begin, end, unknown, then three symbols.
constexpr Index small_vocabulary = 7;

inline Seq2SeqConfig small_sizes(NormPlace norm = NormPlace::pre) {
  Seq2SeqConfig config;
  config.layer = {.model_dim = small_width, .heads = small_heads, .hidden = 12, .norm = norm, .dropout = 0.3};
  config.encoder_layers = config.decoder_layers = 2;
  config.max_length = 12;
  return config;
}

inline Parameter<double>& weight_named(Network& network, const std::string& name) {
  for (Parameter<double>* parameter : network.parameters())
    if (parameter->name == name) return *parameter;
  ADD_FAILURE() << "no weight " << name;
  return *network.parameters().front();
}

// Weights as drawn and shaken, so that no bias is 0 and answers differ.
inline std::unique_ptr<Network> small_network(const Seq2SeqConfig& config = small_sizes(), std::uint64_t seed = 3) {
  auto network = std::make_unique<Network>(config, small_vocabulary, small_vocabulary, seed);
  Random random(seed + 1);
  for (Parameter<double>* parameter : network->parameters())
    for (double& value : parameter->value.values()) value += 0.4 * random.normal();
  return network;
}

inline std::vector<AnsweredText> small_texts() {
  return {{{4, 5, 6, 4, 5}, {5, 6, 4}}, {{6}, {4, 4, 5, 6}}, {{5, 6, 6}, {6}}};
}

// Probabilities of one text alone, in plain loops around the model.
inline std::vector<std::vector<double>> alone(Network& network, const std::vector<std::int64_t>& source,
                                              const std::vector<std::int64_t>& answer) {
  std::vector<std::int64_t> input{Vocabulary::begin};
  input.insert(input.end(), answer.begin(), answer.end());
  Tape<double> tape;
  const Tensor<std::int64_t> ids({1, static_cast<Index>(source.size())}, source);
  const Tensor<std::int64_t> given({1, static_cast<Index>(input.size())}, input);
  const auto logits = network.decode(tape, network.encode(tape, ids), ids, given)->value;
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i < input.size(); ++i) {
    double sum = 0;
    std::vector<double> p;
    for (Index c = 0; c < small_vocabulary; ++c)
      sum += p.emplace_back(std::exp(logits[static_cast<Index>(i) * small_vocabulary + c]));
    for (double& value : p) value /= sum;
    rows.push_back(p);
  }
  return rows;
}

inline std::int64_t answered(const AnsweredText& text, std::size_t place) {
  return place < text.answer.size() ? text.answer[place] : Vocabulary::end;
}

}  // namespace regard::testing
