#include "regard/drawn_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "files.h"
#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::message_of;

StringPlan small_plan() {
  return {.alphabet = {"a", "b", "c", "d", "é"},
          .shortest = 1,
          .longest = 5,
          .fonts = {"DejaVu Sans", "DejaVu Serif Bold"},
          .train = 500,
          .dev = 60,
          .test = 80};
}

TEST(DrawnStrings, an_eighth_each_is_for_development_and_for_tests) {
  Index dev = 0, test = 0;
  constexpr Index count = 20'000;
  for (Index i = 0; i < count; ++i) {
    const Part part = part_of("string" + std::to_string(i));
    dev += part == Part::dev;
    test += part == Part::test;
  }
  // Four standard deviations of a binomial: 187.
  EXPECT_NEAR(dev, count / 8, 187);
  EXPECT_NEAR(test, count / 8, 187);
}

TEST(DrawnStrings, parts_share_no_string_and_hold_no_string_twice) {
  const DrawnStrings train(small_plan(), Part::train), dev(small_plan(), Part::dev), test(small_plan(), Part::test);
  EXPECT_EQ(train.texts().size(), 500u);
  const std::set<std::string> seen(train.texts().begin(), train.texts().end());
  for (const auto* held_out : {&dev, &test})
    for (const std::string& text : held_out->texts()) EXPECT_FALSE(seen.contains(text)) << text;
  EXPECT_EQ(std::set<std::string>(test.texts().begin(), test.texts().end()).size(), 80u);
  EXPECT_EQ(std::set<std::string>(dev.texts().begin(), dev.texts().end()).size(), 60u);
  for (const std::string& text : dev.texts()) EXPECT_EQ(part_of(text), Part::dev);
}

TEST(DrawnStrings, other_fonts_draw_the_same_strings) {
  StringPlan other = small_plan();
  other.fonts = {"DejaVu Sans Mono"};
  const DrawnStrings ours(small_plan(), Part::test), theirs(other, Part::test);
  EXPECT_EQ(ours.texts(), theirs.texts());
  EXPECT_EQ(theirs.style(3, 0).font, "DejaVu Sans Mono");
}

TEST(DrawnStrings, number_and_epoch_decide_the_picture) {
  const DrawnStrings one(small_plan(), Part::train), two(small_plan(), Part::train);
  const auto same = [](const DrawnText& a, const DrawnText& b) {
    return a.picture.shape() == b.picture.shape() &&
           std::equal(a.picture.values().begin(), a.picture.values().end(), b.picture.values().begin());
  };
  EXPECT_TRUE(same(one.draw(7, 2), two.draw(7, 2)));
  EXPECT_FALSE(same(one.draw(7, 2), one.draw(7, 3)));
  EXPECT_EQ(one.draw(7, 2).characters.size(), one.draw(7, 3).characters.size());
  std::set<std::string> fonts;
  for (Index i = 0; i < 30; ++i) fonts.insert(one.style(i, 0).font);
  EXPECT_EQ(fonts.size(), 2u);
  expect_contains(message_of([&] { one.draw(500, 0); }), "no string 500 of 500");
}

TEST(DrawnStrings, plans_are_read_and_refused_by_their_entries) {
  const testing::Folder folder;
  const std::string good =
      R"({"alphabet": "abé", "shortest": 2, "longest": 3, "fonts": ["DejaVu Sans"], "distortion": 0.5, "seed": 4,)"
      R"( "height": 24, "train": 5, "dev": 1, "test": 2})";
  const StringPlan plan = read_string_plan(folder.write("good.json", good));
  EXPECT_EQ(plan.alphabet, (std::vector<std::string>{"a", "b", "é"}));
  EXPECT_EQ(plan.height, 24);
  EXPECT_EQ(plan.distortion, 0.5);
  EXPECT_EQ(plan.test, 2);
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& part) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const std::string path = folder.write("bad.json", text);
    testing::expect_file_error(path, part, [&] { read_string_plan(path); });
  };
  refused("\"seed\": 4,", "", "seed");
  refused("\"seed\"", "\"sead\"", "no entry \"sead\"");
  refused("\"longest\": 3", "\"longest\": 1", "lengths 2 to 1");
  refused("[\"DejaVu Sans\"]", "[]", "no fonts");
  refused("\"abé\"", "\"\"", "the alphabet is empty");
  refused("\"train\": 5", "\"train\": -5", "a part of -5");
  refused("{", "[", "not valid JSON");
  refused("\"distortion\": 0.5", "\"distortion\": 1.5", "distortion is 1.5");
  refused("\"distortion\": 0.5", "\"distortion\": -0.1", "distortion is -0.1");
  refused("\"distortion\": 0.5", "\"distortion\": \"0.5\"", "\"distortion\" is \"0.5\", must be a number");
  refused("\"height\": 24", "\"height\": 0", "height is 0, must be 1 to 4096");
  refused("\"height\": 24", "\"height\": 4097", "height is 4097");
  refused("\"height\": 24", "\"height\": 24.5", "\"height\" is 24.5, must be a whole number");
  refused("\"seed\": 4", "\"seed\": -4", "\"seed\" is -4");
  refused("\"seed\": 4", "\"seed\": 4.5", "\"seed\" is 4.5");
  refused("\"seed\": 4", "\"seed\": 99999999999999999999", "\"seed\" is");
  refused("\"train\": 5", "\"train\": true", "\"train\" is true");
  refused("\"train\": 5", "\"train\": 18446744073709551615", "\"train\" is 18446744073709551615");
  refused("\"dev\": 1", "\"dev\": 100000001", "a part of 100000001");
  refused("\"longest\": 3", "\"longest\": 1001", "within 1 to 1000");
  testing::expect_file_error(folder / "none.json", "", [&] { read_string_plan(folder / "none.json"); });
}

TEST(DrawnStrings, what_can_not_be_drawn_is_refused) {
  StringPlan plan = small_plan();
  plan.fonts.push_back("No Such Family");
  expect_contains(message_of([&] { DrawnStrings(plan, Part::dev); }), "'No Such Family' is not installed");
  plan = small_plan();
  plan.longest = 1;  // five strings in all
  expect_contains(message_of([&] { DrawnStrings(plan, Part::test); }), "strings for a part of 80");
  plan = small_plan();
  plan.train = plan.dev = 0;
  expect_contains(message_of([&] { DrawnStrings(plan, Part::train); }), "\"train\" is 0");
  expect_contains(message_of([&] { DrawnStrings(plan, Part::dev); }), "\"dev\" is 0");
  EXPECT_NO_THROW(DrawnStrings(plan, Part::test));
}

TEST(DrawnStrings, strings_that_would_be_too_wide_get_smaller_letters) {
  StringPlan plan = small_plan();
  plan.longest = 40;
  plan.distortion = 1;
  constexpr Index widest = 300;
  const DrawnStrings any(plan, Part::dev), narrow(plan, Part::dev, widest);
  Index wide = 0, kept = 0;
  for (Index i = 0; i < plan.dev; ++i) {
    const DrawnText free = any.draw(i, 0), fitted = narrow.draw(i, 0);
    EXPECT_LE(fitted.picture.size(1), widest) << i;
    EXPECT_EQ(fitted.picture.size(0), plan.height);
    EXPECT_EQ(fitted.characters.size(), free.characters.size());
    free.picture.size(1) > widest ? ++wide : ++kept;
    if (free.picture.size(1) > widest) continue;
    EXPECT_EQ(fitted.picture.shape(), free.picture.shape()) << i;  // as it was
  }
  EXPECT_GT(wide, 5);
  EXPECT_GT(kept, 5);
  expect_contains(message_of([&] { DrawnStrings(plan, Part::dev, 200); }), "at most 200 pixels are too narrow for 40");
}

}  // namespace
}  // namespace regard
