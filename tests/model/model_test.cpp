#include "regard/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "files.h"
#include "regard/error.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

using testing::bytes_of;
using testing::Folder;
using testing::write_bytes;
using Symbols = std::vector<std::string>;

Model small_model() {
  Model model;
  model.name = "small";
  model.source = Vocabulary(Symbols{"a", "b", "é"});
  model.target = Vocabulary(Symbols{"A", "B", "EH"});
  model.config.layer = {.model_dim = 16, .heads = 2, .hidden = 24};
  model.config.encoder_layers = 2;
  model.config.decoder_layers = 3;
  model.config.max_length = 32;
  model.make_network(1);
  return model;
}

void expect_file_error(const std::string& folder, const std::string& says) {
  try {
    load_model(folder);
    FAIL() << "nothing wrong was found; expected " << says;
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}

TEST(SaveModel, loads_back_bit_for_bit_in_f32) {
  const Folder folder;
  const Model model = small_model();
  save_model(model, folder / "m");
  const Model loaded = load_model(folder / "m");
  EXPECT_EQ(loaded.name, "small");
  EXPECT_EQ(loaded.source.own_symbols(), model.source.own_symbols());
  EXPECT_EQ(loaded.target.own_symbols(), model.target.own_symbols());
  const auto ours = loaded.network->parameters(), right = model.network->parameters();
  ASSERT_EQ(ours.size(), right.size());
  for (std::size_t p = 0; p < ours.size(); ++p)
    for (Index i = 0; i < ours[p]->value.count(); ++i) ASSERT_EQ(ours[p]->value[i], right[p]->value[i]);
}

TEST(SaveModel, keeps_one_vocabulary_one) {
  const Folder folder;
  Model model = small_model();
  model.target = model.source;
  model.config.shared_vocabulary = true;
  model.make_network(1);
  save_model(model, folder / "m");
  const Model loaded = load_model(folder / "m");
  EXPECT_TRUE(loaded.config.shared_vocabulary);
  EXPECT_EQ(loaded.network->parameters().size(), model.network->parameters().size());
  std::string json = bytes_of(folder / "m/model.json");
  const auto at = json.find("\"a\"", json.find("target_symbols"));
  ASSERT_NE(at, std::string::npos);
  write_bytes(folder / "m/model.json", json.replace(at, 3, "\"c\""));
  expect_file_error(folder / "m", "model.json: not a model description (shared_vocabulary, but the symbols of source");
}

// Half the bytes, and an error of half a unit in the last place: 2^-9 of the
// value in bf16, 2^-12 in f16 (which has a smallest step of 2^-24).
TEST(SaveModel, half_types_halve_the_file_and_round_to_nearest) {
  const Folder folder;
  const Model model = small_model();
  save_model(model, folder / "f32");
  const auto full = bytes_of(folder / "f32/model.safetensors").size();
  for (const auto& [dtype, error] : {std::pair{DType::bf16, 0x1p-9}, {DType::f16, 0x1p-12}}) {
    save_model(model, folder / "half", dtype);
    EXPECT_LT(bytes_of(folder / "half/model.safetensors").size(), full * 2 / 3);
    const Model loaded = load_model(folder / "half");
    const auto ours = loaded.network->parameters(), right = model.network->parameters();
    for (std::size_t p = 0; p < ours.size(); ++p)
      for (Index i = 0; i < ours[p]->value.count(); ++i) {
        const double value = static_cast<double>(right[p]->value[i]);
        ASSERT_NEAR(static_cast<double>(ours[p]->value[i]), value, error * std::abs(value) * 2 + 0x1p-25);
      }
  }
}

TEST(LoadModel, says_which_file_is_missing_cut_or_wrong) {
  const Folder folder;
  expect_file_error(folder / "none", "none/model.json");
  save_model(small_model(), folder / "m");
  const std::string json = folder / "m/model.json", tensors = folder / "m/model.safetensors";
  const std::string good_json = bytes_of(json), good_tensors = bytes_of(tensors);

  folder.write("m/model.json", good_json.substr(0, good_json.size() / 2));
  expect_file_error(folder / "m", "model.json");
  folder.write("m/model.json", "{}");
  expect_file_error(folder / "m", "model.json");
  std::string bad = good_json;
  bad.replace(bad.find("\"heads\": 2"), 10, "\"heads\": 3");
  folder.write("m/model.json", bad);
  expect_file_error(folder / "m", "16");
  bad = good_json;
  bad.replace(bad.find("\"hidden\": 24"), 12, "\"hidden\": 25");
  folder.write("m/model.json", bad);
  expect_file_error(folder / "m", "[16,24]");
  folder.write("m/model.json", good_json);

  folder.write("m/model.safetensors", good_tensors.substr(0, good_tensors.size() - 10));
  expect_file_error(folder / "m", "model.safetensors");
  std::filesystem::remove(tensors);
  expect_file_error(folder / "m", "model.safetensors");
}

TEST(LoadModel, refuses_missing_and_superfluous_tensors_by_name) {
  const Folder folder;
  save_model(small_model(), folder / "m");
  const std::string path = folder / "m/model.safetensors";
  TensorFile file = read_safetensors(path);
  file.tensors["stranger"] = file.tensors.at("decoder.norm.gain");
  write_safetensors(path, file);
  expect_file_error(folder / "m", "stranger");
  file.tensors.erase("stranger");
  file.tensors.erase("decoder.norm.gain");
  write_safetensors(path, file);
  expect_file_error(folder / "m", "decoder.norm.gain");
}

TEST(Model, unknown_characters_are_named_and_still_read) {
  const Model model = small_model();
  std::vector<std::string> unknown;
  const auto ids = model.source_ids("aXé?", &unknown);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{4, Vocabulary::unknown, 6, Vocabulary::unknown}));
  EXPECT_EQ(unknown, (Symbols{"X", "?"}));
  EXPECT_EQ(answer(model, {ids}, {}).size(), 1u);
}

TEST(Model, answers_keep_the_order_of_the_questions) {
  const Model model = small_model();
  const std::vector<std::vector<std::int64_t>> sources{{4, 5, 6, 4, 5}, {6}, {5, 5, 4}, {4, 6}, {5}};
  const auto together = answer(model, sources, {}, 2);
  for (std::size_t i = 0; i < sources.size(); ++i)
    EXPECT_EQ(together[i].symbols, answer(model, {sources[i]}, {})[0].symbols);
}

TEST(RecordTrace, holds_every_layer_and_head_of_every_kind_with_labels) {
  const Model model = small_model();
  const Trace trace = record_trace(model, "abZ", {4, 6});
  EXPECT_EQ(trace.model, "small");
  EXPECT_EQ(trace.source, (Symbols{"a", "b", "Z"}));
  EXPECT_EQ(trace.target, (Symbols{"<s>", "A", "EH"}));
  EXPECT_EQ(trace.produced, (Symbols{"A", "EH", "</s>"}));
  EXPECT_EQ(trace.layers(AttentionKind::encoder), 2);
  EXPECT_EQ(trace.layers(AttentionKind::decoder), 3);
  EXPECT_EQ(trace.layers(AttentionKind::cross), 3);
  for (const AttentionMap& map : trace.maps) {
    EXPECT_EQ(map.weights.shape(), (Shape{2, 3, 3}));
    for (Index row = 0; row < 6; ++row) {
      double sum = 0, entropy = 0;
      for (Index key = 0; key < 3; ++key) {
        const double p = static_cast<double>(map.weights[row * 3 + key]);
        sum += p;
        if (p > 0) entropy -= p * std::log(p);
      }
      EXPECT_NEAR(sum, 1, 1e-6);
      EXPECT_NEAR(static_cast<double>(map.entropy[row]), entropy, 1e-5);
    }
    if (map.kind != AttentionKind::decoder) continue;
    EXPECT_EQ(map.weights[1], 0.0f);  // the first row sees itself only
    EXPECT_EQ(map.visible[0], 1);
    EXPECT_EQ(map.visible[1], 0);
  }
}

}  // namespace
}  // namespace regard
