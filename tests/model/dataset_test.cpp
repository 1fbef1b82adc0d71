#include "regard/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "files.h"
#include "refusal.h"
#include "regard/error.h"

namespace regard {
namespace {

using testing::expect_contains;
using testing::expect_file_error;
using testing::Folder;
using testing::message_of;
using Symbols = std::vector<std::string>;

TEST(ReadTsv, reads_sources_by_character_and_targets_by_space) {
  const Folder folder;
  const auto data = read_tsv(folder.write("a.tsv", "né\tN EY\r\n\nxy\tK  S\n"));
  ASSERT_EQ(data.examples.size(), 2u);
  EXPECT_EQ(data.examples[0].source, (Symbols{"n", "é"}));
  EXPECT_EQ(data.examples[0].target, (Symbols{"N", "EY"}));
  EXPECT_EQ(data.examples[1].target, (Symbols{"K", "S"}));
}

TEST(ReadTsv, a_bad_line_is_an_error_with_file_and_number_or_is_counted) {
  const Folder folder;
  for (const std::string bad : {"no tab", "two\ttabs\there", "\tN", "x\t", "x\t  ", "x\xff\tN", "x\tN\xff"}) {
    const auto path = folder.write("bad.tsv", "a\tA\n" + bad + "\nb\tB\n");
    try {
      read_tsv(path);
      FAIL() << bad;
    } catch (const FileError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(path + ", line 2"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
    const auto data = read_tsv(path, {.skip_bad = true});
    EXPECT_EQ(data.examples.size(), 2u);
    EXPECT_EQ(data.skipped, 1);
  }
}

TEST(ReadTsv, a_byte_order_mark_is_no_symbol) {
  const Folder folder;
  const auto path = folder.write("mark.tsv",
                                 "\xEF\xBB\xBF"
                                 "ab\tB A\n");
  EXPECT_EQ(read_tsv(path).examples[0].source, (Symbols{"a", "b"}));
}

TEST(ReadTsv, symbols_spelled_like_special_ones_and_lines_too_long_for_the_model_are_bad_lines) {
  const Folder folder;
  const auto path = folder.write("bad.tsv", "ab\tX Y\nab\t</s> X\nabcdef\tX\nab\tX Y Z V W\nabcde\tX Y Z V\n");
  const Dataset data = read_tsv(path, {.skip_bad = true, .longest = {5, 5}});
  EXPECT_EQ(data.skipped, 3);
  ASSERT_EQ(data.examples.size(), 2u);
  EXPECT_EQ(data.examples[1].text, "abcde");
  try {
    read_tsv(path);
    FAIL() << "a special symbol was read";
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("line 2: the symbol </s>"), std::string::npos) << error.what();
  }
}

TEST(ReadTsv, sides_have_limits_of_their_own) {
  const Folder folder;
  const auto path = folder.write("long.tsv", "ab\tX Y Z V W\nabc\tX\n");
  expect_file_error(path, "line 2: the source needs 3 symbols but the model's longest sequence is 2",
                    [&] { read_tsv(path, {.longest = {.source = 2}}); });
  expect_file_error(path, "line 1: the target with its end needs 6 symbols but the model's longest sequence is 5",
                    [&] { read_tsv(path, {.longest = {.target = 5}}); });
  EXPECT_EQ(read_tsv(path, {.longest = {3, 6}}).examples.size(), 2u);
}

TEST(ReadTsv, a_missing_or_empty_file_is_an_error) {
  const Folder folder;
  EXPECT_THROW(read_tsv(folder / "none.tsv"), FileError);
  EXPECT_THROW(read_tsv(folder.write("empty.tsv", "\n\n")), FileError);
}

TEST(GroupReferences, lines_with_one_source_are_references_of_one_question) {
  const Folder folder;
  const auto data = read_tsv(folder.write("a.tsv", "b\tB\na\tX Y\nb\tC\n"));
  const auto questions = group_references(data);
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].text, "b");
  EXPECT_EQ(questions[0].references, (std::vector<Symbols>{{"B"}, {"C"}}));
  EXPECT_EQ(questions[1].references, (std::vector<Symbols>{{"X", "Y"}}));
}

// The decoder reads begin, then the target; it is to produce the target, then
// end. Pads are right of everything and are no targets.
TEST(MakeBatch, shifts_the_target_by_one_and_pads_on_the_right) {
  const Encoded a{{7, 8, 9}, {5}}, b{{7}, {5, 6}};
  const auto batch = make_batch({&a, &b});
  const auto list = [](const Tensor<std::int64_t>& x) {
    return std::vector<std::int64_t>(x.values().begin(), x.values().end());
  };
  EXPECT_EQ(list(batch.source), (std::vector<std::int64_t>{7, 8, 9, 7, 0, 0}));
  EXPECT_EQ(list(batch.input), (std::vector<std::int64_t>{1, 5, 0, 1, 5, 6}));
  EXPECT_EQ(list(batch.target), (std::vector<std::int64_t>{5, 2, 0, 5, 6, 2}));
}

TEST(PaddedPatches, of_several_sizes_are_refused_with_both_shapes) {
  const Tensor<float> small({2, 3}, 1.0f), large({1, 5}, 1.0f), cube({1, 3, 1}, 1.0f);
  const std::string message = message_of([&] { padded_patches({&small, &large}); });
  expect_contains(message, "[1,5]");
  expect_contains(message, "[2,3]");
  expect_contains(message_of([&] { padded_patches({&small, &cube}); }), "[1,3,1]");
  expect_contains(message_of([&] { padded_patches({&cube, &small}); }), "[1,3,1]");
  const auto padded = padded_patches({&small, &small});
  EXPECT_EQ(padded.patches.shape(), (Shape{2, 2, 3}));
}

TEST(MakeBatch, takes_no_pictures_beside_symbols) {
  const Encoded picture{{}, {4}, Tensor<float>({2, 3}, 1.0f)}, text{{4}, {4}};
  expect_contains(message_of([&] { make_batch({&picture, &text}); }), "1 of 2 examples have patches");
}

TEST(ReadTsv, what_the_check_refuses_is_a_bad_line_of_its_number) {
  const Folder folder;
  const std::string path = folder.write("a.tsv", "ok\tA\n\nbad\tB\nfine\tC\n");
  TsvOptions options;
  options.check = [](const Example& example) {
    if (example.text == "bad") throw FileError("bad.png: is gone");
  };
  expect_file_error(path, "a.tsv, line 3: bad.png: is gone", [&] { read_tsv(path, options); });
  options.skip_bad = true;
  const Dataset data = read_tsv(path, options);
  EXPECT_EQ(data.skipped, 1);
  EXPECT_EQ(data.examples.size(), 2u);
}

TEST(PlanBatches, holds_every_example_once_by_about_equal_length) {
  std::vector<Encoded> data;
  for (int i = 0; i < 1000; ++i)
    data.push_back({std::vector<std::int64_t>(static_cast<std::size_t>(1 + i * 7 % 13), 4), {4}});
  const auto plan = plan_batches(data, 64, 1, 0);
  std::set<Index> seen;
  for (const auto& batch : plan) {
    std::size_t shortest = 99, longest = 0;
    for (Index i : batch) {
      EXPECT_TRUE(seen.insert(i).second);
      shortest = std::min(shortest, data[static_cast<std::size_t>(i)].source.size());
      longest = std::max(longest, data[static_cast<std::size_t>(i)].source.size());
    }
    EXPECT_LE(longest - shortest, 1u);
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(plan_batches(data, 64, 1, 0), plan);
  EXPECT_NE(plan_batches(data, 64, 1, 1), plan);
  EXPECT_NE(plan_batches(data, 64, 2, 0), plan);
}

}  // namespace
}  // namespace regard
