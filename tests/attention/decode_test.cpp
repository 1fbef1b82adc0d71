// Few queries against many keys: the path that reads keys once for a group of
// heads, over several splits.
#include "attention/decode.h"
#include "attention/cases.h"
#include "regard/plan.h"
#include "regard/sparse_masks.h"

namespace regard {
namespace {

using namespace testing;

// Three splits, the last one odd; four query heads on each of two key heads.
Composition decoding(std::string name, Index rows = 1) {
  Composition c;
  c.name = std::move(name);
  c.q = normal({2, 8, rows, 32}, 1);
  c.k = normal({2, 2, 2107, 32}, 2);
  c.v = normal({2, 2, 2107, 16}, 3);
  return c;
}

void expect_decoding(const Composition& c) {
  EXPECT_EQ(plan_attend(c.q, c.k, c.v, c.float_options()).path.substr(0, 6), "decode") << c.name;
  expect_matches_reference(c);
}

TEST(decode, plain_causal_and_two_rows_match_the_reference) {
  on_each_instruction_set([] {
    expect_decoding(decoding("one row"));
    Composition two = decoding("two causal rows", 2);
    two.options.mask = causal();
    expect_decoding(two);
  });
}

TEST(decode, every_composition_matches_the_reference) {
  on_each_instruction_set([] {
    Composition c = decoding("window, soft cap, ALiBi, bias, sink, lengths");
    c.options.mask = window(1500, 0);
    const std::vector<float> slopes{0.5f, 0.25f, 0.1f, 0.05f, 0.02f, 0.01f, 0.005f, 0.0f};
    c.options.score = softcap(20.0f) + alibi(slopes);
    c.options.q_start = std::vector<Index>{1999, 12};
    c.bias = normal({1, 8, 1, 2107}, 4);
    c.sink = {0.5f, -infinity, 3.0f, 0.0f, 1.0f, 2.0f, -1.0f, 9.0f};
    c.kv_lengths = {2000, 13};
    expect_decoding(c);
    Composition dropped = decoding("dropout");
    dropped.options.dropout = {0.3, 11};
    expect_decoding(dropped);
  });
}

// Four heads share their keys, and each sees other blocks of them.
TEST(decode, a_block_that_one_head_of_a_group_sees_is_hidden_from_the_others) {
  Composition c = decoding("blocks of its own for each head");
  const Tensor<std::int64_t> chosen({8, 1, 2}, {0, 1, 2, 2, 3, 0, 1, 1, 4, 0, 2, 1, 3, 3, 0, 4});
  c.options.mask = chosen_blocks(chosen.view<3>(), detail::decode_block);
  c.options.q_start = Index{0};
  on_each_instruction_set([&] { expect_decoding(c); });
}

TEST(decode, hidden_values_that_are_not_finite_do_not_matter) {
  on_each_instruction_set([] {
    const Composition clean = decoding("clean");
    Composition spoilt = decoding("spoilt");
    for (Index d = 0; d < 32; ++d) spoilt.k[5 * 32 + d] = not_a_number;
    for (Index d = 0; d < 16; ++d) spoilt.v[5 * 16 + d] = infinity;
    Tensor<std::uint8_t> allowed({1, 2107}, 1);
    allowed[5] = 0;
    const AttendOptions options{.mask = boolean(std::as_const(allowed).view<2>()), .observe = {.lse = true}};
    const auto wanted = attend(clean.q, clean.k, clean.v, options), got = attend(spoilt.q, spoilt.k, spoilt.v, options);
    EXPECT_TRUE(same_bits(got.lse, wanted.lse));
    EXPECT_TRUE(all_finite(got.out));
    EXPECT_LE(errors(got.out, widen(wanted.out)).largest_error, 1e-6);
  });
}

// The only key that the row sees, and it lies in the second split.
// Poison that nobody sees changes no bit, wherever it lies: also in a last block of few
// keys, and in the scales of int8.
TEST(decode, hidden_poison_changes_no_bit) {
  on_each_instruction_set([] {
    for (Index length : {2, 5, 37, 300, 513, 1100})
      for (Index heads : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(std::to_string(length) + " keys, " + std::to_string(heads) + " heads");
        const auto q = normal({1, heads, 1, 16}, 1), k = normal({1, 1, length, 16}, 2);
        Tensor<std::uint8_t> allowed({1, length}, std::uint8_t{1});
        Tensor<float> clean = normal({1, 1, length, 16}, 3), poisoned = clean;
        for (Index j = 1; j < length; j += j % 3 + 2) {
          allowed[j] = 0;
          std::fill_n(clean.data() + j * 16, 16, 0.0f);
          std::fill_n(poisoned.data() + j * 16, 16, j % 2 ? not_a_number : infinity);
        }
        const AttendOptions options{.mask = boolean(std::as_const(allowed).view<2>())};
        EXPECT_TRUE(same_bits(attend(q, k, poisoned, options).out, attend(q, k, clean, options).out));
        const Quantized v = quantize(clean);
        Quantized spoilt = v;
        for (Index j = 1; j < length; ++j)
          if (!allowed[j]) spoilt.scales[j] = not_a_number;
        EXPECT_TRUE(same_bits(attend(q, k, spoilt, options).out, attend(q, k, v, options).out));
      }
  });
}

// Keys that a row does not see may come after those it sees or before: no bit depends
// on them.
TEST(decode, bits_do_not_depend_on_keys_that_are_hidden) {
  on_each_instruction_set([] {
    const auto q = normal({1, 4, 2, 32}, 1), k = normal({1, 2, 1301, 32}, 2), v = normal({1, 2, 1301, 16}, 3);
    const auto row = [&](Index i) {
      Tensor<float> one({1, 4, 1, 32});
      for (Index h = 0; h < 4; ++h) std::copy_n(q.data() + (h * 2 + i) * 32, 32, one.data() + h * 32);
      return one;
    };
    for (Index seen : {1, 63, 64, 65, 127, 250, 257, 511, 513, 1000, 1300}) {
      SCOPED_TRACE(instruction_set() + ", " + std::to_string(seen) + " keys");
      Tensor<std::uint8_t> allowed({1, 1301}, std::uint8_t{0});
      std::fill_n(allowed.data(), seen, std::uint8_t{1});
      const std::vector<Index> length{seen}, longer{seen + 1};
      const auto by_length = attend(row(0), k, v, {.kv_lengths = length}).out;
      EXPECT_TRUE(same_bits(attend(row(0), k, v, {.mask = boolean(std::as_const(allowed).view<2>())}).out, by_length));
      const auto both = attend(q, k, v, {.mask = causal(), .q_start = seen - 1, .kv_lengths = longer}).out;
      for (Index h = 0; h < 4; ++h)
        EXPECT_TRUE(std::equal(by_length.data() + h * 16, by_length.data() + (h + 1) * 16, both.data() + h * 32)) << h;
    }
  });
}

// A window lets pieces of a block be left out; a tensor that says the same does not.
TEST(decode, a_window_has_the_bits_of_the_same_pairs_one_by_one) {
  on_each_instruction_set([] {
    const auto q = normal({1, 4, 1, 32}, 1), k = normal({1, 2, 2107, 32}, 2), v = normal({1, 2, 2107, 16}, 3);
    for (const auto& [at, width] :
         {std::pair<Index, Index>{2106, 100}, {1030, 700}, {1536, 1}, {700, 130}, {511, 512}}) {
      Tensor<std::uint8_t> allowed({1, 2107}, std::uint8_t{0});
      for (Index j = std::max<Index>(0, at - width + 1); j <= at; ++j) allowed[j] = 1;
      EXPECT_TRUE(same_bits(attend(q, k, v, {.mask = sliding_window(width), .q_start = at}).out,
                            attend(q, k, v, {.mask = boolean(std::as_const(allowed).view<2>())}).out))
          << at << ", " << width;
    }
  });
}

TEST(decode, a_visible_nan_is_not_lost_between_splits) {
  on_each_instruction_set([] {
    Composition c = decoding("nan");
    for (Index d = 0; d < 32; ++d) c.k[1500 * 32 + d] = not_a_number;
    Tensor<std::uint8_t> allowed({1, 2107});
    allowed[1500] = 1;
    const auto got = attend(
        c.q, c.k, c.v, {.mask = boolean(std::as_const(allowed).view<2>()), .observe = {.lse = true, .row_max = true}});
    EXPECT_TRUE(std::isnan(got.out[0]) && std::isnan(got.lse[0]) && std::isnan(got.row_max[0]));
  });
}

TEST(decode, bits_do_not_depend_on_threads_or_neighbours) {
  const Composition c = decoding("threads");
  set_threads(1);
  const auto one = attend(c.q, c.k, c.v, {.observe = {.lse = true, .entropy = true}});
  for (const int count : {2, 3, 7}) {
    set_threads(count);
    const auto many = attend(c.q, c.k, c.v, {.observe = {.lse = true}});
    EXPECT_TRUE(same_bits(one.out, many.out) && same_bits(one.lse, many.lse)) << count;
  }
  set_threads(0);
  const auto alone = attend(c.q.view<4>().slice(0, 1, 2), c.k.view<4>().slice(0, 1, 2), c.v.view<4>().slice(0, 1, 2));
  EXPECT_EQ(row_of(alone.out, 0, 3), row_of(one.out, 0, 3, 1));
}

// The path must not follow the longest neighbour: an entry of 40 keys has the
// same bits alone and padded to 200.
TEST(decode, bits_do_not_depend_on_how_far_keys_are_padded) {
  on_each_instruction_set([] {
    for (const Index rows : {1, 2, 4, 5, 8}) {
      const Inputs wide = random_inputs({1, 1, 1, rows, 200, 64, 64});
      const View<const float, 4> k = wide.k.view<4>().slice(2, 0, 40), v = wide.v.view<4>().slice(2, 0, 40);
      const std::vector<Index> lengths{40};
      const AttendOptions padded{.q_start = Index{40} - rows, .kv_lengths = lengths, .observe = {.lse = true}};
      const AttendOptions alone{.observe = {.lse = true}};
      const auto a = attend(wide.q, k, v, alone), b = attend(wide.q, wide.k, wide.v, padded);
      EXPECT_TRUE(same_bits(a.out, b.out)) << instruction_set() << " " << rows << " queries";
      EXPECT_TRUE(same_bits(a.lse, b.lse)) << instruction_set() << " " << rows << " queries";
    }
  });
}

}  // namespace
}  // namespace regard
