// Models that read pictures: the whole way from pixels to symbols and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "model/toy.h"
#include "model/training_gradients.h"

namespace regard {
namespace {

using testing::bytes_of;
using testing::expect_contains;
using testing::expect_file_error;
using testing::expect_same_run;
using testing::Folder;
using testing::message_of;

using Ids = Tensor<std::int64_t>;
constexpr PatchSizes patch_sizes{8, 8, 2};

Seq2SeqConfig picture_sizes(PositionKind positions = PositionKind::sinusoidal) {
  Seq2SeqConfig config = testing::toy_sizes(NormPlace::pre, positions);
  config.patches = patch_sizes;
  return config;
}

// Letters a to d are ink in one half of a cell of 8 x 4: top, bottom, left, right.
Tensor<float> drawn(const std::string& text, Index left = 1) {
  const auto width = static_cast<Index>(4 * text.size()) + 2 + left;
  Tensor<float> picture({8, width}, 1.0f);
  for (std::size_t letter = 0; letter < text.size(); ++letter)
    for (Index y = 1; y < 7; ++y)
      for (Index x = 0; x < 3; ++x) {
        const bool ink[] = {y < 4, y >= 4, x < 1, x >= 2};
        if (ink[text[letter] - 'a']) picture[y * width + static_cast<Index>(4 * letter) + x + left] = 0;
      }
  return picture;
}

Dataset picture_data(Index count, std::uint64_t seed) {
  Random random(seed);
  Dataset data;
  for (Index i = 0; i < count; ++i) {
    Example example;
    for (std::uint64_t left = 1 + random.below(3); left > 0; --left)
      example.target.push_back(std::string(1, static_cast<char>('a' + random.below(4))));
    for (const std::string& letter : example.target) example.text += letter;
    data.examples.push_back(std::move(example));
  }
  data.picture = [examples = data.examples](Index example, std::uint64_t) {
    return drawn(examples[static_cast<std::size_t>(example)].text);
  };
  return data;
}

// The same texts, elsewhere in each epoch's pictures.
Dataset redrawn_data(Index count, std::uint64_t seed) {
  Dataset data = picture_data(count, seed);
  data.picture = [examples = data.examples](Index example, std::uint64_t epoch) {
    return drawn(examples[static_cast<std::size_t>(example)].text, 1 + static_cast<Index>(epoch));
  };
  return data;
}

Model picture_model(std::uint64_t seed = 3) {
  Model model;
  model.name = "pictures";
  model.target = Vocabulary({"a", "b", "c", "d"});
  model.config = picture_sizes();
  model.make_network(seed);
  return model;
}

SourceBatch<float> batch_of(const std::vector<Tensor<float>>& patches) {
  std::vector<const Tensor<float>*> pointers;
  for (const auto& one : patches) pointers.push_back(&one);
  PaddedPatches padded = padded_patches(pointers);
  return {std::move(padded.present), std::move(padded.patches)};
}

TEST(PictureModel, gradients_of_the_training_loss_are_exact) {
  for (PositionKind positions : {PositionKind::sinusoidal, PositionKind::learned}) {
    Seq2SeqConfig config;
    config.layer = {.model_dim = 4, .heads = 2, .hidden = 5, .activation = Activation::gelu, .dropout = 0.2};
    config.encoder_layers = config.decoder_layers = 1;
    config.positions = positions;
    config.max_length = 4;
    config.patches = {2, 2, 2};
    Seq2Seq<double> model(config, 0, 7, 1);
    Tensor<double> patches({2, 3, 4});
    Random random(8);
    for (double& value : patches.values()) value = random.normal();
    const Ids present({2, 3}, {1, 1, 1, 1, 0, 0}), input({2, 3}, {1, 4, 5, 1, 6, 0}),
        target({2, 3}, {4, 5, 2, 6, 2, 0});
    ASSERT_EQ(model.parameters()[0]->name, "encoder.patches.weight");
    testing::expect_exact_gradients("pictures", model, {present, patches}, input, target);
  }
}

TEST(PictureModel, a_short_picture_beside_a_long_one_gives_what_it_gives_alone) {
  const Model model = picture_model();
  const Tensor<float> small = model.patches(drawn("a")), large = model.patches(drawn("bcd"));
  Tape<float> tape;
  const auto together = model.network->encode(tape, batch_of({small, large}));
  const auto alone = model.network->encode(tape, batch_of({small}));
  ASSERT_LT(small.size(0), large.size(0));
  for (Index i = 0; i < alone->value.count(); ++i) ASSERT_NEAR(together->value[i], alone->value[i], 1e-5) << i;
  const auto both = answer_pictures(model, {&small, &large}, {}), one = answer_pictures(model, {&small}, {});
  EXPECT_EQ(both[0].symbols, one[0].symbols);
  EXPECT_NEAR(both[0].log_probability, one[0].log_probability, 1e-5);
}

TEST(PictureModel, steps_with_caches_equal_the_whole_target) {
  const Model model = picture_model();
  const auto source = batch_of({model.patches(drawn("abc")), model.patches(drawn("d"))});
  const Ids input({2, 4}, {1, 4, 5, 6, 1, 7, 7, 4});
  Tape<float> tape;
  const auto whole = model.network->decode(tape, model.network->encode(tape, source), source.ids, input)->value;
  auto state = model.network->start(source);
  for (Index t = 0; t < 4; ++t) {
    const auto logits = model.network->step(state, {input[t], input[4 + t]});
    for (Index b = 0; b < 2; ++b)
      for (Index c = 0; c < 8; ++c) ASSERT_NEAR(logits[b * 8 + c], whole[(b * 4 + t) * 8 + c], 1e-5) << "symbol " << t;
  }
}

TEST(PictureModel, learns_as_many_weights_as_the_formula_counts) {
  for (PositionKind positions : {PositionKind::sinusoidal, PositionKind::learned}) {
    const Seq2SeqConfig config = picture_sizes(positions);
    EXPECT_EQ(Seq2Seq<float>(config, 0, 8, 1).weight_count(), weight_count(config, 0, 8));
    // What differs from a model of 5 source symbols: 16 weights a column of the layer and its bias, not 5.
    Seq2SeqConfig text = config;
    text.patches = {};
    EXPECT_EQ(weight_count(config, 0, 8) - weight_count(text, 5, 8), (16 + 1 - 5) * 32);
  }
}

TEST(PictureModel, text_and_pictures_are_not_taken_for_each_other) {
  const Model pictures = picture_model(), text = testing::toy_model();
  const auto source = batch_of({pictures.patches(drawn("a"))});
  Tape<float> tape;
  expect_contains(message_of([&] { pictures.network->encode(tape, Ids({1, 2}, {4, 5})); }), "the model reads pictures");
  expect_contains(message_of([&] { text.network->encode(tape, source); }), "the model reads symbols");
  expect_contains(message_of([] { Seq2Seq<float>(picture_sizes(), 9, 9, 1); }), "has no source vocabulary");
  Seq2SeqConfig shared = picture_sizes();
  shared.shared_vocabulary = true;
  expect_contains(message_of([&] { Seq2Seq<float>(shared, 0, 0, 1); }), "shared_vocabulary must be false");
  const Folder folder;
  expect_contains(message_of([&] {
                    Trainer(LockedFolder(folder / "run"), {}, picture_sizes(), testing::reversals(5, 1),
                            testing::reversals(5, 2), false, "x");
                  }),
                  "the data has none");
  expect_contains(message_of([&] {
                    Trainer(LockedFolder(folder / "other"), {}, testing::toy_sizes(), picture_data(5, 1),
                            picture_data(5, 2), false, "x");
                  }),
                  "the model reads text");
}

TEST(PictureModel, pictures_wider_than_the_model_takes_are_refused_with_both_widths) {
  const Model model = picture_model();  // 40 patches, 2 pixels each
  EXPECT_EQ(model.widest_picture(), 80);
  EXPECT_NO_THROW(model.patches(Tensor<float>({8, 80}, 1.0f)));
  const std::string message = message_of([&] { model.patches(Tensor<float>({8, 81}, 1.0f)); });
  expect_contains(message, "81 pixels wide");
  expect_contains(message, "up to 80");
}

TEST(PictureModel, its_folder_says_what_it_reads) {
  const Folder folder;
  const std::string path = folder / "model";
  const Model model = picture_model();
  save_model(model, path);
  const auto json = nlohmann::json::parse(bytes_of(path + "/model.json"));
  EXPECT_EQ(json.at("format"), "regard picture-to-text 1");
  const Model loaded = load_model(path);
  EXPECT_EQ(loaded.config.patches, patch_sizes);
  const Tensor<float> patches = model.patches(drawn("cab"));
  EXPECT_EQ(answer_pictures(loaded, {&patches}, {})[0].symbols, answer_pictures(model, {&patches}, {})[0].symbols);

  const auto refused = [&](const char* part, auto change) {
    auto changed = json;
    change(changed);
    testing::write_bytes(path + "/model.json", changed.dump());
    expect_file_error(path + "/model.json", part, [&] { load_model(path); });
  };
  refused("format is 'regard sound-to-text 1'", [](auto& j) { j["format"] = "regard sound-to-text 1"; });
  refused("patches", [](auto& j) { j["config"].erase("patches"); });
  refused("does not divide", [](auto& j) { j["config"]["patches"]["patch_height"] = 3; });
  // Called a model of text, it has tensors that no model of text has.
  auto changed = json;
  changed["format"] = "regard sequence-to-sequence 1";
  testing::write_bytes(path + "/model.json", changed.dump());
  expect_file_error(path, "encoder.embedding", [&] { load_model(path); });
}

TrainingConfig plan(Index epochs) {
  TrainingConfig config;
  config.epochs = epochs;
  config.batch = 8;
  config.schedule = {.peak = 5e-3, .warmup = 20};
  config.smoothing = 0;
  return config;
}

TEST(PictureModel, learns_a_handful_of_pictures_by_heart) {
  const Folder folder;
  Trainer trainer(LockedFolder(folder / "run"), plan(60), picture_sizes(), picture_data(16, 1), picture_data(16, 1),
                  false, "bars");
  trainer.run({});
  const Model model = load_model(folder / "run");
  const auto counts = evaluate_answers(model, picture_questions(model, picture_data(16, 1)), {});
  std::set<std::string> texts;  // one picture each
  for (const Example& example : picture_data(16, 1).examples) texts.insert(example.text);
  EXPECT_EQ(counts.sequences, static_cast<Index>(texts.size()));
  EXPECT_EQ(counts.wrong_sequences, 0);
  // White on black is read like black on white.
  Tensor<float> negative = drawn("dab");
  for (float& grey : negative.values()) grey = 1 - grey;
  const Tensor<float> patches = model.patches(drawn("dab")), turned = model.patches(negative);
  const auto answers = answer_pictures(model, {&patches, &turned}, {});
  EXPECT_EQ(answers[0].symbols, answers[1].symbols);
}

TEST(PictureModel, a_stop_and_a_resume_equal_an_uninterrupted_run_byte_for_byte) {
  const Folder folder;
  const auto fresh = [&](const std::string& path) {
    return Trainer(LockedFolder(path), plan(2), picture_sizes(), redrawn_data(40, 1), picture_data(8, 2), false, "x");
  };
  const std::string whole = folder / "whole", pieces = folder / "pieces";
  fresh(whole).run({});
  for (Index steps : {2, 4}) {  // within the first epoch, then within the second
    std::atomic<bool> stop{false};
    TrainingObserver observer;
    observer.progress = [&](const TrainingProgress& p) { stop = p.run_batches >= steps; };
    observer.stop = &stop;
    steps == 2 ? fresh(pieces).run(observer)
               : Trainer::resume(pieces, redrawn_data(40, 1), picture_data(8, 2)).run(observer);
  }
  EXPECT_TRUE(Trainer::data_options(pieces).pictures);
  EXPECT_EQ(Trainer::picture_sizes(pieces), patch_sizes);
  Dataset other = redrawn_data(40, 1);
  other.origin = "drawn in another way";
  expect_contains(message_of<FileError>([&] { Trainer::resume(pieces, other, picture_data(8, 2)); }), "other data");
  other = redrawn_data(40, 1);
  other.contents = "of other files";
  expect_contains(message_of<FileError>([&] { Trainer::resume(pieces, other, picture_data(8, 2)); }), "other data");
  Trainer::resume(pieces, redrawn_data(40, 1), picture_data(8, 2)).run({});
  expect_same_run(whole, pieces);
  // Pictures that stayed as they were in the first epoch would be another run.
  const std::string still = folder / "still";
  Trainer(LockedFolder(still), plan(2), picture_sizes(), picture_data(40, 1), picture_data(8, 2), false, "x").run({});
  EXPECT_FALSE(bytes_of(testing::tensors_of(still)) == bytes_of(testing::tensors_of(whole)));
}

TEST(PictureModel, every_example_is_drawn_once_an_epoch_with_the_epochs_number) {
  const Folder folder;
  std::vector<std::pair<Index, std::uint64_t>> requests, wanted;
  Dataset train = picture_data(12, 1);
  train.picture = [&, draw = train.picture](Index example, std::uint64_t epoch) {
    requests.emplace_back(example, epoch);
    return draw(example, epoch);
  };
  Trainer(LockedFolder(folder / "run"), plan(2), picture_sizes(), train, picture_data(4, 2), false, "x").run({}, 1);
  Trainer::resume(folder / "run", train, picture_data(4, 2)).run({});
  for (std::uint64_t epoch : {0, 1})
    for (Index example = 0; example < 12; ++example) wanted.emplace_back(example, epoch);
  EXPECT_TRUE(std::is_permutation(requests.begin(), requests.end(), wanted.begin(), wanted.end()));
}

TEST(PictureModel, a_picture_that_fails_in_a_run_is_named_and_the_checkpoint_goes_on) {
  const Folder folder;
  Dataset train = picture_data(12, 1), broken = train;
  train.examples[5].text = broken.examples[5].text = "five.png";
  broken.picture = [draw = train.picture](Index example, std::uint64_t epoch) {
    return example == 5 && epoch == 1 ? Tensor<float>({8, 99}, 1.0f) : draw(example, epoch);
  };
  const auto run = [&](const std::string& path, const Dataset& data) {
    Trainer(LockedFolder(path), plan(2), picture_sizes(), data, picture_data(4, 2), false, "x").run({});
  };
  const std::string message = message_of<Error>([&] { run(folder / "run", broken); });
  expect_contains(message, "five.png");
  expect_contains(message, "99 pixels wide");
  // Errors of pictures are none of the training state.
  Dataset bad_dev = picture_data(4, 2);
  bad_dev.picture = [](Index, std::uint64_t) { return Tensor<float>({8, 99}, 1.0f); };
  const std::string resumed = message_of([&] { Trainer::resume(folder / "run", train, bad_dev); });
  expect_contains(resumed, "99 pixels wide");
  EXPECT_EQ(resumed.find("training state"), std::string::npos) << resumed;
  Trainer::resume(folder / "run", train, picture_data(4, 2)).run({});
  run(folder / "whole", train);
  expect_same_run(folder / "whole", folder / "run");
}

TEST(PictureModel, lines_of_one_picture_are_references_of_one_question) {
  const Model model = picture_model();
  Dataset data = picture_data(3, 1);
  data.examples[0] = {"one.png", {}, {"a"}};
  data.examples[1] = {"two.png", {}, {"b"}};
  data.examples[2] = {"one.png", {}, {"c", "d"}};
  data.picture = [](Index example, std::uint64_t) { return drawn(example == 1 ? "b" : "cd"); };
  const auto questions = picture_questions(model, data);
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].references, (std::vector<std::vector<std::string>>{{"a"}, {"c", "d"}}));
  EXPECT_EQ(questions[0].patches.shape(), model.patches(drawn("cd")).shape());
  EXPECT_EQ(questions[1].references, (std::vector<std::vector<std::string>>{{"b"}}));
  EXPECT_EQ(questions[1].patches.shape(), model.patches(drawn("b")).shape());
  EXPECT_EQ(evaluate_answers(model, questions, {}).sequences, 2);
}

TEST(PictureModel, a_trace_keeps_the_picture_and_names_patches_by_their_pixels) {
  Model model = picture_model();
  const Tensor<float> picture = drawn("ab");  // 11 wide: six patches
  const Trace trace = record_picture_trace(model, picture, {4, 5});
  EXPECT_EQ(trace.source, (std::vector<std::string>{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(trace.produced, (std::vector<std::string>{"a", "b", "</s>"}));
  ASSERT_TRUE(trace.picture);
  EXPECT_EQ(trace.picture->pixels.shape(), picture.shape());
  EXPECT_EQ(trace.find(AttentionKind::cross, 1)->weights.shape(), (Shape{4, 3, 6}));
  // Two rows of patches: column of patches after column.
  model.config.patches = {8, 4, 4};
  model.make_network(1);
  EXPECT_EQ(record_picture_trace(model, picture, {4}).source,
            (std::vector<std::string>{"0,0", "0,4", "4,0", "4,4", "8,0", "8,4"}));
}

TEST(PictureModel, answers_are_text_where_symbols_are_characters) {
  Model model = picture_model();
  EXPECT_EQ(model.answer_text({"a", "b"}), "ab");
  model.target = Vocabulary({"cat", "a"});
  EXPECT_EQ(model.answer_text({"cat", "a"}), "cat a");
  EXPECT_EQ(testing::toy_model().answer_text({"a", "b"}), "a b");
}

}  // namespace
}  // namespace regard
