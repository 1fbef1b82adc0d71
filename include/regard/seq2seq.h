// The sequence-to-sequence Transformer from symbols, or from pictures, to symbols.
// Source: Vaswani et al., "Attention is all you need", 2017.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "regard/dataset.h"
#include "regard/patches.h"
#include "regard/positions.h"
#include "regard/trace.h"
#include "regard/transformer.h"

namespace regard {

struct Seq2SeqConfig {
  LayerConfig layer = {};
  Index encoder_layers = 4;
  Index decoder_layers = 4;
  PositionKind positions = PositionKind::sinusoidal;  // of both stacks (make_positions)
  Index max_length = 256;                             // of either side; longer input is refused
  // One vocabulary for both sides: source and target embeddings and the output
  // weights are one table.
  bool shared_vocabulary = false;
  // Set: sources are pictures. A linear layer over a patch's pixels stands in the
  // place of the source's embeddings.
  PatchSizes patches = {};

  bool reads_pictures() const { return patches.height > 0; }
};

// The sizes of the paper, with its norm behind the sub-layers and its one
// vocabulary: 6 + 6 layers of width 512, 8 heads of 64, feed-forward 2048, dropout
// 0.1; and of width 1024, 16 heads of 64, feed-forward 4096, dropout 0.3.
Seq2SeqConfig transformer_base();
Seq2SeqConfig transformer_large();

// How many numbers a model of these sizes learns, without building it. Throws
// ArgumentError for vocabularies that the model would refuse; sizes are not checked.
// A model of pictures has no source vocabulary (0).
Index weight_count(const Seq2SeqConfig& config, Index source_vocabulary, Index target_vocabulary);

// One of the model's attention layers.
struct AttentionPlace {
  AttentionKind kind = AttentionKind::encoder;
  Index layer = 0;
  bool operator==(const AttentionPlace&) const = default;
};

// What to look at in one run, and what was seen, one entry a layer. In
// cross-attention, query i counts as standing beside key i.
template <class T>
struct SeenAttention {
  struct {
    Observe encoder = {.entropy = true, .weights = true};
    Observe decoder = {.entropy = true, .weights = true};
    Observe cross = {.entropy = true, .weights = true};
  } asked = {};
  std::vector<HeadWeights<T>> encoder = {}, decoder = {}, cross = {};
};

// An experiment: called for every attention layer with what its heads give, to
// change it (see AttentionCall::change).
template <class T>
using HeadChange = std::function<void(const AttentionPlace&, const HeadContext<T>&)>;

template <class T>
struct Inspection {
  SeenAttention<T>* seen = nullptr;
  HeadChange<T> change = {};
};

// What the encoder reads of a batch: symbols, or patches of pictures.
template <class T>
struct SourceBatch {
  // Symbols [batch, seq], padded with Vocabulary::pad.
  SourceBatch(Tensor<std::int64_t> symbols) : ids(std::move(symbols)) {}  // NOLINT: implicit on purpose
  // present [batch, seq] is Vocabulary::pad behind a picture's last patch, else any
  // other number; patches [batch, seq, patch size].
  SourceBatch(Tensor<std::int64_t> present, Tensor<T> rows) : ids(std::move(present)), patches(std::move(rows)) {}

  Tensor<std::int64_t> ids;
  Tensor<T> patches;  // empty: symbols
};

// Target embeddings double as output weights, and as source embeddings where there
// is one vocabulary. Embeddings start as N(0, 1 /
// model_dim) and are scaled by sqrt(model_dim), so that they and the sinusoids
// are of one size: larger ones drown the positions.
template <class T>
class Seq2Seq {
 public:
  // Throws ArgumentError for a shared vocabulary of two sizes (both), for one, or any
  // source vocabulary, beside pictures, and as the layers and check_patches do.
  Seq2Seq(const Seq2SeqConfig& config, Index source_vocabulary, Index target_vocabulary, std::uint64_t seed);
  // Layers hand out pointers to their weights.
  Seq2Seq(const Seq2Seq&) = delete;
  Seq2Seq& operator=(const Seq2Seq&) = delete;

  // source -> memory [batch, seq, model_dim]. Padding is hidden; a row gives the same
  // as alone. Throws ArgumentError for patches where the model reads symbols, and the
  // other way round.
  Var<T> encode(Tape<T>& tape, const SourceBatch<T>& source, const Inspection<T>& inspection = {});
  // `source` are the ids that were encoded: they say what is padding.
  // input [batch, len] -> logits [batch, len, target vocabulary].
  Var<T> decode(Tape<T>& tape, const Var<T>& memory, const Tensor<std::int64_t>& source,
                const Tensor<std::int64_t>& input, const Inspection<T>& inspection = {});

  // Decoding with caches: one row per hypothesis.
  struct State {
    std::vector<DecoderCache<T>> layers;
    Tensor<std::int64_t> source;
    Index position = 0;
    // Row i becomes what row rows[i] was.
    void select(const std::vector<Index>& rows);
  };
  State start(const SourceBatch<T>& source);
  // tokens [rows]: the newest of each row -> logits [rows, 1, target vocabulary].
  Tensor<T> step(State& state, const std::vector<std::int64_t>& tokens);

  Parameters<T> parameters();
  Index weight_count();
  const Seq2SeqConfig& config() const { return config_; }

 private:
  void check_length(Index length, const char* what) const;
  Var<T> place(Tape<T>& tape, const Var<T>& x, Positions<T>& positions, Index first);
  Var<T> embed(Tape<T>& tape, Embedding<T>& table, Positions<T>& positions, const Tensor<std::int64_t>& ids,
               Index first);
  Var<T> embed_source(Tape<T>& tape, const SourceBatch<T>& source);
  Var<T> logits(Tape<T>& tape, const Var<T>& x);

  Seq2SeqConfig config_;
  Random random_;                                     // initial weights, drawn in declaration order
  Linear<T> patch_embedding_;                         // pictures only
  Embedding<T> source_embedding_, target_embedding_;  // one vocabulary: the latter serves both
  std::unique_ptr<Positions<T>> source_positions_, target_positions_;
  std::vector<std::unique_ptr<EncoderLayer<T>>> encoder_;
  std::vector<std::unique_ptr<DecoderLayer<T>>> decoder_;
  LayerNorm<T> encoder_norm_, decoder_norm_;  // after the last layer, pre-norm only
};

}  // namespace regard
