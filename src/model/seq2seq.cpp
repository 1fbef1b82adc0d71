#include "regard/seq2seq.h"

#include <algorithm>
#include <cmath>

#include "regard/error.h"

namespace regard {
namespace {

// No mask at all where nothing is padded: the kernels then skip the test.
Mask source_mask(const Tensor<std::int64_t>& source) {
  const auto ids = source.values();
  if (std::find(ids.begin(), ids.end(), Vocabulary::pad) == ids.end()) return {};
  return padding(source.view<2>(), Vocabulary::pad);
}

// The part of an inspection that concerns one layer.
template <class T>
void inspect(AttentionCall<T>& call, const AttentionPlace& place, const Inspection<T>& inspection) {
  if (inspection.change)
    call.change = [&inspection, place](const HeadContext<T>& heads) { inspection.change(place, heads); };
  SeenAttention<T>* seen = inspection.seen;
  if (!seen) return;
  switch (place.kind) {
    case AttentionKind::encoder:
      call.observe = seen->asked.encoder;
      call.seen = &seen->encoder.emplace_back();
      break;
    case AttentionKind::decoder:
      call.observe = seen->asked.decoder;
      call.seen = &seen->decoder.emplace_back();
      break;
    case AttentionKind::cross: call.observe = seen->asked.cross; call.seen = &seen->cross.emplace_back();
  }
}

void check_vocabularies(const Seq2SeqConfig& config, Index source, Index target) {
  if (config.shared_vocabulary && source != target)
    throw ArgumentError("a shared vocabulary has one size, not " + std::to_string(source) + " of the source and " +
                        std::to_string(target) + " of the target");
  if (config.reads_pictures() && config.shared_vocabulary)
    throw ArgumentError("pictures share no vocabulary with the target: shared_vocabulary must be false");
  if (config.reads_pictures() && source != 0)
    throw ArgumentError("a model of pictures has no source vocabulary, not one of " + std::to_string(source));
}

// The two stacks, as far as positions are concerned.
PositionedStack encoder_stack(const Seq2SeqConfig& config) {
  return {"encoder", config.layer.model_dim, config.layer.heads, config.max_length, false};
}
PositionedStack decoder_stack(const Seq2SeqConfig& config) {
  return {"decoder", config.layer.model_dim, config.layer.heads, config.max_length, true};
}

Seq2SeqConfig published(const LayerConfig& layer) {
  return {.layer = layer, .encoder_layers = 6, .decoder_layers = 6, .shared_vocabulary = true};
}

}  // namespace

Seq2SeqConfig transformer_base() {
  return published({.model_dim = 512, .heads = 8, .hidden = 2048, .norm = NormPlace::post});
}

Seq2SeqConfig transformer_large() {
  return published({.model_dim = 1024, .heads = 16, .hidden = 4096, .norm = NormPlace::post, .dropout = 0.3});
}

Index weight_count(const Seq2SeqConfig& config, Index source_vocabulary, Index target_vocabulary) {
  check_vocabularies(config, source_vocabulary, target_vocabulary);
  const Index width = config.layer.model_dim, hidden = config.layer.hidden;
  const Index tokens = config.shared_vocabulary ? target_vocabulary : source_vocabulary + target_vocabulary;
  const Index patches = config.reads_pictures() ? config.patches.size() + 1 : 0;
  const Index positions = position_weights(config.positions, encoder_stack(config)) +
                          position_weights(config.positions, decoder_stack(config));
  const Index attention = 4 * (width * width + width), norm = 2 * width;
  const Index feed_forward = 2 * width * hidden + hidden + width;
  const Index last_norms = config.layer.norm == NormPlace::pre ? 2 * norm : 0;
  return (tokens + patches) * width + positions + config.encoder_layers * (attention + feed_forward + 2 * norm) +
         config.decoder_layers * (2 * attention + feed_forward + 3 * norm) + last_norms;
}

template <class T>
Seq2Seq<T>::Seq2Seq(const Seq2SeqConfig& config, Index source_vocabulary, Index target_vocabulary, std::uint64_t seed)
    : config_(config), random_(seed) {
  check_vocabularies(config, source_vocabulary, target_vocabulary);
  check_patches(config.patches);
  const Index width = config.layer.model_dim;
  if (config.reads_pictures())
    patch_embedding_ = Linear<T>("encoder.patches", config.patches.size(), width, random_);
  else if (!config.shared_vocabulary)
    source_embedding_ = Embedding<T>("encoder.embedding", source_vocabulary, width, random_);
  target_embedding_ =
      Embedding<T>(config.shared_vocabulary ? "embedding" : "decoder.embedding", target_vocabulary, width, random_);
  source_positions_ = make_positions<T>(config.positions, encoder_stack(config), random_);
  target_positions_ = make_positions<T>(config.positions, decoder_stack(config), random_);
  for (Index i = 0; i < config.encoder_layers; ++i)
    encoder_.push_back(std::make_unique<EncoderLayer<T>>("encoder." + std::to_string(i), config.layer, random_));
  for (Index i = 0; i < config.decoder_layers; ++i)
    decoder_.push_back(std::make_unique<DecoderLayer<T>>("decoder." + std::to_string(i), config.layer, random_));
  if (config.layer.norm == NormPlace::post) return;
  encoder_norm_ = LayerNorm<T>("encoder.norm", width);
  decoder_norm_ = LayerNorm<T>("decoder.norm", width);
}

template <class T>
void Seq2Seq<T>::check_length(Index length, const char* what) const {
  if (length > config_.max_length)
    throw ArgumentError("sequence of " + std::to_string(length) + " " + what + " is longer than the model's " +
                        std::to_string(config_.max_length));
}

// x [batch, seq, model_dim] at positions from `first` on.
template <class T>
Var<T> Seq2Seq<T>::place(Tape<T>& tape, const Var<T>& x, Positions<T>& positions, Index first) {
  return dropout(tape, positions.embed(tape, x, first), config_.layer.dropout);
}

template <class T>
Var<T> Seq2Seq<T>::embed(Tape<T>& tape, Embedding<T>& table, Positions<T>& positions, const Tensor<std::int64_t>& ids,
                         Index first) {
  check_length(first + ids.size(1), "symbols");
  const auto scale = std::sqrt(static_cast<double>(config_.layer.model_dim));
  return place(tape, table.forward(tape, ids, scale), positions, first);
}

template <class T>
Var<T> Seq2Seq<T>::embed_source(Tape<T>& tape, const SourceBatch<T>& source) {
  if (source.patches.empty() == config_.reads_pictures())
    throw ArgumentError(config_.reads_pictures() ? "the model reads pictures, but its source are symbols"
                                                 : "the model reads symbols, but its source are patches of pictures");
  if (!config_.reads_pictures())
    return embed(tape, config_.shared_vocabulary ? target_embedding_ : source_embedding_, *source_positions_,
                 source.ids, 0);
  check_length(source.ids.size(1), "patches");
  const auto pixels = tape.node(source.patches);
  pixels->wants_gradient = false;
  return place(tape, patch_embedding_.forward(tape, pixels), *source_positions_, 0);
}

template <class T>
Var<T> Seq2Seq<T>::encode(Tape<T>& tape, const SourceBatch<T>& source, const Inspection<T>& inspection) {
  auto x = embed_source(tape, source);
  AttentionCall<T> call{.mask = source_mask(source.ids), .positions = source_positions_.get()};
  for (std::size_t i = 0; i < encoder_.size(); ++i) {
    inspect(call, {AttentionKind::encoder, static_cast<Index>(i)}, inspection);
    x = encoder_[i]->forward(tape, x, call);
  }
  return config_.layer.norm == NormPlace::pre ? encoder_norm_.forward(tape, x) : x;
}

template <class T>
Var<T> Seq2Seq<T>::logits(Tape<T>& tape, const Var<T>& x) {
  const auto y = config_.layer.norm == NormPlace::pre ? decoder_norm_.forward(tape, x) : x;
  return project_onto(tape, y, target_embedding_.table);
}

template <class T>
Var<T> Seq2Seq<T>::decode(Tape<T>& tape, const Var<T>& memory, const Tensor<std::int64_t>& source,
                          const Tensor<std::int64_t>& input, const Inspection<T>& inspection) {
  auto x = embed(tape, target_embedding_, *target_positions_, input, 0);
  AttentionCall<T> self{.mask = causal(), .positions = target_positions_.get()},
      cross{.mask = source_mask(source), .q_start = top_left()};
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    inspect(self, {AttentionKind::decoder, static_cast<Index>(i)}, inspection);
    inspect(cross, {AttentionKind::cross, static_cast<Index>(i)}, inspection);
    x = decoder_[i]->forward(tape, x, memory, self, cross);
  }
  return logits(tape, x);
}

template <class T>
void Seq2Seq<T>::State::select(const std::vector<Index>& rows) {
  // Caches first: they refuse rows that do not exist.
  for (DecoderCache<T>& layer : layers) {
    if (layer.self.length > 0) layer.self.select(rows);
    layer.memory.select(rows);
  }
  const Index length = source.size(1);
  auto kept = Tensor<std::int64_t>::uninitialised({static_cast<Index>(rows.size()), length});
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(source.data() + rows[i] * length, length, kept.data() + static_cast<Index>(i) * length);
  source = std::move(kept);
}

template <class T>
typename Seq2Seq<T>::State Seq2Seq<T>::start(const SourceBatch<T>& source) {
  Tape<T> tape;
  const auto memory = encode(tape, source);
  State state;
  state.source = source.ids;
  for (auto& layer : decoder_) state.layers.push_back({{}, layer->cross_attention.remember(tape, memory)});
  return state;
}

template <class T>
Tensor<T> Seq2Seq<T>::step(State& state, const std::vector<std::int64_t>& tokens) {
  Tape<T> tape;
  const Tensor<std::int64_t> ids({static_cast<Index>(tokens.size()), 1}, tokens);
  auto x = embed(tape, target_embedding_, *target_positions_, ids, state.position++);
  const AttentionCall<T> self{.positions = target_positions_.get()}, cross{.mask = source_mask(state.source)};
  for (std::size_t i = 0; i < decoder_.size(); ++i) x = decoder_[i]->step(tape, x, state.layers[i], self, cross);
  return std::move(logits(tape, x)->value);
}

template <class T>
Parameters<T> Seq2Seq<T>::parameters() {
  Parameters<T> list;
  if (config_.reads_pictures())
    patch_embedding_.collect(list);
  else if (!config_.shared_vocabulary)
    source_embedding_.collect(list);
  target_embedding_.collect(list);
  source_positions_->collect(list);
  target_positions_->collect(list);
  for (auto& layer : encoder_) layer->collect(list);
  for (auto& layer : decoder_) layer->collect(list);
  if (config_.layer.norm == NormPlace::pre) {
    encoder_norm_.collect(list);
    decoder_norm_.collect(list);
  }
  return list;
}

template <class T>
Index Seq2Seq<T>::weight_count() {
  Index count = 0;
  for (const Parameter<T>* parameter : parameters()) count += parameter->value.count();
  return count;
}

template class Seq2Seq<float>;
template class Seq2Seq<double>;

}  // namespace regard
