#include "regard/seq2seq.h"

#include <gtest/gtest.h>

#include "model/training_gradients.h"
#include "regard/error.h"

namespace regard {
namespace {

using Ids = Tensor<std::int64_t>;

Seq2SeqConfig small(PositionKind positions = PositionKind::sinusoidal, NormPlace norm = NormPlace::pre) {
  Seq2SeqConfig config;
  config.layer = {.model_dim = 32, .heads = 4, .hidden = 48, .norm = norm};
  config.encoder_layers = config.decoder_layers = 2;
  config.positions = positions;
  config.max_length = 24;
  return config;
}

template <class T>
Tensor<T> logits_of(Seq2Seq<T>& model, const Ids& source, const Ids& input) {
  Tape<T> tape;
  return model.decode(tape, model.encode(tape, source), source, input)->value;
}

// The whole model at once: every weight, tied embeddings, padding, causal mask,
// dropout and loss.
TEST(Seq2Seq, gradients_of_the_training_loss_are_exact) {
  for (const auto& [positions, name] : named_positions) {
    Seq2SeqConfig config;
    config.layer = {.model_dim = 4, .heads = 2, .hidden = 5, .activation = Activation::gelu, .dropout = 0.2};
    config.encoder_layers = config.decoder_layers = 1;
    config.positions = positions;
    config.max_length = 4;
    Seq2Seq<double> model(config, 6, 7, 1);
    const Ids source({2, 3}, {4, 5, 4, 5, 0, 0}), input({2, 3}, {1, 4, 5, 1, 6, 0}), target({2, 3}, {4, 5, 2, 6, 2, 0});
    testing::expect_exact_gradients(name, model, source, input, target);
  }
}

TEST(Seq2Seq, decoding_with_caches_equals_the_whole_target) {
  for (const auto& [positions, name] : named_positions)
    for (NormPlace norm : {NormPlace::pre, NormPlace::post}) {
      Seq2Seq<float> model(small(positions, norm), 9, 11, 1);
      const Ids source({2, 4}, {4, 5, 6, 7, 8, 4, 0, 0});
      Ids input({2, 20});
      for (Index i = 0; i < 40; ++i) input[i] = i % 20 == 0 ? 1 : 4 + (3 * i) % 7;
      const auto whole = logits_of(model, source, input);
      auto state = model.start(source);
      for (Index t = 0; t < 20; ++t) {
        const auto logits = model.step(state, {input[t], input[20 + t]});
        for (Index b = 0; b < 2; ++b)
          for (Index c = 0; c < 11; ++c)
            ASSERT_NEAR(logits[b * 11 + c], whole[(b * 20 + t) * 11 + c], 1e-5) << name << ", token " << t;
      }
    }
}

TEST(Seq2Seq, a_padded_row_gives_what_it_gives_alone) {
  Seq2Seq<float> model(small(), 9, 11, 1);
  const Ids together({2, 6}, {4, 5, 6, 7, 8, 4, 8, 7, 0, 0, 0, 0}), alone({1, 2}, {8, 7});
  const auto both = logits_of(model, together, Ids({2, 3}, {1, 4, 5, 1, 6, 7}));
  const auto one = logits_of(model, alone, Ids({1, 3}, {1, 6, 7}));
  for (Index i = 0; i < one.count(); ++i) ASSERT_NEAR(both[33 + i], one[i], 1e-5);
}

TEST(Seq2Seq, a_later_target_symbol_changes_no_earlier_logit) {
  Seq2Seq<float> model(small(), 9, 11, 1);
  const Ids source({1, 3}, {4, 5, 6});
  const auto a = logits_of(model, source, Ids({1, 4}, {1, 4, 5, 6})),
             b = logits_of(model, source, Ids({1, 4}, {1, 4, 7, 8}));
  for (Index i = 0; i < 22; ++i) ASSERT_EQ(a[i], b[i]);
}

// Embeddings that drown the positions would make attention blind to order. Positions
// within attention say less at first, but not nothing.
TEST(Seq2Seq, the_order_of_the_source_matters_from_the_start) {
  for (const auto& [positions, name] : named_positions) {
    Seq2SeqConfig config = small(positions);
    config.layer.model_dim = 128;
    Seq2Seq<double> model(config, 9, 11, 1);
    const Ids input({1, 1}, {1});
    const auto a = logits_of(model, Ids({1, 3}, {4, 5, 6}), input), b = logits_of(model, Ids({1, 3}, {6, 5, 4}), input),
               c = logits_of(model, Ids({1, 3}, {4, 7, 6}), input);
    double by_order = 0, by_symbol = 0;
    for (Index i = 0; i < a.count(); ++i) {
      by_order += (a[i] - b[i]) * (a[i] - b[i]);
      by_symbol += (a[i] - c[i]) * (a[i] - c[i]);
    }
    const bool added = positions == PositionKind::sinusoidal || positions == PositionKind::learned;
    EXPECT_GT(by_order, (added ? 0.02 : 0.002) * by_symbol) << name;
  }
}

TEST(Seq2Seq, rows_of_a_state_can_be_chosen_again) {
  Seq2Seq<float> model(small(), 9, 11, 1);
  auto both = model.start(Ids({2, 3}, {4, 5, 6, 7, 8, 4})), one = model.start(Ids({1, 3}, {7, 8, 4}));
  model.step(both, {1, 1});
  model.step(one, {1});
  both.select({1, 1, 0});
  const auto three = model.step(both, {5, 5, 5}), right = model.step(one, {5});
  for (Index row : {0, 1})
    for (Index c = 0; c < 11; ++c) ASSERT_NEAR(three[row * 11 + c], right[c], 1e-5);
}

TEST(Seq2Seq, longer_sequences_than_the_model_was_made_for_are_refused) {
  Seq2Seq<float> model(small(), 9, 11, 1);
  Tape<float> tape;
  EXPECT_NO_THROW(model.encode(tape, Ids({1, 24}, 4)));
  EXPECT_THROW(model.encode(tape, Ids({1, 25}, 4)), ArgumentError);
}

// Embeddings 30 * 128 + 43 * 128; a layer has 4 projections with biases, the
// feed-forward and its norms: the published size of the shipped model.
TEST(Seq2Seq, the_default_sizes_have_the_weights_they_should) {
  Seq2Seq<float> model({}, 30, 43, 1);
  const Index d = 128, h = 512, attention = 4 * (d * d + d), forward = 2 * d * h + h + d, norm = 2 * d;
  EXPECT_EQ(model.weight_count(),
            73 * d + 4 * (attention + forward + 2 * norm) + 4 * (2 * attention + forward + 3 * norm) + 2 * norm);
}

}  // namespace
}  // namespace regard
