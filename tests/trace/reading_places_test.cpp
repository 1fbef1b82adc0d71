#include "regard/reading_places.h"

#include <gtest/gtest.h>

#include "files.h"
#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

// Ten pixels wide in patches of four, 2 x 1 patches a column: three columns, six
// patches with middles at 2, 2, 6, 6, 10, 10. Two characters and the end.
Trace two_characters() {
  Trace trace;
  trace.source = {"0,0", "0,2", "4,0", "4,2", "8,0", "8,2"};
  trace.target = {"<s>", "a", "b"};
  trace.produced = {"a", "b", "</s>"};
  trace.picture = PatchedPicture{Tensor<float>({4, 10}, 1.0f), 2, 4};
  AttentionMap map{.kind = AttentionKind::cross};
  map.weights = Tensor<float>({2, 3, 6});
  const auto set = [&](Index head, Index row, Index patch, float weight) {
    map.weights[(head * 3 + row) * 6 + patch] = weight;
  };
  set(0, 0, 1, 1.0f);  // head 0, "a": all at 2
  set(0, 1, 2, 0.6f);  // head 0, "b": most at 6, mean at 7.6
  set(0, 1, 5, 0.4f);
  set(1, 0, 4, 1.0f);   // head 1, "a": all at 10
  set(1, 1, 0, 0.55f);  // head 1, "b": most at 2, mean at 5.6
  set(1, 1, 5, 0.45f);
  set(0, 2, 0, 1.0f);
  set(1, 2, 0, 1.0f);
  trace.maps.push_back(std::move(map));
  return trace;
}

TEST(ReadingPlaces, count_peaks_and_mean_positions_on_the_character) {
  ReadingPlaces places;
  places.add(two_characters(), {{0, 5}, {5, 7}});
  EXPECT_EQ(places.characters, 2);
  ASSERT_EQ(places.layers.size(), 1u);
  ASSERT_EQ(places.layers[0].size(), 3u);
  EXPECT_EQ(places.layers[0][0].peaks_inside, 2);  // 2 in [0, 5), 6 in [5, 7)
  EXPECT_EQ(places.layers[0][0].means_inside, 1);  // 7.6 is not in [5, 7)
  EXPECT_EQ(places.layers[0][1].peaks_inside, 0);  // 10 and 2
  EXPECT_EQ(places.layers[0][1].means_inside, 1);  // 5.6
  // Mean of both: "a" half at 2 and half at 10, the earlier wins the tie, mean 6;
  // "b" .275 at 2, .3 at 6, .425 at 10: mean 6.6.
  EXPECT_EQ(places.layers[0][2].peaks_inside, 1);
  EXPECT_EQ(places.layers[0][2].means_inside, 1);
  // Two of six patches lie on either character.
  EXPECT_DOUBLE_EQ(places.by_chance, 2.0 / 6 + 2.0 / 6);
  places.add(two_characters(), {{0, 5}, {5, 7}});
  EXPECT_EQ(places.characters, 4);
  EXPECT_EQ(places.layers[0][0].peaks_inside, 4);
}

TEST(ReadingPlaces, need_a_picture_and_a_place_for_each_character) {
  ReadingPlaces places;
  expect_contains(message_of([&] { places.add(two_characters(), {{0, 5}}); }), "1 characters, but 3 rows");
  Trace text = two_characters();
  text.picture.reset();
  expect_contains(message_of([&] { places.add(text, {{0, 5}, {5, 7}}); }), "of no picture");
}

TEST(PictureTrace, is_loaded_with_its_picture_and_refused_without) {
  const testing::Folder folder;
  const Trace trace = two_characters();
  save_trace(trace, folder / "t");
  const Trace back = load_trace(folder / "t");
  ASSERT_TRUE(back.picture);
  EXPECT_EQ(back.picture->pixels.shape(), (Shape{4, 10}));
  EXPECT_EQ(back.picture->patch_height, 2);
  EXPECT_EQ(back.picture->patch_width, 4);
  std::string json = testing::bytes_of(folder / "t.json");
  const auto at = json.find("\"patch_width\": 4");
  ASSERT_NE(at, std::string::npos);
  json.replace(at, 16, "\"patch_width\": 2");
  testing::write_bytes(folder / "t.json", json);
  testing::expect_file_error(folder / "t", "its picture has 10 patches for 6 source labels",
                             [&] { load_trace(folder / "t"); });
}

}  // namespace
}  // namespace regard
