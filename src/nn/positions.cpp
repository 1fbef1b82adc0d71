// Positions that are added to embeddings, and the choice of a scheme.
#include "regard/positions.h"

#include "regard/error.h"

namespace regard {

template <class T>
Var<T> SinusoidalPositions<T>::embed(Tape<T>& tape, const Var<T>& x, Index first) {
  return add_positions(tape, x, sinusoidal_positions<T>(x->value.size(1), x->value.size(2), first));
}

template <class T>
LearnedPositions<T>::LearnedPositions(const std::string& name, Index length, Index model_dim, Random& random)
    : table(name, {length, model_dim}, false) {
  for (T& value : table.value.values()) value = static_cast<T>(0.7 * random.normal());
}

template <class T>
Var<T> LearnedPositions<T>::embed(Tape<T>& tape, const Var<T>& x, Index first) {
  return add_learned_positions(tape, x, table, first);
}

template <class T>
void LearnedPositions<T>::collect(Parameters<T>& list) {
  list.push_back(&table);
}

const char* position_name(PositionKind kind) {
  for (const NamedPositions& named : named_positions)
    if (named.kind == kind) return named.name;
  throw ArgumentError("position_name: no scheme has number " + std::to_string(static_cast<int>(kind)));
}

PositionKind position_kind(const std::string& name) {
  for (const NamedPositions& named : named_positions)
    if (named.name == name) return named.kind;
  throw ArgumentError("unknown positions '" + name + "'");
}

namespace {

RopeFrequencies frequencies_of(const PositionedStack& stack) {
  const Index head_dim = stack.model_dim / stack.heads;
  if (head_dim % 2 != 0)
    throw ArgumentError("rotary positions turn pairs, but model_dim " + std::to_string(stack.model_dim) + " in " +
                        std::to_string(stack.heads) + " heads gives heads of " + std::to_string(head_dim));
  return rope_frequencies(head_dim);
}

constexpr Index shaw_clip = 16;  // of the paper's base model
Index ahead_of(const PositionedStack& stack) { return stack.causal ? 0 : shaw_clip; }

RelativeBuckets buckets_of(const PositionedStack& stack) { return {.bidirectional = !stack.causal}; }

}  // namespace

template <class T>
std::unique_ptr<Positions<T>> make_positions(PositionKind kind, const PositionedStack& stack, Random& random) {
  switch (kind) {
    case PositionKind::sinusoidal: return std::make_unique<SinusoidalPositions<T>>();
    case PositionKind::learned:
      return std::make_unique<LearnedPositions<T>>(stack.name + ".positions", stack.max_length, stack.model_dim,
                                                   random);
    case PositionKind::rotary: return std::make_unique<RotaryPositions<T>>(frequencies_of(stack));
    case PositionKind::alibi:
      return std::make_unique<AlibiPositions<T>>(stack.causal ? AlibiPositions<T>(stack.heads)
                                                              : AlibiPositions<T>::two_sided(stack.heads));
    case PositionKind::t5:
      return std::make_unique<BucketPositions<T>>(stack.name + ".relative_bias", stack.heads, buckets_of(stack),
                                                  random);
    case PositionKind::shaw:
      return std::make_unique<ShawPositions<T>>(stack.name + ".relative_keys",
                                                MultiHeadConfig{.model_dim = stack.model_dim, .heads = stack.heads},
                                                shaw_clip, ahead_of(stack), random);
  }
  throw ArgumentError("make_positions: no scheme has number " + std::to_string(static_cast<int>(kind)));
}

Index position_weights(PositionKind kind, const PositionedStack& stack) {
  switch (kind) {
    case PositionKind::learned: return stack.max_length * stack.model_dim;
    case PositionKind::t5: return buckets_of(stack).buckets * stack.heads;
    case PositionKind::shaw: return (shaw_clip + 1 + ahead_of(stack)) * stack.model_dim;
    default: return 0;
  }
}

#define REGARD_INSTANTIATE(T)            \
  template class SinusoidalPositions<T>; \
  template class LearnedPositions<T>;    \
  template std::unique_ptr<Positions<T>> make_positions(PositionKind, const PositionedStack&, Random&);
REGARD_INSTANTIATE(float)
REGARD_INSTANTIATE(double)
#undef REGARD_INSTANTIATE

}  // namespace regard
