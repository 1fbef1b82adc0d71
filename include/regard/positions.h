// How the layers of a stack (an encoder or a decoder) know where their tokens stand:
// by what is added to the embeddings (sinusoidal, learned), or inside every
// self-attention (rotary, ALiBi, T5's buckets, Shaw's vectors). Cross-attention takes no positions.
//
//   RotaryPositions<float> rotary(rope_frequencies(16));
//   layer.self(tape, x, {.mask = causal(), .positions = &rotary});
//
// One object serves all layers of a stack, and must outlive the way back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "regard/multi_head.h"
#include "regard/relative_bias.h"
#include "regard/rope.h"

namespace regard {

// A number for every pair, [batch, heads, q_len, kv_len], and its gradient after a
// backward pass.
template <class T>
struct PairScores {
  Tensor<T> value, gradient;
};

// What is done to scores, and who learns it: tables[n] gets the gradient of modifier
// n, laid out like it; null where it learns nothing.
template <class T>
struct LearnedScore {
  ScoreModifiers modifiers = {};
  std::vector<Parameter<T>*> tables = {};
  std::shared_ptr<PairScores<T>> bias = {};  // none: nothing is added
};

// A scheme does what it overrides; the rest leaves everything as it is.
template <class T>
class Positions {
 public:
  virtual ~Positions() = default;
  // x [batch, seq, model_dim], embeddings of positions first, first + 1, ...
  virtual Var<T> embed(Tape<T>&, const Var<T>& x, Index /*first*/) { return x; }
  // Prepares one self-attention. q [batch, seq, heads * head_dim], and keys and
  // values kv [batch, seq, 2 * kv_heads * head_dim], of tokens at first, first + 1,
  // ... are changed in place: nobody else may hold the two. They will see keys from
  // position 0 on. Gives what is done to their scores.
  virtual LearnedScore<T> prepare(Tape<T>&, const MultiHeadConfig&, const Var<T>& /*q*/, const Var<T>& /*kv*/,
                                  Index /*first*/) {
    return {};
  }
  virtual void collect(Parameters<T>&) {}
};

// Added to embeddings (sinusoidal_positions in layers.h).
template <class T>
class SinusoidalPositions final : public Positions<T> {
 public:
  Var<T> embed(Tape<T>& tape, const Var<T>& x, Index first) override;
};

// A vector for each of `length` positions, added to embeddings. Starts as N(0, 0.7^2),
// the size of sinusoids.
template <class T>
class LearnedPositions final : public Positions<T> {
 public:
  LearnedPositions(const std::string& name, Index length, Index model_dim, Random& random);
  Var<T> embed(Tape<T>& tape, const Var<T>& x, Index first) override;
  void collect(Parameters<T>& list) override;

  Parameter<T> table;  // [length, model_dim]
};

// Queries and keys turn (rope.h); keys enter a cache turned. Throws ArgumentError
// where the pairs need more than head_dim. Source: Su et al., "RoFormer", 2021.
template <class T>
class RotaryPositions final : public Positions<T> {
 public:
  explicit RotaryPositions(RopeFrequencies given, RopePairing given_pairing = RopePairing::half_split);
  LearnedScore<T> prepare(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv,
                          Index first) override;

  RopeFrequencies frequencies;
  RopePairing pairing;
};

// score - slope[head] * |query - key|, with a slope for keys at and before the query
// and one for keys after it. Equal slopes on both sides leave an encoder blind to
// direction: a sentence read backwards gives the same vectors backwards, and a
// decoder that looks at them without positions answers both alike.
// Source: Press, Smith, Lewis, "Train short, test long", ICLR 2022, which defines
// ALiBi for causal attention only and says nothing of keys after the query.
template <class T>
class AlibiPositions final : public Positions<T> {
 public:
  // The published slopes, the same for both sides: for causal attention.
  explicit AlibiPositions(Index heads);
  // For both directions: the published slopes of twice as many heads, two a head,
  // the steepest with the gentlest. Even heads take the steeper for keys before the
  // query and so look ahead, odd heads for keys after it and look back.
  static AlibiPositions two_sided(Index heads);
  LearnedScore<T> prepare(Tape<T>&, const MultiHeadConfig&, const Var<T>&, const Var<T>&, Index) override {
    return {modifiers_, {nullptr}};
  }

 private:
  explicit AlibiPositions(ScoreModifiers modifiers) : modifiers_(std::move(modifiers)) {}
  ScoreModifiers modifiers_;
};

// score + table[bucket of the distance, head]: one table for all layers of the
// stack, as in T5 (Raffel et al., 2020). Starts as N(0, 1). T5 leaves scores
// undivided by sqrt(head_dim); here they are divided: its queries are these times
// sqrt(head_dim).
template <class T>
class BucketPositions final : public Positions<T> {
 public:
  BucketPositions(const std::string& name, Index heads, const RelativeBuckets& given_rule, Random& random);
  LearnedScore<T> prepare(Tape<T>&, const MultiHeadConfig&, const Var<T>&, const Var<T>&, Index) override;
  void collect(Parameters<T>& list) override;

  RelativeBuckets rule;
  Parameter<T> table;  // [buckets, heads]
};

// score + q . vector of the distance / sqrt(head_dim): a vector for each head and
// each distance from -clip to `ahead`, farther ones using the nearest. One table for
// all layers of the stack; starts as N(0, 0.7^2). Builds a number for every pair.
// Source: Shaw, Uszkoreit, Vaswani, "Self-attention with relative position
// representations", 2018, whose vectors of keys these are; there, values have some
// too, which would take part in what a key contributes beside its weight.
template <class T>
class ShawPositions final : public Positions<T> {
 public:
  // `sizes`: those of the layers. Throws ArgumentError for a negative clip or ahead.
  ShawPositions(const std::string& name, const MultiHeadConfig& sizes, Index clip, Index ahead, Random& random);
  LearnedScore<T> prepare(Tape<T>& tape, const MultiHeadConfig& config, const Var<T>& q, const Var<T>& kv,
                          Index first) override;
  void collect(Parameters<T>& list) override;

  Index clip;
  Parameter<T> vectors;  // [heads, clip + 1 + ahead, head_dim]
};

enum class PositionKind { sinusoidal, learned, rotary, alibi, t5, shaw };

// Their names in files and on the command line.
struct NamedPositions {
  PositionKind kind;
  const char* name;
};
inline constexpr NamedPositions named_positions[] = {
    {PositionKind::sinusoidal, "sinusoidal"}, {PositionKind::learned, "learned"}, {PositionKind::rotary, "rotary"},
    {PositionKind::alibi, "alibi"},           {PositionKind::t5, "t5"},           {PositionKind::shaw, "shaw"}};
const char* position_name(PositionKind kind);
// Throws ArgumentError for a name that none has.
PositionKind position_kind(const std::string& name);

// A stack of layers, as far as positions are concerned.
struct PositionedStack {
  std::string name;  // "encoder" or "decoder": that of parameters begins with it
  Index model_dim = 0, heads = 0;
  Index max_length = 0;
  bool causal = false;  // no query sees a key after itself
};

// Rotary: whole heads, half-split, base 10000. T5: 32 buckets up to distance 128,
// for keys after the query as well unless the stack is causal. ALiBi is two-sided
// unless the stack is causal. Shaw: distances up to 16, ahead as well unless the
// stack is causal. Throws ArgumentError where heads of odd size should turn.
template <class T>
std::unique_ptr<Positions<T>> make_positions(PositionKind kind, const PositionedStack& stack, Random& random);
// How many numbers they learn.
Index position_weights(PositionKind kind, const PositionedStack& stack);

}  // namespace regard
