// Files that are missing, cut or wrong: one line that names the file.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/toy.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

using testing::bytes_of;
using testing::expect_contains;
using testing::Folder;
using testing::message_of;
using testing::reversals;
using testing::tensors_of;
using testing::toy_model;
using testing::toy_sizes;
using testing::write_bytes;
using Changes = std::vector<std::pair<std::string, nlohmann::json>>;

// Each change alone, in the JSON file at `path`, must be refused by `load`.
template <class F>
void expect_refused(const std::string& path, const Changes& changes, F load) {
  const auto right = nlohmann::json::parse(bytes_of(path));
  for (const auto& [pointer, value] : changes) {
    SCOPED_TRACE(pointer + " = " + value.dump());
    auto wrong = right;
    wrong[nlohmann::json::json_pointer(pointer)] = value;
    write_bytes(path, wrong.dump());
    expect_contains(message_of<FileError>(load), path);
  }
}

TEST(BrokenModel, a_missing_or_cut_file_is_named) {
  const Folder folder;
  const auto load = [&] { load_model(folder / "run"); };
  save_model(toy_model(), folder / "run");
  for (const char* name : {"model.json", "model.safetensors"}) {
    const std::string path = folder / "run/" + name, whole = bytes_of(path);
    for (std::size_t kept : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 3}) {
      write_bytes(path, whole.substr(0, kept));
      expect_contains(message_of<FileError>(load), path);
    }
    std::filesystem::remove(path);
    expect_contains(message_of<FileError>(load), path);
    write_bytes(path, whole);
  }
  EXPECT_NO_THROW(load());
}

TEST(BrokenModel, a_tensor_of_another_shape_or_of_integers_is_named) {
  const Folder folder;
  const std::string path = folder / "run/model.safetensors", name = "encoder.embedding";
  save_model(toy_model(), folder / "run");
  TensorFile file = read_safetensors(path);
  ASSERT_TRUE(file.has(name));
  for (const auto& tensor : {any_tensor(Tensor<float>({9, 33})), any_tensor(Tensor<std::int64_t>({9, 32}))}) {
    file.tensors[name] = tensor;
    write_safetensors(path, file);
    const std::string message = message_of<FileError>([&] { load_model(folder / "run"); });
    expect_contains(message, path);
    expect_contains(message, name);
  }
}

TEST(BrokenModel, an_impossible_description_is_refused) {
  const Folder folder;
  save_model(toy_model(), folder / "run");
  const auto load = [&] { load_model(folder / "run"); };
  const std::string path = folder / "run/model.json";
  expect_refused(path,
                 {{"/config/heads", 5},
                  {"/config/heads", 0},
                  {"/config/model_dim", -32},
                  {"/config/norm", "middle"},
                  {"/config/activation", "none"},
                  {"/config/hidden", "64"},
                  {"/config/max_length", nullptr},
                  {"/source_symbols", 7},
                  {"/config", 3},
                  {"/words", "yes"}},
                 load);
  write_bytes(path, "[]");
  expect_contains(message_of<FileError>(load), path);
  write_bytes(path, "{}");
  EXPECT_EQ(message_of<FileError>(load), path + ": not a model description (key 'name' not found)");
}

TEST(BrokenModel, a_name_that_is_no_utf8_is_still_saved) {
  const Folder folder;
  Model model = toy_model();
  model.name = "a\xFF";
  save_model(model, folder / "run");
  EXPECT_EQ(load_model(folder / "run").name, "a\xEF\xBF\xBD");
}

// Half a unit in the last place is 2^-9 of a bf16 and 2^-12 of an f16; below
// 6.1e-5, f16 has fewer bits.
TEST(SavedModel, comes_back_with_the_precision_of_its_type) {
  const Model model = toy_model(toy_sizes(NormPlace::post, PositionKind::learned));
  for (const auto& [dtype, bound] :
       {std::pair{DType::f32, 0.0}, {DType::bf16, std::ldexp(1.0, -8)}, {DType::f16, std::ldexp(1.0, -11)}}) {
    const Folder folder;
    save_model(model, folder / "run", dtype);
    const Model loaded = load_model(folder / "run");
    const auto before = model.network->parameters(), after = loaded.network->parameters();
    for (std::size_t p = 0; p < before.size(); ++p)
      for (Index i = 0; i < before[p]->value.count(); ++i) {
        const auto x = static_cast<double>(before[p]->value[i]), y = static_cast<double>(after[p]->value[i]);
        ASSERT_LE(std::abs(x - y), bound * std::max(std::abs(x), 6.2e-5))
            << dtype_name(dtype) << " " << before[p]->name;
      }
  }
}

TEST(RefusedRequests, say_what_is_wrong) {
  const Model model = toy_model();
  expect_contains(message_of<ArgumentError>([&] { record_trace(model, "", {5}); }), "empty");
  expect_contains(message_of<ArgumentError>([&] { record_trace(model, "a", {99}); }), "99");
  expect_contains(message_of<ArgumentError>([&] { record_trace(model, std::string(41, 'a'), {5}); }), "41");
  expect_contains(message_of<ArgumentError>([&] { answer(model, {{4}}, {}, 0); }), "batch");
  expect_contains(message_of<ArgumentError>([] { plan_batches({{{4}, {4}}}, 0, 1, 0); }), "batch");
}

// One epoch of a small run in `folder`.
void train_one_epoch(const Folder& folder) {
  TrainingConfig config;
  config.epochs = 2;
  config.batch = 8;
  Trainer(folder / "run", config, toy_sizes(), reversals(20, 1), reversals(5, 2), false, "toy").run({}, 1);
}

TEST(BrokenRun, a_missing_or_cut_file_is_named) {
  const Folder folder;
  const auto resume = [&] { Trainer::resume(folder / "run", reversals(20, 1), reversals(5, 2)); };
  expect_contains(message_of<FileError>(resume), folder / "run");
  train_one_epoch(folder);
  for (const std::string& path : {folder / "run/training.json", tensors_of(folder / "run")}) {
    const std::string whole = bytes_of(path);
    write_bytes(path, whole.substr(0, whole.size() / 2));
    expect_contains(message_of<FileError>(resume), path);
    write_bytes(path, whole);
  }
  EXPECT_NO_THROW(resume());
}

TEST(BrokenRun, weights_and_moments_that_are_missing_or_misshapen_are_named) {
  const Folder folder;
  train_one_epoch(folder);
  const auto resume = [&] { Trainer::resume(folder / "run", reversals(20, 1), reversals(5, 2)); };
  const std::string path = tensors_of(folder / "run");
  const TensorFile right = read_safetensors(path);
  for (const std::string part : {"value.", "first.", "second."}) {
    const std::string name = part + "encoder.embedding";
    TensorFile file = right;
    file.tensors[name] = any_tensor(Tensor<float>({1, 1}));
    write_safetensors(path, file);
    expect_contains(message_of<FileError>(resume), path + ": tensor " + name);
    file.tensors.erase(name);
    write_safetensors(path, file);
    expect_contains(message_of<FileError>(resume), path + ": tensor " + name);
  }
}

TEST(BrokenRun, an_impossible_state_is_refused) {
  const Folder folder;
  train_one_epoch(folder);
  expect_refused(folder / "run/training.json",
                 {{"/training/dtype", "F12"},
                  {"/training/epochs", 0},
                  {"/training/batch", "8"},
                  {"/epoch", nullptr},
                  {"/tensors", 7},
                  {"/digest_version", 4},
                  {"/model/config/heads", 3}},
                 [&] { Trainer::resume(folder / "run", reversals(20, 1), reversals(5, 2)); });
}

}  // namespace
}  // namespace regard
