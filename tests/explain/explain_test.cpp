// Explanations against plain versions of their definitions on a small random
// model, and on a model that was built so that raw weights mislead.
#include "regard/explain.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "explain/small_model.h"
#include "regard/contributions.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace testing;

TEST(Ranks, agree_with_values_worked_out_by_hand) {
  const std::vector<double> rising{1, 2, 3, 4}, falling{9, 7, 5, 3}, swapped{1, 3, 2, 4}, tied{1, 1, 2, 2},
      flat{5, 5, 5, 5};
  EXPECT_DOUBLE_EQ(kendall_tau(rising, rising), 1);
  EXPECT_DOUBLE_EQ(kendall_tau(rising, falling), -1);
  EXPECT_DOUBLE_EQ(kendall_tau(rising, swapped), 4 / 6.);  // one of six pairs the other way
  EXPECT_DOUBLE_EQ(kendall_tau(rising, tied), 4 / std::sqrt(6 * 4.));
  EXPECT_TRUE(std::isnan(kendall_tau(rising, flat)));
  EXPECT_DOUBLE_EQ(rank_correlation(rising, falling), -1);
  EXPECT_DOUBLE_EQ(rank_correlation(rising, swapped), 1 - 6 * 2. / (4 * 15));
  EXPECT_DOUBLE_EQ(rank_correlation(rising, tied), 4 / std::sqrt(5. * 4));  // ranks 0.5 0.5 2.5 2.5
  EXPECT_TRUE(std::isnan(rank_correlation(flat, rising)));
  EXPECT_THROW(kendall_tau(rising, std::vector<double>{1}), ArgumentError);
}

TEST(Explain, shares_of_a_source_round_up_to_at_least_one_symbol) {
  EXPECT_EQ(erased_count(0.01, 7), 1);
  EXPECT_EQ(erased_count(0.20, 7), 2);
  EXPECT_EQ(erased_count(0.50, 7), 4);
  EXPECT_EQ(erased_count(0.10, 10), 1);
  EXPECT_EQ(erased_count(0.10, 30), 3);
  EXPECT_EQ(erased_count(0.50, 1), 1);
}

double log_p(Network& network, const AnsweredText& text, std::size_t place, const HeadChange<double>& change) {
  const FixedAnswers<double> answers(network, {text});
  const Tensor<double> p = answers.probabilities({nullptr, change});
  return std::log(p[static_cast<Index>(place) * small_vocabulary + answered(text, place)]);
}

TEST(Explain, scores_of_source_symbols_are_what_their_definitions_give) {
  for (NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    const auto network = small_network(small_sizes(norm));
    const AnsweredText text = small_texts()[0];
    const auto n = static_cast<Index>(text.source.size());
    const SymbolScores scores = attribute(*network, text);
    SeenAttention<double> seen;
    FixedAnswers<double>(*network, {text}).probabilities({&seen});
    const auto whole = alone(*network, text.source, text.answer);
    for (std::size_t i = 0; i <= text.answer.size(); ++i) {
      const auto row = static_cast<Index>(i);
      const auto place = static_cast<std::size_t>(answered(text, i));
      EXPECT_NEAR(scores.probabilities[row], whole[i][place], 1e-12);
      for (Index j = 0; j < n; ++j) {
        double weight = 0, slope = 0, share = 0;
        for (std::size_t layer = 0; layer < 2; ++layer) {
          for (Index head = 0; head < small_heads; ++head) {
            const double w = seen.cross[layer].weights[(head * 4 + row) * n + j];
            weight += w / 4;
            // The weight a little larger and smaller: d log p / d weight.
            const auto nudged = [&](double step) {
              return log_p(*network, text, i, [&](const AttentionPlace& at, const HeadContext<double>& heads) {
                if (!(at == AttentionPlace{AttentionKind::cross, static_cast<Index>(layer)})) return;
                for (Index d = 0; d < small_dim; ++d)
                  heads.context[row * small_width + head * small_dim + d] +=
                      step * heads.key_value[j * 2 * small_width + small_width + head * small_dim + d];
              });
            };
            slope += w * (nudged(1e-5) - nudged(-1e-5)) / 2e-5;
          }
          const Tensor<double> joint = contribution_norms(seen.cross[layer], false).joint;
          double sum = 0;
          for (Index k = 0; k < n; ++k) sum += joint[row * n + k];
          share += joint[row * n + j] / sum / 2;
        }
        EXPECT_NEAR(scores.of(Attribution::weights)[row * n + j], weight, 1e-12);
        EXPECT_NEAR(scores.of(Attribution::norms)[row * n + j], share, 1e-12);
        EXPECT_NEAR(scores.of(Attribution::gradient)[row * n + j], slope, 1e-7);
        auto without = text.source;
        without[static_cast<std::size_t>(j)] = Vocabulary::pad;
        EXPECT_NEAR(scores.of(Attribution::ablation)[row * n + j],
                    whole[i][place] - alone(*network, without, text.answer)[i][place], 1e-12);
      }
    }
    for (const Parameter<double>* parameter : network->parameters())
      for (double value : parameter->gradient.values()) ASSERT_EQ(value, 0) << parameter->name;
  }
}

TEST(Explain, rollout_scores_go_through_decoder_and_encoder) {
  const auto network = small_network();
  const AnsweredText text = small_texts()[0];
  const Index n = 5, m = 4;
  const SymbolScores scores = attribute(*network, text);
  SeenAttention<double> seen;
  FixedAnswers<double>(*network, {text}).probabilities({&seen});
  const auto mean = [](const HeadWeights<double>& layer, Index q, Index k, Index keys, Index rows) {
    return (layer.weights[q * keys + k] + layer.weights[(rows + q) * keys + k]) / 2;
  };
  // Upwards, matrix by matrix: encoder [n, n], then the source's part of the decoder [m, n].
  std::vector<double> encoder(n * n), decoder(m * n, 0.0);
  for (Index i = 0; i < n; ++i) encoder[static_cast<std::size_t>(i * n + i)] = 1;
  const auto mixed = [&](const std::vector<double>& x, Index rows, const HeadWeights<double>& layer) {
    std::vector<double> y(x.size());
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < n; ++j) {
        double sum = x[static_cast<std::size_t>(i * n + j)];
        for (Index k = 0; k < rows; ++k) sum += mean(layer, i, k, rows, rows) * x[static_cast<std::size_t>(k * n + j)];
        y[static_cast<std::size_t>(i * n + j)] = sum / 2;
      }
    return y;
  };
  for (const auto& layer : seen.encoder) encoder = mixed(encoder, n, layer);
  for (std::size_t l = 0; l < 2; ++l) {
    decoder = mixed(decoder, m, seen.decoder[l]);
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j) {
        double sum = decoder[static_cast<std::size_t>(i * n + j)];
        for (Index k = 0; k < n; ++k)
          sum += mean(seen.cross[l], i, k, n, m) * encoder[static_cast<std::size_t>(k * n + j)];
        decoder[static_cast<std::size_t>(i * n + j)] = sum / 2;
      }
  }
  for (Index at = 0; at < m * n; ++at)
    EXPECT_NEAR(scores.of(Attribution::rollout)[at], decoder[static_cast<std::size_t>(at)], 1e-6);
}

TEST(Explain, erasing_follows_the_ranking) {
  const auto network = small_network();
  const AnsweredText text = small_texts()[0];
  const std::size_t n = 5, m = 4;
  Tensor<double> scores({4, 5});
  Random random(9);
  for (double& score : scores.values()) score = random.normal();
  scores[3] = scores[4] = 7;  // equal: the earlier symbol ranks first
  const Faithfulness got = faithfulness(*network, text, {scores, scores})[1];
  ASSERT_EQ(got.symbols, 4);
  const Index counts[] = {1, 1, 1, 1, 3};  // of five symbols
  const auto whole = alone(*network, text.source, text.answer);
  for (std::size_t s = 0; s < 5; ++s) {
    double comprehensive = 0, sufficient = 0;
    for (std::size_t i = 0; i < m; ++i) {
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return scores[static_cast<Index>(i * n + a)] > scores[static_cast<Index>(i * n + b)];
      });
      auto without = text.source, only = text.source;
      for (std::size_t r = 0; r < n; ++r)
        (static_cast<Index>(r) < counts[s] ? without : only)[order[r]] = Vocabulary::pad;
      const auto place = static_cast<std::size_t>(answered(text, i));
      comprehensive += whole[i][place] - alone(*network, without, text.answer)[i][place];
      sufficient += whole[i][place] - alone(*network, only, text.answer)[i][place];
    }
    EXPECT_NEAR(got.comprehensiveness[s], comprehensive, 1e-12);
    EXPECT_NEAR(got.sufficiency[s], sufficient, 1e-12);
  }
  EXPECT_THROW(faithfulness(*network, text, {Tensor<double>({4, 4})}), ArgumentError);
}

TEST(Explain, head_numbers_are_those_of_single_experiments_over_all_texts) {
  const auto network = small_network();
  const auto texts = small_texts();
  const Explanation found = explain(*network, texts, {.draws = 2, .batch = 2});
  EXPECT_EQ(found.texts, 3);
  EXPECT_EQ(found.symbols, 4 + 5 + 2);
  ASSERT_EQ(found.heads.size(), 12u);
  ASSERT_EQ(found.tests.size(), 9u);
  for (const HeadEffect& head : found.heads) {
    // Text by text: what the head gives, its largest weights, its output's size.
    std::vector<double> mean(small_dim, 0.0);
    double queries = 0, confidence = 0, contribution = 0;
    for (const AnsweredText& text : texts) {
      SeenAttention<double> seen;
      FixedAnswers<double>(*network, {text}).probabilities({&seen});
      const auto& layers = head.place.kind == AttentionKind::encoder   ? seen.encoder
                           : head.place.kind == AttentionKind::decoder ? seen.decoder
                                                                       : seen.cross;
      const auto& layer = layers[static_cast<std::size_t>(head.place.layer)];
      const Index rows = layer.weights.size(2), keys = layer.weights.size(3);
      for (Index i = 0; i < rows; ++i) {
        queries += 1;
        const double* row = layer.weights.data() + (head.head * rows + i) * keys;
        confidence += *std::max_element(row, row + keys);
        double size = 0, residual = 0;
        for (Index c = 0; c < small_width; ++c) {
          double out = 0;
          for (Index d = 0; d < small_dim; ++d)
            out += layer.context->value[i * small_width + head.head * small_dim + d] *
                   layer.layer->output.weight.value[(head.head * small_dim + d) * small_width + c];
          size += out * out;
          residual += layer.residual->value[i * small_width + c] * layer.residual->value[i * small_width + c];
        }
        contribution += std::sqrt(size / residual);
        for (Index d = 0; d < small_dim; ++d)
          mean[static_cast<std::size_t>(d)] += layer.context->value[i * small_width + head.head * small_dim + d];
      }
    }
    for (double& value : mean) value /= queries;
    EXPECT_NEAR(head.confidence, confidence / queries, 1e-12);
    EXPECT_NEAR(head.contribution, contribution / queries, 1e-12);
    OutputChange zero, by_mean;
    for (const AnsweredText& text : texts) {
      const FixedAnswers<double> one(*network, {text});
      const Tensor<double> before = one.probabilities();
      const auto with = [&](std::vector<double> value) {
        return one.compare(before, one.probabilities({nullptr, set_head<double>(head.place, head.head, value)}));
      };
      zero += with(std::vector<double>(small_dim, 0.0));
      by_mean += with(mean);
    }
    EXPECT_NEAR(head.zero.total_variation, zero.total_variation, 1e-10);
    EXPECT_NEAR(head.mean.total_variation, by_mean.total_variation, 1e-10);
    EXPECT_EQ(head.mean.changed_symbols, by_mean.changed_symbols);
    EXPECT_EQ(head.mean.symbols, 11);
  }
  for (const WeightTest& test : found.tests) {
    EXPECT_EQ(test.uniform.symbols, 11);
    EXPECT_EQ(test.permuted.symbols, 22) << "two draws";
  }
  EXPECT_EQ(found.random_ranking.symbols, 22);
}

TEST(Explain, the_same_seed_draws_the_same_and_bad_options_are_refused) {
  const auto network = small_network();
  const Explanation a = explain(*network, small_texts(), {.seed = 4, .draws = 2});
  const Explanation b = explain(*network, small_texts(), {.seed = 4, .draws = 2});
  const Explanation c = explain(*network, small_texts(), {.seed = 5, .draws = 2});
  EXPECT_EQ(a.tests[0].permuted.total_variation, b.tests[0].permuted.total_variation);
  EXPECT_EQ(a.random_ranking.comprehensiveness, b.random_ranking.comprehensiveness);
  EXPECT_NE(a.tests[0].random.total_variation, c.tests[0].random.total_variation);
  EXPECT_THROW(explain(*network, {}), ArgumentError);
  EXPECT_THROW(explain(*network, small_texts(), {.draws = 0}), ArgumentError);
  EXPECT_THROW(explain(*network, small_texts(), {.batch = 0}), ArgumentError);
}

// One head looks at symbol 5 with nine tenths of its weight, whose value is 0;
// what it answers comes from symbol 4 alone, on which the rest of the weight lies.
std::unique_ptr<Network> misleading_network() {
  Seq2SeqConfig config;
  config.layer = {.model_dim = 8, .heads = 1, .hidden = 4, .norm = NormPlace::post, .dropout = 0};
  config.encoder_layers = 0;
  config.decoder_layers = 1;
  config.positions = PositionKind::learned;
  config.max_length = 12;
  auto network = std::make_unique<Network>(config, small_vocabulary, small_vocabulary, 1);
  for (Parameter<double>* parameter : network->parameters())
    if (parameter->name.find("norm") == std::string::npos) parameter->value.fill(0);
  const auto set = [&](const std::string& name, Index row, Index column, double value) {
    Tensor<double>& w = weight_named(*network, name).value;
    w[row * w.size(-1) + column] = value;
  };
  // Embeddings are scaled by sqrt(8); symbol s of the source is axis s - 4.
  const double one = 1 / std::sqrt(8.0);
  for (Index symbol : {4, 5, 6}) set("encoder.embedding", symbol, symbol - 4, one);
  set("decoder.embedding", Vocabulary::begin, 7, one);
  set("decoder.embedding", 4, 3, 3);
  set("decoder.embedding", 5, 3, -3);
  weight_named(*network, "decoder.0.cross.query.bias").value[0] = 1;
  // Scores are key / sqrt(8): symbol 5 is e^x times as heavy as symbol 4, and 6 nearly nothing.
  set("decoder.0.cross.key_value.weight", 1, 0, std::log(9.0) * std::sqrt(8.0));
  set("decoder.0.cross.key_value.weight", 2, 0, -20 * std::sqrt(8.0));
  set("decoder.0.cross.key_value.weight", 0, 8 + 3, 40);
  for (Index d = 0; d < 8; ++d) set("decoder.0.cross.output.weight", d, d, 1);
  return network;
}

TEST(Explain, norms_and_ablation_see_through_a_weight_on_a_value_of_nothing) {
  const auto network = misleading_network();
  const AnsweredText text{{6, 5, 4, 6}, {4}};
  const SymbolScores scores = attribute(*network, text);
  const auto row = [&](Attribution method) {
    const double* first = scores.of(method).data();
    return std::vector<double>(first, first + 4);
  };
  const auto top = [&](Attribution method) {
    const auto values = row(method);
    return std::max_element(values.begin(), values.end()) - values.begin();
  };
  EXPECT_NEAR(row(Attribution::weights)[1], 0.9, 1e-6);
  EXPECT_NEAR(row(Attribution::weights)[2], 0.1, 1e-6);
  EXPECT_EQ(top(Attribution::weights), 1) << "raw weights say: symbol 5";
  EXPECT_EQ(top(Attribution::rollout), 1) << "and so does rollout, made of weights";
  for (Attribution method : {Attribution::norms, Attribution::gradient, Attribution::ablation})
    EXPECT_EQ(top(method), 2) << attribution_name(method) << " says: symbol 4";
  EXPECT_NEAR(row(Attribution::norms)[2], 1, 1e-6);
  // With a tenth of its value the third axis is about 2 after the norm, and p is 0.98; without, -0.4 and 0.04.
  EXPECT_GT(row(Attribution::ablation)[2], 0.5);
  EXPECT_LT(row(Attribution::ablation)[1], 0) << "without symbol 5 more weight comes to symbol 4";
  const auto found = faithfulness(*network, text, {scores.of(Attribution::weights), scores.of(Attribution::norms)});
  EXPECT_GT(found[1].comprehensiveness[0], found[0].comprehensiveness[0]);
  EXPECT_LT(found[1].sufficiency[0], found[0].sufficiency[0]);
}

}  // namespace
}  // namespace regard
