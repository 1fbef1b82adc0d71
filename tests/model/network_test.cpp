// The whole network in each of its layouts: both places of the norms, all
// position schemes, one vocabulary or two.
#include <gtest/gtest.h>

#include <cstring>

#include "model/toy.h"
#include "refusal.h"
#include "regard/loss.h"
#include "regard/threads.h"

namespace regard {
namespace {

using testing::toy_sizes;
using Ids = std::vector<std::vector<std::int64_t>>;

constexpr Index classes = 9;
const Ids sources{{4, 5, 6, 7, 8}, {8, 4}, {5, 5, 6}};
const Ids inputs{{1, 4, 5, 6, 7, 8}, {1, 8, 7, 6, 5, 4}, {1, 5, 5, 5, 4, 4}};

std::vector<Seq2SeqConfig> layouts() {
  std::vector<Seq2SeqConfig> all;
  for (NormPlace norm : {NormPlace::pre, NormPlace::post})
    for (const NamedPositions& positions : named_positions) all.push_back(toy_sizes(norm, positions.kind));
  all.push_back(toy_sizes(NormPlace::post));
  all.back().shared_vocabulary = true;
  return all;
}

template <class T = float>
Tensor<T> logits_of(Seq2Seq<T>& model, const Ids& source_rows, const Ids& input_rows) {
  Tape<T> tape;
  const auto source = padded_ids(source_rows);
  return model.decode(tape, model.encode(tape, source), source, padded_ids(input_rows))->value;
}

void expect_row(const Tensor<float>& step, Index row, const Tensor<float>& whole, Index batch, Index position) {
  for (Index c = 0; c < classes; ++c)
    ASSERT_NEAR(step[row * classes + c], whole[(batch * whole.size(1) + position) * classes + c], 1e-5)
        << "row " << row << ", position " << position;
}

TEST(Network, every_cached_step_equals_the_whole_run) {
  for (const Seq2SeqConfig& config : layouts()) {
    Seq2Seq<float> model(config, classes, classes, 1);
    const auto whole = logits_of(model, sources, inputs);
    auto state = model.start(padded_ids(sources));
    for (std::size_t t = 0; t < 6; ++t) {
      const auto step = model.step(state, {inputs[0][t], inputs[1][t], inputs[2][t]});
      ASSERT_EQ(step.shape(), (Shape{3, 1, classes}));
      for (Index row = 0; row < 3; ++row) expect_row(step, row, whole, row, static_cast<Index>(t));
    }
  }
}

// After two steps the rows are swapped, doubled and one is dropped.
TEST(Network, cached_steps_stay_right_when_rows_are_selected) {
  const std::vector<Index> rows{2, 1, 1, 2};
  for (const Seq2SeqConfig& config : layouts()) {
    Seq2Seq<float> model(config, classes, classes, 1);
    const auto whole = logits_of(model, sources, inputs);
    auto state = model.start(padded_ids(sources));
    for (std::size_t t = 0; t < 2; ++t) model.step(state, {inputs[0][t], inputs[1][t], inputs[2][t]});
    state.select(rows);
    for (std::size_t t = 2; t < 6; ++t) {
      const auto step = model.step(state, {inputs[2][t], inputs[1][t], inputs[1][t], inputs[2][t]});
      for (std::size_t row = 0; row < 4; ++row)
        expect_row(step, static_cast<Index>(row), whole, rows[row], static_cast<Index>(t));
    }
  }
}

TEST(Network, a_padded_row_equals_the_row_alone) {
  for (const Seq2SeqConfig& config : layouts()) {
    Seq2Seq<float> model(config, classes, classes, 1);
    const auto together = logits_of(model, sources, inputs);
    for (std::size_t row = 0; row < 3; ++row) {
      const auto alone = logits_of(model, {sources[row]}, {inputs[row]});
      for (Index i = 0; i < alone.count(); ++i)
        ASSERT_NEAR(alone[i], together[static_cast<Index>(row) * alone.count() + i], 1e-5);
    }
  }
}

TEST(Network, float_equals_double) {
  for (const Seq2SeqConfig& config : layouts()) {
    Seq2Seq<float> narrow(config, classes, classes, 1);
    Seq2Seq<double> wide(config, classes, classes, 1);
    const auto got = logits_of(narrow, sources, inputs);
    const auto right = logits_of(wide, sources, inputs);
    for (Index i = 0; i < got.count(); ++i) ASSERT_NEAR(static_cast<double>(got[i]), right[i], 1e-4);
  }
}

TEST(Network, has_no_dropout_outside_training) {
  Seq2SeqConfig config = toy_sizes();
  config.layer.dropout = config.layer.attention_dropout = 0.8;
  Seq2Seq<float> dropping(config, classes, classes, 1), plain(toy_sizes(), classes, classes, 1);
  const auto first = logits_of(dropping, sources, inputs), second = logits_of(dropping, sources, inputs);
  const auto without = logits_of(plain, sources, inputs);
  for (Index i = 0; i < first.count(); ++i) {
    ASSERT_EQ(first[i], second[i]);
    ASSERT_EQ(first[i], without[i]);
  }
}

// 90 rows of 1 to 9 ids, and the step's targets.
Ids random_rows() {
  Random random(2);
  Ids rows;
  for (int row = 0; row < 90; ++row) {
    rows.emplace_back(1 + random.below(9));
    for (auto& id : rows.back()) id = 4 + static_cast<std::int64_t>(random.below(5));
  }
  return rows;
}

// Forward, loss and backward of one training step, as bits.
std::vector<float> bits_of_a_step(int count) {
  set_threads(count);
  Seq2SeqConfig config = toy_sizes();
  config.layer.dropout = config.layer.attention_dropout = 0.1;
  Seq2Seq<float> model(config, classes, classes, 1);
  Tape<float> tape(true, 7);
  const auto ids = padded_ids(random_rows());
  const auto logits = model.decode(tape, model.encode(tape, ids), ids, ids);
  Tensor<float> gradient;
  cross_entropy(logits->value, ids, Vocabulary::pad, 0.1, &gradient);
  std::vector<float> bits(logits->value.values().begin(), logits->value.values().end());
  tape.backward(logits, std::move(gradient));
  for (const auto* p : model.parameters())
    bits.insert(bits.end(), p->gradient.values().begin(), p->gradient.values().end());
  set_threads(0);
  return bits;
}

TEST(Network, no_bit_of_a_training_step_depends_on_the_number_of_threads) {
  const auto one = bits_of_a_step(1);
  for (int count : {2, 3, 7}) {
    const auto more = bits_of_a_step(count);
    ASSERT_EQ(more.size(), one.size());
    EXPECT_EQ(std::memcmp(more.data(), one.data(), one.size() * sizeof(float)), 0) << count << " threads";
  }
}

// Two numbers of every weight, in double, dropout included.
TEST(Network, gradients_are_exact_in_every_layout) {
  const auto source = padded_ids(sources), input = padded_ids(inputs);
  const auto target = padded_ids({{4, 5, 6, 7, 8, 2}, {8, 2}, {5, 5, 6, 2}});
  for (Seq2SeqConfig config : layouts()) {
    config.layer.activation = Activation::gelu;
    config.layer.dropout = 0.2;
    Seq2Seq<double> model(config, classes, classes, 1);
    const auto loss = [&](bool backward) {
      Tape<double> tape(true, 3);
      const auto logits = model.decode(tape, model.encode(tape, source), source, input);
      Tensor<double> gradient;
      const double mean = cross_entropy(logits->value, target, Vocabulary::pad, 0.1, &gradient).mean();
      if (backward) tape.backward(logits, std::move(gradient));
      return mean;
    };
    loss(true);
    for (auto* p : model.parameters())
      for (Index i : {p->value.count() / 3, p->value.count() - 1}) {
        const double before = p->value[i], step = 1e-5;
        p->value[i] = before + step;
        const double above = loss(false);
        p->value[i] = before - step;
        const double below = loss(false);
        p->value[i] = before;
        ASSERT_NEAR(p->gradient[i], (above - below) / (2 * step), 1e-8) << p->name << " at " << i;
      }
  }
}

TEST(Network, learns_as_many_weights_as_the_formula_counts) {
  for (const Seq2SeqConfig& config : layouts()) {
    const Index target = config.shared_vocabulary ? classes : classes + 4;
    EXPECT_EQ(Seq2Seq<float>(config, classes, target, 1).weight_count(), weight_count(config, classes, target));
  }
}

// Vaswani et al. give 65 and 213 million. Layer by layer, for width d and hidden h:
// attention 4 (d d + d), feed-forward 2 d h + h + d, a norm 2 d.
TEST(Network, of_the_papers_sizes_has_the_papers_count) {
  const Index base_attention = 4 * (512 * 512 + 512), base_forward = 2 * 512 * 2048 + 2048 + 512;
  EXPECT_EQ(weight_count(transformer_base(), 37000, 37000), 37000 * 512 +
                                                                6 * (base_attention + base_forward + 2 * 1024) +
                                                                6 * (2 * base_attention + base_forward + 3 * 1024));
  EXPECT_EQ(weight_count(transformer_base(), 37000, 37000), 63'082'496);
  EXPECT_EQ(weight_count(transformer_large(), 37000, 37000), 214'245'376);
}

TEST(Network, one_vocabulary_has_one_table_and_one_size) {
  Seq2SeqConfig config = toy_sizes();
  config.shared_vocabulary = true;
  EXPECT_EQ(testing::message_of([&] { Seq2Seq<float>(config, 9, 10, 1); }),
            "a shared vocabulary has one size, not 9 of the source and 10 of the target");
  Seq2Seq<float> model(config, classes, classes, 1);
  Index tables = 0;
  for (const auto* p : model.parameters()) tables += p->value.shape() == Shape{classes, 32};
  EXPECT_EQ(tables, 1);
}

// Greedy by definition: the likeliest symbol but pad, begin and unknown, each
// time from the whole run.
std::vector<std::int64_t> greedy_by_hand(Seq2Seq<float>& model, const std::vector<std::int64_t>& source) {
  std::vector<std::int64_t> input{Vocabulary::begin};
  while (input.size() <= 8) {
    const auto logits = logits_of(model, {source}, {input});
    const float* last = logits.data() + (logits.size(1) - 1) * classes;
    std::int64_t best = Vocabulary::end;
    for (std::int64_t c = Vocabulary::unknown + 1; c < classes; ++c)
      if (last[c] > last[best]) best = c;
    if (best == Vocabulary::end) break;
    input.push_back(best);
  }
  return {input.begin() + 1, input.end()};
}

TEST(Network, a_beam_of_one_is_greedy_by_definition) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    Seq2Seq<float> model(toy_sizes(), classes, classes, seed);
    const auto answers = decode(model, sources, {.beam = 1, .max_symbols = 8});
    for (std::size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(answers[i].symbols, greedy_by_hand(model, sources[i]));
  }
}

}  // namespace
}  // namespace regard
