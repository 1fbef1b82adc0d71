#include "model_heads.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "regard/dataset.h"
#include "regard/error.h"
#include "regard/file.h"

namespace regard::bench {
namespace {

// Columns [first, first + heads * dim) of rows of `width` numbers into heads
// [at, at + heads) of `to`, its tokens from `start` on.
void copy_heads(const Tensor<float>& from, Index first, Tensor<float>& to, Index at, Index heads) {
  const Index tokens = from.size(1), width = from.size(2), length = to.size(2), dim = to.size(3);
  for (Index h = 0; h < heads; ++h)
    for (Index t = 0; t < tokens; ++t)
      std::copy_n(from.data() + t * width + first + h * dim, dim, to.data() + ((at + h) * length + t) * dim);
}

// Tokens of `from` behind the first `start` of `to`, as many as there is room for.
void append(const Tensor<float>& from, Tensor<float>& to, Index start) {
  const Index heads = to.size(1), length = to.size(2), dim = to.size(3);
  const Index tokens = std::min(from.size(2), length - start);
  for (Index h = 0; h < heads; ++h)
    std::copy_n(from.data() + h * from.size(2) * dim, tokens * dim, to.data() + (h * length + start) * dim);
}

double largest_difference(const Tensor<float>& a, const Tensor<float>& b) {
  double most = 0;
  for (Index i = 0; i < a.count(); ++i) most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
  return most;
}

}  // namespace

ModelHeads::ModelHeads(const std::string& folder) : model_(load_model(folder)) {
  const Seq2SeqConfig& config = model_.config;
  if (config.positions != PositionKind::sinusoidal || config.layer.norm != NormPlace::pre)
    throw ArgumentError(folder + ": only models with sinusoidal positions and pre-norm are looked into");
  embedding_ = Embedding<float>("encoder.embedding", model_.source.size(), config.layer.model_dim, random_);
  for (Index i = 0; i < config.encoder_layers; ++i)
    layers_.push_back(std::make_unique<EncoderLayer<float>>("encoder." + std::to_string(i), config.layer, random_));
  norm_ = LayerNorm<float>("encoder.norm", config.layer.model_dim);
  Parameters<float> own;
  embedding_.collect(own);
  for (auto& layer : layers_) layer->collect(own);
  norm_.collect(own);
  std::map<std::string, const Parameter<float>*> trained;
  for (const Parameter<float>* parameter : model_.network->parameters()) trained[parameter->name] = parameter;
  for (Parameter<float>* parameter : own) parameter->value = trained.at(parameter->name)->value;
}

Var<float> ModelHeads::project(Tape<float>& tape, const Var<float>& x, std::size_t layer, Heads& heads) {
  EncoderLayer<float>& encoder = *layers_[layer];
  const auto y = encoder.attention_norm.forward(tape, x);
  const auto q = encoder.attention.query.forward(tape, y), kv = encoder.attention.key_value.forward(tape, y);
  const Index count = model_.config.layer.heads, at = static_cast<Index>(layer) * count;
  copy_heads(q->value, 0, heads.q, at, count);
  copy_heads(kv->value, 0, heads.k, at, count);
  copy_heads(kv->value, model_.config.layer.model_dim, heads.v, at, count);
  return encoder.forward(tape, x);
}

Heads ModelHeads::of_word(const std::string& word) {
  const auto ids = padded_ids({model_.source_ids(word)});
  const Shape shape{1, head_count(), ids.size(1), head_dim()};
  Heads heads{Tensor<float>(shape), Tensor<float>(shape), Tensor<float>(shape)};
  Tape<float> tape;
  const Index width = model_.config.layer.model_dim;
  auto x = add_positions(tape, embedding_.forward(tape, ids, std::sqrt(static_cast<double>(width))),
                         sinusoidal_positions<float>(ids.size(1), width));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) x = project(tape, x, layer, heads);
  const double difference = largest_difference(norm_.forward(tape, x)->value, model_.network->encode(tape, ids)->value);
  if (!(difference < 1e-4))
    throw Error("the encoder built here differs from the model's own by " + std::to_string(difference));
  return heads;
}

Heads ModelHeads::of_words(const std::vector<std::string>& words, Index length) {
  const Shape shape{1, head_count(), length, head_dim()};
  Heads all{Tensor<float>(shape), Tensor<float>(shape), Tensor<float>(shape)};
  Index filled = 0;
  for (const std::string& word : words) {
    if (filled >= length) return all;
    const Heads one = of_word(word);
    append(one.q, all.q, filled);
    append(one.k, all.k, filled);
    append(one.v, all.v, filled);
    filled += one.q.size(2);
  }
  if (filled < length)
    throw ArgumentError("words of " + std::to_string(filled) + " letters do not fill " + std::to_string(length));
  return all;
}

Heads ModelHeads::of_beginnings(const std::vector<std::string>& words, Index length) {
  const Shape shape{static_cast<Index>(words.size()), head_count(), length, head_dim()};
  Heads all{Tensor<float>(shape), Tensor<float>(shape), Tensor<float>(shape)};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (static_cast<Index>(words[i].size()) < length)
      throw ArgumentError(words[i] + " is shorter than " + std::to_string(length));
    const Heads one = of_word(words[i].substr(0, static_cast<std::size_t>(length)));
    const auto copy = [&](const Tensor<float>& from, Tensor<float>& to) {
      std::copy_n(from.data(), from.count(), to.data() + static_cast<Index>(i) * from.count());
    };
    copy(one.q, all.q);
    copy(one.k, all.k);
    copy(one.v, all.v);
  }
  return all;
}

std::vector<std::string> words_of(const std::string& path, std::size_t letters) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (word.size() >= letters) words.push_back(word);
    word.clear();
  };
  for (char c : read_file(path)) {
    if (std::isalpha(static_cast<unsigned char>(c)))
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else
      end_word();
  }
  end_word();
  return words;
}

}  // namespace regard::bench
