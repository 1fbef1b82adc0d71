// Sparse patterns: their definitions in plain loops, blocks against pairs, and
// attention under them against the reference.
#include "regard/sparse_masks.h"
#include "regard/relative_bias.h"

#include <limits>
#include <set>

#include "attention/cases.h"
#include "regard/plan.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;

using Sees = std::function<bool(Index query, Index key)>;

// A mask and its definition as a function of two positions.
struct Pattern {
  std::string name;
  Mask mask;
  Sees sees;
};

bool is_drawn(const BigBird& pattern, Index head, Index query, Index key) {
  const auto drawn = random_blocks_of(pattern, head, query / pattern.block);
  return std::count(drawn.begin(), drawn.end(), key / pattern.block) > 0;
}

const BigBird bird{
    .length = 150, .block = 8, .window_each_side = 1, .global_first = 1, .global_last = 2, .random = 3, .seed = 7};

std::vector<Pattern> patterns() {
  const auto mod = [](Index a, Index b) { return ((a % b) + b) % b; };
  const auto same_patch = [](Index q, Index k) {
    return std::abs(q / 13 - k / 13) <= 2 && std::abs(q % 13 - k % 13) <= 3;
  };
  return {
      {"dilated_window(3, 2, 4)", dilated_window(3, 2, 4),
       [=](Index q, Index k) { return mod(k - q, 4) == 0 && k - q >= -12 && k - q <= 8; }},
      {"dilated_window(-1, 0, 5)", dilated_window(-1, 0, 5),
       [=](Index q, Index k) { return k <= q && mod(q - k, 5) == 0; }},
      {"dilated_window(6, -1, 1)", dilated_window(6, -1, 1), [](Index q, Index k) { return k >= q - 6; }},
      {"strided(9)", strided(9), [=](Index q, Index k) { return k <= q && (q - k <= 9 || mod(q - k, 9) == 0); }},
      {"fixed_blocks(12, 3)", fixed_blocks(12, 3),
       [](Index q, Index k) { return k <= q && (q / 12 == k / 12 || k % 12 >= 9); }},
      {"block_window(10, 2)", block_window(10, 2), [](Index q, Index k) { return std::abs(q / 10 - k / 10) <= 2; }},
      {"global_tokens", global_tokens({0, 77, 40, 41, 42}),
       [](Index q, Index k) {
         const std::set<Index> global{0, 77, 40, 41, 42};
         return global.contains(q) || global.contains(k);
       }},
      {"longformer", longformer(5, {3, 100}),
       [](Index q, Index k) { return std::abs(q - k) <= 5 || q == 3 || k == 3 || q == 100 || k == 100; }},
      {"prefix_lm(37)", prefix_lm(37), [](Index q, Index k) { return k <= q || k < 37; }},
      {"random_blocks", random_blocks(bird), [](Index q, Index k) { return is_drawn(bird, 1, q, k); }},
      {"big_bird", big_bird(bird),
       [](Index q, Index k) {
         const auto global = [](Index at) { return at < 8 || at >= 17 * 8; };  // blocks 0, 17, 18 of 19
         return std::abs(q / 8 - k / 8) <= 1 || global(q) || global(k) || is_drawn(bird, 1, q, k);
       }},
      {"neighbourhood", neighbourhood({10, 13, 0}, 2, 3),
       [=](Index q, Index k) { return q < 130 && k < 130 && same_patch(q, k); }},
      {"neighbourhood after one token", neighbourhood({11, 13, 1}, 2, 3) | global_tokens({0}),
       [=](Index q, Index k) { return q == 0 || k == 0 || (q <= 143 && k <= 143 && same_patch(q - 1, k - 1)); }},
  };
}

constexpr Index length = 150;

TEST(sparse_masks, show_the_pairs_of_their_definitions) {
  for (const Pattern& pattern : patterns()) {
    std::string wanted;
    for (Index q = 0; q < length; ++q) {
      for (Index k = 0; k < length; ++k) wanted += pattern.sees(q, k) ? '1' : '0';
      wanted += '\n';
    }
    EXPECT_EQ(pattern.mask.picture(length, length, 0, 1), wanted) << pattern.name;
  }
}

// The answer that counting pairs gives.
Coverage counted(const Mask& mask, const MaskBlock& block) {
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(block.rows * block.keys));
  mask.fill(block, visible.data(), block.keys);
  const Index seen = std::count(visible.begin(), visible.end(), 1);
  return seen == 0 ? Coverage::none : seen == block.rows * block.keys ? Coverage::all : Coverage::some;
}

MaskBlock random_block(Random& random) {
  const auto below = [&](Index limit) { return static_cast<Index>(random.below(static_cast<std::uint64_t>(limit))); };
  MaskBlock block{0, 1, below(length), 0, below(length), 0, 0};
  block.rows = 1 + below(std::min<Index>(40, length - block.row));
  block.keys = 1 + below(std::min<Index>(40, length - block.key));
  return block;
}

// A single rule knows its blocks exactly. Unions and intersections may say
// `some` of a block whose parts make it whole or empty together, never more.
TEST(sparse_masks, know_their_blocks) {
  const std::set<std::string> composed{"strided(9)", "fixed_blocks(12, 3)",          "longformer", "prefix_lm(37)",
                                       "big_bird",   "neighbourhood after one token"};
  Random random(31);
  for (const Pattern& pattern : patterns()) {
    Index exact = 0, blocks = 4000;
    for (Index n = 0; n < blocks; ++n) {
      const MaskBlock block = random_block(random);
      const Coverage got = pattern.mask.coverage(block), right = counted(pattern.mask, block);
      exact += got == right;
      if (got != right) {
        EXPECT_EQ(got, Coverage::some) << pattern.name;
        EXPECT_TRUE(composed.contains(pattern.name)) << pattern.name << ": rows " << block.row << "+" << block.rows
                                                     << " keys " << block.key << "+" << block.keys;
      }
    }
    EXPECT_GE(exact, blocks * 95 / 100) << pattern.name;
  }
}

// Queries before position 0 (q_start below 0) and behind the keys.
TEST(sparse_masks, hold_for_any_position_of_the_queries) {
  Random random(32);
  for (const Pattern& pattern : patterns())
    for (Index n = 0; n < 1000; ++n) {
      MaskBlock block = random_block(random);
      block.q_start = static_cast<Index>(random.below(200)) - 100;
      const Coverage got = pattern.mask.coverage(block), right = counted(pattern.mask, block);
      EXPECT_TRUE(got == right || got == Coverage::some) << pattern.name;
    }
  EXPECT_EQ(dilated_window(1, 1, 3).picture(6, 4), "0100\n0010\n1001\n0100\n0010\n1001\n");
}

TEST(sparse_masks, pictures_are_those_of_the_papers) {
  EXPECT_EQ(strided(3).picture(8, 8),
            "10000000\n11000000\n11100000\n11110000\n01111000\n00111100\n10011110\n01001111\n");
  EXPECT_EQ(fixed_blocks(3, 1).picture(7, 7), "1000000\n1100000\n1110000\n0011000\n0011100\n0011110\n0010011\n");
  EXPECT_EQ(longformer(1, {0}).picture(5, 5), "11111\n11100\n11110\n10111\n10011\n");
  EXPECT_EQ(prefix_lm(2).picture(4, 4), "1100\n1100\n1110\n1111\n");
  EXPECT_EQ(neighbourhood({2, 3, 0}, 1, 1).picture(6, 6), "110110\n111111\n011011\n110110\n111111\n011011\n");
}

TEST(sparse_masks, combine_with_other_masks) {
  Tensor<std::int64_t> ids({1, 6}, {1, 1, 1, 2, 2, 2});
  EXPECT_EQ((longformer(1, {0}) & causal() & documents(ids)).picture(6, 6),
            "100000\n110000\n111000\n000100\n000110\n000011\n");
  EXPECT_EQ((!dilated_window(-1, -1, 2)).picture(3, 3), "010\n101\n010\n");
}

// A rule as a user may write it: never sure about a block.
class Diagonal final : public MaskRule {
 public:
  Coverage coverage(const MaskBlock&) const override { return Coverage::some; }
  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r)
      for (Index j = 0; j < block.keys; ++j)
        visible[r * stride + j] &= (block.q_start + block.row + r - block.key - j) % 3 == 0;
  }
};

// Unions within intersections within negations, tile by tile: each pair is what
// the same formula says of its parts, and a tile's neighbours stay untouched.
TEST(sparse_masks, rules_nest_to_any_depth_in_any_tile) {
  const auto near = [](Index q, Index k) { return std::abs(q - k) <= 5; };
  const auto global = [](Index q, Index k) { return q == 20 || k == 20 || q == 90 || k == 90; };
  const auto same = [](Index q, Index k) { return q / 10 == k / 10; };
  const auto third = [](Index q, Index k) { return (q - k) % 3 == 0; };
  const Mask a = window(5, 5), b = global_tokens({20, 90}), c = block_window(10, 0),
             d = Mask(std::make_shared<Diagonal>());
  const std::vector<Pattern> nested{
      {"(a | b) & (c | d)", (a | b) & (c | d),
       [=](Index q, Index k) { return (near(q, k) || global(q, k)) && (same(q, k) || third(q, k)); }},
      {"!(a | !(b | !(c | d)))", !(a | !(b | !(c | d))),
       [=](Index q, Index k) { return !near(q, k) && (global(q, k) || !(same(q, k) || third(q, k))); }},
      {"(a & !d) | (c & !(b | d))", (a & !d) | (c & !(b | d)),
       [=](Index q, Index k) {
         return (near(q, k) && !third(q, k)) || (same(q, k) && !(global(q, k) || third(q, k)));
       }},
      {"a | b | c | d", a | b | c | d,
       [=](Index q, Index k) { return near(q, k) || global(q, k) || same(q, k) || third(q, k); }}};
  Random random(33);
  for (const Pattern& pattern : nested)
    for (Index n = 0; n < 2000; ++n) {
      const MaskBlock block = random_block(random);
      std::vector<std::uint8_t> tile(40 * 41, 7);
      pattern.mask.fill(block, tile.data(), 41);
      bool right = true;
      for (Index r = 0; r < 40; ++r)
        for (Index j = 0; j < 41; ++j) {
          const bool inside = r < block.rows && j < block.keys;
          const int wanted = inside ? pattern.sees(block.row + r, block.key + j) : 7;
          right &= tile[static_cast<std::size_t>(r * 41 + j)] == wanted;
        }
      ASSERT_TRUE(right) << pattern.name << ": rows " << block.row << "+" << block.rows << " keys " << block.key << "+"
                         << block.keys;
    }
}

// Many rules and heads asked in turn, as threads with several calls do.
TEST(sparse_masks, random_blocks_of_several_rules_do_not_mix) {
  const auto pattern_of = [](std::uint64_t seed) {
    return BigBird{.length = 320, .block = 8, .random = 3, .seed = seed};
  };
  Random random(34);
  for (Index n = 0; n < 3000; ++n) {
    const BigBird pattern = pattern_of(random.below(3));
    const Mask mask = random_blocks(pattern);  // may lie where an earlier one lay
    const Index head = static_cast<Index>(random.below(3)), own = static_cast<Index>(random.below(40));
    const auto drawn = random_blocks_of(pattern, head, own);
    for (Index block = 0; block < 40; ++block) {
      const bool seen = std::count(drawn.begin(), drawn.end(), block) > 0;
      ASSERT_EQ(mask.coverage({0, head, own * 8, 8, block * 8, 8, 0}), seen ? Coverage::all : Coverage::none);
    }
  }
}

TEST(sparse_masks, batch_entries_have_lists_and_lengths_of_their_own) {
  const Mask global = global_tokens_of_each({{0}, {2}}), prefix = prefix_lm({1, 3});
  EXPECT_EQ(global.picture(3, 3, 0), "111\n100\n100\n");
  EXPECT_EQ(global.picture(3, 3, 1), "001\n001\n111\n");
  EXPECT_EQ(prefix.picture(3, 3, 1), "111\n111\n111\n");
  EXPECT_NE(message_of([&] { global.check({3, 1, 3, 3}); }).find("2 entries but batch is 3"), std::string::npos);
  EXPECT_NE(message_of([&] { prefix.check({3, 1, 3, 3}); }).find("2 entries but batch is 3"), std::string::npos);
}

TEST(sparse_masks, random_blocks_are_distinct_new_and_the_same_every_time) {
  const BigBird pattern{.length = 6400, .block = 64, .random = 5, .seed = 3};
  std::set<std::vector<Index>> draws;
  for (Index head = 0; head < 3; ++head)
    for (Index own = 0; own < 100; ++own) {
      const auto drawn = random_blocks_of(pattern, head, own);
      EXPECT_EQ(drawn, random_blocks_of(pattern, head, own));
      draws.insert(drawn);
      EXPECT_EQ(std::set<Index>(drawn.begin(), drawn.end()).size(), 5u);
      for (Index block : drawn) {
        EXPECT_GT(std::abs(block - own), 1);
        EXPECT_GT(block, 0);
        EXPECT_LT(block, 99);
      }
    }
  EXPECT_GT(draws.size(), 290u);
  auto other = pattern;
  other.seed = 4;
  EXPECT_NE(random_blocks_of(pattern, 0, 50), random_blocks_of(other, 0, 50));
}

// Every candidate is drawn about equally often: 20 blocks, block 0's candidates are 2 ... 18.
TEST(sparse_masks, random_blocks_favour_no_block) {
  std::vector<Index> hits(20);
  for (std::uint64_t seed = 0; seed < 4000; ++seed)
    for (Index block : random_blocks_of({.length = 160, .block = 8, .random = 4, .seed = seed}, 0, 0))
      ++hits[static_cast<std::size_t>(block)];
  for (Index block = 2; block <= 18; ++block)
    EXPECT_NEAR(hits[static_cast<std::size_t>(block)], 4000.0 * 4 / 17, 5 * std::sqrt(4000.0 * 4 / 17)) << block;
}

TEST(sparse_masks, chosen_blocks_are_seen_per_head) {
  const Tensor<std::int64_t> chosen({2, 2, 2}, {1, 1, 0, 2, 2, 0, 1, 1});
  const Mask mask = chosen_blocks(chosen, 2);
  EXPECT_EQ(mask.picture(6, 6, 0, 0), "001100\n001100\n110011\n110011\n000000\n000000\n");
  EXPECT_EQ(mask.picture(6, 6, 0, 1), "110011\n110011\n001100\n001100\n000000\n000000\n");
  EXPECT_NE(message_of([&] { mask.check({1, 3, 6, 6}); }).find("2 heads but q has 3"), std::string::npos);
}

TEST(sparse_masks, fewer_blocks_than_asked_for_are_all_seen) {
  EXPECT_EQ(random_blocks_of({.length = 48, .block = 8, .random = 9}, 0, 0), (std::vector<Index>{2, 3, 4}));
  EXPECT_EQ(counted(big_bird({.length = 20, .block = 8}), {0, 0, 0, 20, 0, 20, 0}), Coverage::all);
}

// Long inputs, short inputs, the same long input again: a call is a function of its arguments.
TEST(sparse_masks, attention_under_a_pattern_has_no_memory) {
  const auto run = [](Index n) {
    const auto in = testing::random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = n, .kv_len = n});
    return attend(in.q, in.k, in.v, {.mask = big_bird({.length = n, .block = 16, .random = 1})}).out;
  };
  const auto first = run(200);
  run(20);
  EXPECT_TRUE(testing::same_bits(run(200), first));
}

TEST(sparse_masks, attention_under_every_pattern_matches_the_reference) {
  for (const Pattern& pattern : patterns()) {
    testing::Composition c{pattern.name,
                           normal({1, 2, length, 16}, 1),
                           normal({1, 2, length, 16}, 2),
                           normal({1, 2, length, 16}, 3),
                           {},
                           {},
                           {},
                           {.mask = pattern.mask}};
    testing::expect_matches_reference(c);
  }
}

// Blocks of 64 with summaries of 8: in most tiles panels are hidden between seen
// ones, and every step between the products runs over what was never multiplied.
TEST(sparse_masks, panels_hidden_inside_tiles_match_the_reference_with_all_that_changes_scores) {
  const Tensor<float> table = normal({32, 2}, 8);
  testing::on_each_instruction_set([&] {
    testing::expect_matches_reference(
        {"summaries",
         normal({1, 2, 90, 24}, 1),
         normal({1, 1, 420, 24}, 2),
         normal({1, 1, 420, 16}, 3),
         normal({1, 2, 90, 420}, 4),
         {0.5f, -1.0f},
         {},
         {.mask = fixed_blocks(64, 8), .score = softcap(4) + relative_bias(table.view<2>()), .dropout = {0.2, 3}}});
  });
}

// 65,536 x 65,536: asking for blocks, not for pairs. The window of 256 and 64
// global tokens touch about one tile in a hundred.
TEST(sparse_masks, long_sequences_skip_what_they_do_not_see) {
  const Index n = 65536;
  const Tensor<float> x({1, 1, n, 1});
  std::vector<Index> global;
  for (Index i = 0; i < 64; ++i) global.push_back(i * 7 % 64);
  const AttendPlan plan = plan_attend(x, x, x, {.mask = longformer(128, global)});
  EXPECT_GT(plan.skipped_tiles, plan.tiles * 98 / 100);
  const AttendPlan sparse = plan_attend(x, x, x, {.mask = big_bird({.length = n})});
  EXPECT_GT(sparse.skipped_tiles, sparse.tiles * 95 / 100);
}

TEST(sparse_masks, big_bird_refuses_keys_beyond_its_length) {
  for (const Mask& mask : {big_bird(bird), random_blocks(bird)}) {
    EXPECT_NE(message_of([&] {
                mask.check({1, 2, 1, 151});
              }).find("length is 150 but kv_len is 151"),
              std::string::npos);
    EXPECT_EQ(message_of([&] { mask.check({1, 2, 1, 150}); }), "nothing was refused");
  }
}

TEST(sparse_masks, what_makes_no_sense_is_refused) {
  EXPECT_THROW(dilated_window(1, 1, 0), ArgumentError);
  EXPECT_THROW(dilated_window(-2, 1, 2), ArgumentError);
  EXPECT_THROW(strided(0), ArgumentError);
  EXPECT_THROW(fixed_blocks(4, 5), ArgumentError);
  EXPECT_THROW(fixed_blocks(4, 0), ArgumentError);
  EXPECT_THROW(block_window(0, 1), ArgumentError);
  EXPECT_THROW(big_bird({.length = 8, .block = 0}), ArgumentError);
  EXPECT_THROW(big_bird({.length = 8, .random = -1}), ArgumentError);
  EXPECT_THROW(neighbourhood({0, 3, 0}, 1, 1), ArgumentError);
  EXPECT_THROW(big_bird({.length = 8, .block = std::numeric_limits<Index>::max() - 3}), ArgumentError);
  EXPECT_THROW(random_blocks_of({.length = 8, .block = 0}, 0, 0), ArgumentError);
  const Tensor<std::int64_t> no_head({0, 2, 2});
  EXPECT_NE(message_of([&] { chosen_blocks(no_head, 2); }).find("[0,2,2]"), std::string::npos);
  EXPECT_THROW(neighbourhood({3, 3, 0}, -1, 1), ArgumentError);
}

}  // namespace
}  // namespace regard
