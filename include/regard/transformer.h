// Encoder and decoder layers, and stacks of them.
// Pre-norm (x + f(norm(x)), and a norm after the last layer) trains without
// care; post-norm (norm(x + f(x))) is the layout of 2017.
#pragma once

#include <string>
#include <vector>

#include "regard/layers.h"
#include "regard/multi_head.h"

namespace regard {

enum class NormPlace { pre, post };

struct LayerConfig {
  Index model_dim = 128;
  Index heads = 4;
  Index hidden = 512;  // inner width of the feed-forward
  NormPlace norm = NormPlace::pre;
  Activation activation = Activation::relu;
  double dropout = 0.1;            // of every residual branch
  double attention_dropout = 0.0;  // of attention weights
};

template <class T>
class EncoderLayer {
 public:
  EncoderLayer(const std::string& name, const LayerConfig& config, Random& random);
  // x [batch, seq, model_dim] -> the same shape.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const AttentionCall<T>& call = {});
  void collect(Parameters<T>& list);

  LayerConfig config;
  MultiHeadAttention<T> attention;
  FeedForward<T> feed_forward;
  LayerNorm<T> attention_norm, feed_forward_norm;
};

// Caches of one decoder layer while decoding.
template <class T>
struct DecoderCache {
  KeyValueCache<T> self, memory;
};

template <class T>
class DecoderLayer {
 public:
  DecoderLayer(const std::string& name, const LayerConfig& config, Random& random);
  // x [batch, q_len, model_dim] sees itself through `self` (causal, as a rule)
  // and memory [batch, kv_len, model_dim] through `cross`.
  Var<T> forward(Tape<T>& tape, const Var<T>& x, const Var<T>& memory, const AttentionCall<T>& self,
                 const AttentionCall<T>& cross);
  // New tokens only, against the caches; they see themselves causally.
  Var<T> step(Tape<T>& tape, const Var<T>& x, DecoderCache<T>& cache, const AttentionCall<T>& self,
              const AttentionCall<T>& cross);
  void collect(Parameters<T>& list);

  LayerConfig config;
  MultiHeadAttention<T> self_attention, cross_attention;
  FeedForward<T> feed_forward;
  LayerNorm<T> self_norm, cross_norm, feed_forward_norm;

 private:
  template <class SelfF, class CrossF>
  Var<T> run(Tape<T>& tape, const Var<T>& x, SelfF attend_self, CrossF attend_cross);
};

}  // namespace regard
