#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "regard/error.h"
#include "regard/terminal.h"
#include "regard/view_json.h"
#include "view/samples.h"

namespace regard {
namespace {

using Json = nlohmann::json;

TEST(Contents, layers_of_one_shape_share_a_line) {
  Trace trace = samples::knot();
  for (Index layer : {1, 3}) {
    trace.maps.push_back(trace.maps[0]);
    trace.maps.back().layer = layer;
  }
  EXPECT_EQ(terminal_contents(trace),
            "toy\n"
            "decoder self-attention: layer 0, 1 head, 4 queries × 4 keys\n"
            "cross-attention: layers 0 to 1, 2 heads, 4 queries × 4 keys\n"
            "cross-attention: layer 3, 2 heads, 4 queries × 4 keys\n");
}

TEST(Contents, layers_of_other_shapes_have_their_own_lines) {
  Trace trace = samples::uniform(2, "w", 2, 3);
  trace.maps[1].weights = Tensor<float>({5, 2, 2});
  EXPECT_EQ(terminal_contents(trace),
            "toy\n"
            "encoder self-attention: layer 0, 3 heads, 2 queries × 2 keys\n"
            "encoder self-attention: layer 1, 5 heads, 2 queries × 2 keys\n");
}

TEST(Contents, empty_trace_says_so) {
  EXPECT_EQ(terminal_contents(Trace{}), "no attention was recorded\n");
  EXPECT_EQ(Json::parse(trace_contents_json(Trace{})).at("maps"), Json::array());
}

TEST(Contents, json_lists_labels_and_shapes) {
  Trace trace = samples::knot();
  trace.source[0] = "\xff";
  const Json contents = Json::parse(trace_contents_json(trace));
  EXPECT_EQ(contents.at("model"), "toy");
  EXPECT_EQ(contents.at("source"), Json::parse(R"(["\ufffd","n","o","t"])"));
  EXPECT_EQ(contents.at("produced"), Json::parse(R"(["N","AA","T","</s>"])"));
  EXPECT_EQ(contents.at("maps"), Json::parse(R"([{"kind":"cross","layer":0,"heads":2,"queries":4,"keys":4},
                                                 {"kind":"decoder","layer":0,"heads":1,"queries":4,"keys":4}])"));
}

TEST(Contents, weights_of_another_rank_are_refused) {
  Trace trace = samples::knot();
  trace.maps[0].weights.reshape({2, 16});
  EXPECT_THROW(terminal_contents(trace), ArgumentError);
  EXPECT_THROW(trace_contents_json(trace), ArgumentError);
}

}  // namespace
}  // namespace regard
