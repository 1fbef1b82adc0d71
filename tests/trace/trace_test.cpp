#include "regard/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "files.h"
#include "regard/error.h"
#include "regard/file.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

// Two letters to three symbols, one head.
Trace small_trace() {
  Trace trace;
  trace.model = "m";
  trace.source = {"a", "b"};
  trace.target = {"<s>", "X", "Y"};
  trace.produced = {"X", "Y", "</s>"};
  AttentionMap cross;
  cross.kind = AttentionKind::cross;
  cross.layer = 1;
  cross.weights = Tensor<float>({1, 3, 2}, {0.25f, 0.75f, 1, 0, 0.5f, 0.5f});
  cross.entropy = Tensor<float>({1, 3}, {0.5f, 0, 0.7f});
  AttentionMap decoder;
  decoder.kind = AttentionKind::decoder;
  decoder.weights = Tensor<float>({1, 3, 3}, {1, 0, 0, 0.5f, 0.5f, 0, 0.2f, 0.3f, 0.5f});
  decoder.visible = Tensor<std::uint8_t>({3, 3}, {1, 0, 0, 1, 1, 0, 1, 1, 1});
  trace.maps = {cross, decoder};
  return trace;
}

class TraceTest : public ::testing::Test {
 protected:
  void expect_load_refused(const std::string& part) {
    testing::expect_file_error(path_, part, [&] { load_trace(path_); });
  }
  const testing::Folder folder_;
  const std::string path_ = folder_ / "t";
};

TEST_F(TraceTest, saved_trace_is_loaded_as_it_was) {
  const Trace trace = small_trace();
  save_trace(trace, path_);
  const Trace back = load_trace(path_);
  EXPECT_EQ(back.model, trace.model);
  EXPECT_EQ(back.source, trace.source);
  EXPECT_EQ(back.target, trace.target);
  EXPECT_EQ(back.produced, trace.produced);
  ASSERT_EQ(back.maps.size(), 2u);
  const AttentionMap* cross = back.find(AttentionKind::cross, 1);
  ASSERT_TRUE(cross);
  EXPECT_EQ(cross->weights.shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(cross->weights[1], 0.75f);
  EXPECT_EQ(cross->entropy[2], 0.7f);
  EXPECT_TRUE(cross->visible.empty());
  EXPECT_EQ(back.find(AttentionKind::decoder, 0)->visible[1], 0);
}

TEST_F(TraceTest, saving_twice_gives_the_same_bytes) {
  save_trace(small_trace(), path_);
  save_trace(small_trace(), path_ + "2");
  EXPECT_EQ(read_file(path_ + ".json"), read_file(path_ + "2.json"));
  EXPECT_EQ(read_file(path_ + ".safetensors"), read_file(path_ + "2.safetensors"));
}

TEST_F(TraceTest, labels_that_are_half_a_character_can_be_saved) {
  Trace trace = small_trace();
  trace.source[0] = "\xf0\x9f";
  save_trace(trace, path_);
  EXPECT_EQ(load_trace(path_).source[1], "b");
}

TEST_F(TraceTest, labels_belong_to_the_kind) {
  const Trace trace = small_trace();
  EXPECT_EQ(trace.query_labels(AttentionKind::encoder), trace.source);
  EXPECT_EQ(trace.key_labels(AttentionKind::encoder), trace.source);
  EXPECT_EQ(trace.query_labels(AttentionKind::decoder), trace.target);
  EXPECT_EQ(trace.key_labels(AttentionKind::decoder), trace.target);
  EXPECT_EQ(trace.query_labels(AttentionKind::cross), trace.target);
  EXPECT_EQ(trace.key_labels(AttentionKind::cross), trace.source);
}

TEST_F(TraceTest, absent_maps_are_null_and_count_nothing) {
  const Trace trace = small_trace();
  EXPECT_EQ(trace.find(AttentionKind::encoder, 0), nullptr);
  EXPECT_EQ(trace.find(AttentionKind::cross, 0), nullptr);
  EXPECT_EQ(trace.layers(AttentionKind::encoder), 0);
  EXPECT_EQ(trace.layers(AttentionKind::decoder), 1);
  EXPECT_EQ(trace.layers(AttentionKind::cross), 2);
}

TEST_F(TraceTest, kinds_have_names_and_titles) {
  EXPECT_STREQ(kind_title(AttentionKind::encoder), "encoder self-attention");
  EXPECT_STREQ(kind_title(AttentionKind::decoder), "decoder self-attention");
  EXPECT_STREQ(kind_title(AttentionKind::cross), "cross-attention");
  for (AttentionKind kind : {AttentionKind::encoder, AttentionKind::decoder, AttentionKind::cross})
    EXPECT_EQ(kind_from_name(kind_name(kind)), kind);
  EXPECT_THROW(kind_from_name("self"), ArgumentError);
}

TEST_F(TraceTest, map_that_contradicts_its_labels_is_not_saved) {
  Trace trace = small_trace();
  trace.source.push_back("c");
  EXPECT_THROW(save_trace(trace, path_), FileError);
  trace = small_trace();
  trace.maps.push_back(trace.maps[0]);
  EXPECT_THROW(save_trace(trace, path_), FileError);
  trace = small_trace();
  trace.maps[1].visible = Tensor<std::uint8_t>({2, 2});
  EXPECT_THROW(save_trace(trace, path_), FileError);
  for (Index layer : {Index{-1}, Index{1} << 62}) {
    trace = small_trace();
    trace.maps[0].layer = layer;
    EXPECT_THROW(save_trace(trace, path_), FileError);
  }
  trace = small_trace();
  trace.produced.pop_back();
  EXPECT_THROW(save_trace(trace, path_), FileError);
  EXPECT_FALSE(fs::exists(path_ + ".json"));
}

TEST_F(TraceTest, bad_files_give_one_clear_line) {
  expect_load_refused("can't be opened");
  write_file(path_ + ".json", "{");
  expect_load_refused("not valid JSON");
  write_file(path_ + ".json", "[]");
  expect_load_refused("not a trace");
  write_file(path_ + ".json", R"({"format":"regard-trace","version":2})");
  expect_load_refused("version 2");
  write_file(path_ + ".json", R"({"format":"regard-trace","version":1,"model":3})");
  expect_load_refused("wrong type");
  write_file(path_ + ".json",
             R"({"format":"regard-trace","version":1,"model":"","source":[],"target":[],"produced":[],)"
             R"("maps":[{"kind":"x","layer":0}]})");
  expect_load_refused("unknown attention kind");
}

TEST_F(TraceTest, tensor_that_is_missing_or_has_the_wrong_shape_is_named) {
  save_trace(small_trace(), path_);
  TensorFile file = read_safetensors(path_ + ".safetensors");
  const AnyTensor weights = file.at("cross.1.weights");
  file.tensors.erase("cross.1.weights");
  write_safetensors(path_ + ".safetensors", file);
  expect_load_refused("cross.1.weights");
  file.tensors["cross.1.weights"] = weights;
  file.tensors["cross.1.weights"].shape = {1, 2, 3};
  write_safetensors(path_ + ".safetensors", file);
  expect_load_refused("[1,2,3]");
}

TEST_F(TraceTest, weights_that_are_no_shares_are_refused_with_their_place) {
  for (float bad : {NAN, INFINITY, -0.25f, 1.5f}) {
    Trace trace = small_trace();
    trace.maps[0].weights[3] = bad;
    testing::expect_file_error(path_, "map cross.1: the weight of head 0, query 1, key 1 is",
                               [&] { save_trace(trace, path_); });
    save_trace(small_trace(), path_);
    TensorFile file = read_safetensors(path_ + ".safetensors");
    file.tensors["cross.1.weights"] = any_tensor(trace.maps[0].weights);
    write_safetensors(path_ + ".safetensors", file);
    expect_load_refused("map cross.1: the weight of head 0, query 1, key 1 is");
  }
  Trace rounded = small_trace();
  rounded.maps[0].weights[2] = 1.00001f;
  rounded.maps[0].weights[3] = -0.00001f;
  EXPECT_NO_THROW(save_trace(rounded, path_));
}

TEST_F(TraceTest, an_entropy_that_is_no_number_is_refused) {
  Trace trace = small_trace();
  trace.maps[0].entropy[1] = NAN;
  testing::expect_file_error(path_, "map cross.1: an entropy", [&] { save_trace(trace, path_); });
}

// Two patches of 2 x 3 pixels, the second cut off at the picture's edge.
Trace picture_trace() {
  Trace trace = small_trace();
  trace.source = {"0", "3"};
  trace.picture = PatchedPicture{Tensor<float>({2, 5}, 1.0f), 2, 3};
  return trace;
}

TEST_F(TraceTest, pictures_that_can_not_be_shown_are_refused) {
  save_trace(picture_trace(), path_);
  EXPECT_EQ(load_trace(path_).picture->pixels.shape(), (Shape{2, 5}));
  TensorFile file = read_safetensors(path_ + ".safetensors");
  for (float bad : {NAN, INFINITY}) {
    Trace trace = picture_trace();
    trace.picture->pixels[7] = bad;
    testing::expect_file_error(path_, "a pixel of its picture", [&] { save_trace(trace, path_); });
    file.tensors["picture"] = any_tensor(trace.picture->pixels);
    write_safetensors(path_ + ".safetensors", file);
    expect_load_refused("a pixel of its picture is not a finite number");
  }
  // As wide as an Index can say: the sum with the picture's width would overflow.
  for (Index width : {Index{32768}, std::numeric_limits<Index>::max()}) {
    Trace trace = picture_trace();
    trace.picture->patch_width = width;
    testing::expect_file_error(path_, "does not come in patches of 2 x " + std::to_string(width),
                               [&] { save_trace(trace, path_); });
  }
}

TEST_F(TraceTest, the_answer_is_kept_and_of_old_files_read_off_the_symbols) {
  Trace trace = small_trace();
  trace.answer = "XY";
  save_trace(trace, path_);
  EXPECT_EQ(load_trace(path_).answer, "XY");
  std::string json = read_file(path_ + ".json");
  const auto at = json.find("\"answer\"");
  ASSERT_NE(at, std::string::npos);
  json.erase(at, json.find(',', at) + 1 - at);
  write_file(path_ + ".json", json);
  EXPECT_EQ(load_trace(path_).answer, "X Y");
}

TEST_F(TraceTest, only_traces_of_whole_weights_are_saved) {
  Trace norms = small_trace();
  norms.quantity = MapQuantity::norms;
  testing::expect_file_error(path_, "only traces of attention weights are saved, this one holds contribution norms",
                             [&] { save_trace(norms, path_); });
  Trace without = small_trace();
  without.maps[0].weights = {};
  testing::expect_file_error(path_, "weights are [0], need [heads,q_len,kv_len]", [&] { save_trace(without, path_); });
}

TEST(Quantity, names_are_read_back_and_others_refused) {
  for (MapQuantity quantity : {MapQuantity::weights, MapQuantity::norms, MapQuantity::rollout})
    EXPECT_EQ(quantity_from_name(quantity_name(quantity)), quantity);
  EXPECT_THROW(quantity_from_name("flow"), ArgumentError);
}

}  // namespace
}  // namespace regard
