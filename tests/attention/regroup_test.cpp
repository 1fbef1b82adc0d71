// Patterns with regular gaps, computed residue by residue: the same pairs, the
// same rules, every composition against the reference.
#include "attention/regroup.h"

#include "attention/cases.h"
#include "regard/plan.h"
#include "regard/sparse_masks.h"

namespace regard {
namespace {

using namespace testing;

constexpr Index length = 150;

Tensor<std::int64_t> ids_of(Index batch, Index each, Index zero_from) {
  Tensor<std::int64_t> ids({batch, length});
  for (Index i = 0; i < ids.count(); ++i) ids[i] = i % length >= zero_from ? 0 : 1 + i % length / each;
  return ids;
}

struct Named {
  std::string name;
  Mask mask;
};

std::vector<Named> regular_masks() {
  const auto documents_of_40 = documents(ids_of(1, 40, length));
  return {{"dilated", dilated_window(5, 3, 3)},
          {"dilated, open", dilated_window(-1, -1, 7)},
          {"dilated and causal", causal() & dilated_window(4, 4, 5)},
          {"dilated and padding", dilated_window(9, 2, 4) & padding(ids_of(1, 1, 131), 0)},
          {"dilated within documents", documents_of_40 & dilated_window(9, 9, 3)},
          {"strided", strided(9)},
          {"strided within documents, padded", strided(6) & documents_of_40 & padding(ids_of(1, 1, 120), 0)},
          {"window or dilated", window(4, 2) | dilated_window(6, 6, 5)},
          {"global or dilated", dilated_window(3, 3, 6) | global_tokens({0, 77}) | window(1, 0)},
          {"two gaps", dilated_window(3, 0, 8) | dilated_window(2, 2, 3)},
          {"two gaps at once", dilated_window(-1, -1, 2) & dilated_window(9, 0, 3)}};
}

Composition composition_of(const Named& named) {
  return {
      named.name, normal({1, 2, length, 16}, 1), normal({1, 2, length, 16}, 2), normal({1, 2, length, 24}, 3), {}, {},
      {},         {.mask = named.mask}};
}

std::string path_of(const Composition& c) { return plan_attend(c.q, c.k, c.v, c.float_options()).path; }

void expect_regrouped(const Composition& c) {
  EXPECT_EQ(path_of(c).substr(0, 10), "regrouped:") << c.name << ": " << path_of(c);
  expect_matches_reference(c);
}

TEST(regroup, every_mask_with_gaps_matches_the_reference) {
  on_each_instruction_set([] {
    for (const Named& named : regular_masks()) expect_regrouped(composition_of(named));
  });
}

// Residues and the pairs apart from them, written back to where they belong.
TEST(regroup, shows_every_pair_once) {
  const auto q = normal({2, 1, length, 4}, 1);
  for (const Named& named : regular_masks()) {
    const AttendOptions options{.mask = named.mask, .q_start = std::vector<Index>{-11, 40}};
    const detail::Call call = detail::make_call("test", q, q, q, options);
    const auto how = detail::choose_regrouping(call).how;
    ASSERT_TRUE(how) << named.name;
    for (Index b = 0; b < 2; ++b) {
      std::vector<std::uint8_t> wanted(length * length), apart(length * length);
      const MaskBlock whole{b, 0, 0, length, 0, length, call.q_start(b)};
      named.mask.fill(whole, wanted.data(), length);
      std::vector<int> seen(length * length);
      if (how->apart) {
        Mask(how->apart).fill(whole, apart.data(), length);
        for (std::size_t at = 0; at < seen.size(); ++at) seen[at] = apart[at];
      }
      for (Index residue = 0; residue < how->gap; ++residue) {
        const auto where = detail::residue_of(call, *how, b * how->gap + residue);
        detail::ResidueCall part(call, *how, where);
        std::vector<std::uint8_t> pairs(static_cast<std::size_t>(where.rows * where.keys));
        part.call().options.mask.fill({0, 0, 0, where.rows, 0, where.keys, part.call().q_start(0)}, pairs.data(),
                                      where.keys);
        for (Index i = 0; i < where.rows; ++i)
          for (Index j = 0; j < where.keys; ++j)
            seen[static_cast<std::size_t>((where.first_row + i * how->gap) * length + where.first_key +
                                          j * how->gap)] += pairs[static_cast<std::size_t>(i * where.keys + j)];
      }
      for (std::size_t at = 0; at < seen.size(); ++at)
        ASSERT_EQ(seen[at], wanted[at]) << named.name << ", entry " << b << ", query " << at / length << ", key "
                                        << at % length;
    }
  }
}

// Blocks of a residue's mask never say more than its pairs.
TEST(regroup, residues_know_their_blocks) {
  const auto q = normal({1, 1, length, 4}, 1);
  for (const Named& named : regular_masks()) {
    const AttendOptions options{.mask = named.mask};
    const detail::Call call = detail::make_call("test", q, q, q, options);
    const auto how = *detail::choose_regrouping(call).how;
    detail::ResidueCall part(call, how, detail::residue_of(call, how, 1));
    const detail::Sizes& sizes = part.call().sizes;
    for (Index row = 0; row < sizes.q_len; row += 3)
      for (Index key = 0; key < sizes.kv_len; key += 4) {
        const MaskBlock block{0,
                              0,
                              row,
                              std::min<Index>(3, sizes.q_len - row),
                              key,
                              std::min<Index>(4, sizes.kv_len - key),
                              part.call().q_start(0)};
        std::vector<std::uint8_t> visible(12);
        part.call().options.mask.fill(block, visible.data(), 4);
        Index seen = 0;
        for (Index r = 0; r < block.rows; ++r)
          for (Index j = 0; j < block.keys; ++j) seen += visible[static_cast<std::size_t>(r * 4 + j)];
        const Coverage coverage = part.call().options.mask.coverage(block);
        EXPECT_TRUE(coverage != Coverage::none || seen == 0) << named.name;
        EXPECT_TRUE(coverage != Coverage::all || seen == block.rows * block.keys) << named.name;
      }
  }
}

TEST(regroup, positions_lengths_and_groups_of_heads) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7), window(3, 3) | dilated_window(-1, 4, 4)}) {
    Composition c{"lengths",
                  normal({3, 4, 70, 16}, 4),
                  normal({3, 2, length, 16}, 5),
                  normal({3, 2, length, 8}, 6),
                  {},
                  {},
                  {length, 93, 0},
                  {.mask = mask}};
    c.options.q_start = std::vector<Index>{80, -9, 3};
    expect_regrouped(c);
    c.options.q_start = {};
    expect_regrouped(c);
  }
}

TEST(regroup, sinks_soft_caps_and_scales) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    Composition c = composition_of({"sinks", mask});
    c.sink = {0.5f, -1.5f};
    c.options.score = softcap(4.0);
    c.options.scale = 0.3f;
    expect_regrouped(c);
  }
}

TEST(regroup, biases_of_every_shape) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)})
    for (const Shape& shape : {Shape{2, 2, length, length}, Shape{1, 2, length, length}, Shape{2, 1, 1, length},
                               Shape{1, 2, length, 1}, Shape{1, 1, 1, 1}}) {
      Composition c{"bias " + shape_text(shape),
                    normal({2, 2, length, 8}, 7),
                    normal({2, 2, length, 8}, 8),
                    normal({2, 2, length, 8}, 9),
                    normal(shape, 10),
                    {},
                    {},
                    {.mask = mask}};
      c.bias[0] = -infinity;
      if (c.bias.count() == 1) c.bias[0] = 0.3f;
      expect_regrouped(c);
    }
}

struct Recency {
  static constexpr const char* name = "recency";
  float operator()(float score, const Position& at) const { return score - 0.01f * static_cast<float>(at.distance()); }
  float derivative(float, const Position&) const { return 1.0f; }
};

// What strided views cannot tell takes the ordinary path, and the plan says so.
TEST(regroup, what_needs_true_positions_is_not_regrouped) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    Composition dropped = composition_of({"dropout", mask}), modified = composition_of({"modifier", mask});
    dropped.options.dropout = {0.2, 5};
    modified.options.score = Recency{};
    EXPECT_NE(path_of(dropped).find("not regrouped by residues because of dropout"), std::string::npos);
    EXPECT_NE(path_of(modified).find("because of score modifier 'recency'"), std::string::npos);
    expect_matches_reference(dropped);
    expect_matches_reference(modified);
  }
  Composition plain = composition_of({"window", window(5, 0)});
  EXPECT_EQ(path_of(plain).find("regroup"), std::string::npos);
}

TEST(regroup, gaps_too_wide_for_the_lengths_take_the_ordinary_path) {
  for (const Index gap : {37, 38, 151, 100000}) {
    const Composition c = composition_of({"gap", dilated_window(3, 1, gap) | window(2, 0)});
    EXPECT_EQ(path_of(c).find("regrouped:") == 0, gap <= length / 4) << gap;
    expect_matches_reference(c);
  }
}

TEST(regroup, halves_are_rounded_once) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    const AttendOptions options{.mask = mask, .observe = {.lse = true}};
    const auto in = random_inputs({.q_heads = 2, .kv_heads = 2, .q_len = length, .kv_len = length});
    const auto q = rounded<BFloat16>(in.q), k = rounded<BFloat16>(in.k), v = rounded<BFloat16>(in.v);
    const auto wide_q = to_float(q), wide_k = to_float(k), wide_v = to_float(v);
    const auto got = attend(q, k, v, options);
    const auto wide = attend(wide_q, wide_k, wide_v, options);
    EXPECT_TRUE(same_bits(to_float(got.out), to_float(rounded<BFloat16>(wide.out))));
    EXPECT_TRUE(same_bits(got.lse, wide.lse));
    const auto dout = normal(wide.out.shape(), 9);
    const AttendForward forward{wide.out, wide.lse.view<3>()};
    const auto halves = attend_backward(dout, q, k, v, forward, options);
    const auto floats = attend_backward(dout, wide_q, wide_k, wide_v, forward, options);
    EXPECT_TRUE(same_bits(to_float(halves.dq), to_float(rounded<BFloat16>(floats.dq))));
    EXPECT_TRUE(same_bits(to_float(halves.dk), to_float(rounded<BFloat16>(floats.dk))));
    EXPECT_TRUE(same_bits(to_float(halves.dv), to_float(rounded<BFloat16>(floats.dv))));
  }
}

// Scale times value in float is exact in double, so the reference sees the same numbers.
TEST(regroup, eight_bit_keys_and_values) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    const auto in = random_inputs({.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 120, .kv_len = length});
    const Quantized k = quantize(in.k), v = quantize(in.v);
    const auto widened = [](const Quantized& x) {
      Tensor<double> wide(x.values.shape());
      for (Index i = 0; i < wide.count(); ++i)
        wide[i] = static_cast<double>(x.values[i]) * static_cast<double>(x.scales[i / wide.size(3)]);
      return wide;
    };
    const auto got = attend(in.q, k, v, {.mask = mask}).out;
    const auto wanted = reference::attend(widen(in.q), widened(k), widened(v), {.mask = mask}).out;
    EXPECT_LE(errors(got, wanted).largest_error, 2e-6 * (1 + errors(got, wanted).largest_value));
  }
}

// Layout [batch, length, heads, width] for everything read and written.
TEST(regroup, other_strides_give_the_same_bits) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    const auto in = random_inputs({.batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = length, .kv_len = length});
    const auto turned = [](const Tensor<float>& x) { return packed(x.view<4>().transposed(1, 2)); };
    const auto q = turned(in.q), k = turned(in.k), v = turned(in.v);
    Tensor<float> out(q.shape());
    attend_into(out.view<4>().transposed(1, 2), q.view<4>().transposed(1, 2), k.view<4>().transposed(1, 2),
                v.view<4>().transposed(1, 2), {.mask = mask});
    EXPECT_TRUE(same_bits(turned(out), attend(in.q, in.k, in.v, {.mask = mask}).out));
  }
}

TEST(regroup, bits_depend_neither_on_threads_nor_on_neighbours_nor_on_observing) {
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    const auto in = random_inputs({.batch = 2, .q_heads = 2, .kv_heads = 1, .q_len = 400, .kv_len = 400});
    const auto dout = normal(in.q.shape(), 3);
    set_threads(1);
    const Answer one = answer_to(in, dout, {.mask = mask});
    const auto unobserved = attend(in.q, in.k, in.v, {.mask = mask}).out;
    set_threads(3);
    const Answer three = answer_to(in, dout, {.mask = mask});
    set_threads(0);
    expect_same(one, three);
    EXPECT_TRUE(same_bits(one.forward.out, unobserved));
    const auto first_of = [](const Tensor<float>& x) { return packed(x.view<4>().slice(0, 0, 1)); };
    const auto alone = attend(first_of(in.q), first_of(in.k), first_of(in.v), {.mask = mask}).out;
    EXPECT_TRUE(same_bits(alone, first_of(one.forward.out)));
  }
}

TEST(regroup, bits_do_not_depend_on_padding_to_a_longer_neighbour) {
  const Mask mask = strided(20);
  const auto both = random_inputs({.batch = 2, .q_heads = 2, .kv_heads = 2, .q_len = 200, .kv_len = 200});
  const std::vector<Index> lengths{60, 200};
  const auto first_of = [](const Tensor<float>& x, Index rows) {
    return packed(x.view<4>().slice(0, 0, 1).slice(2, 0, rows));
  };
  AttendOptions padded{.mask = mask, .q_start = 0};
  padded.kv_lengths = lengths;
  const auto together = attend(both.q, both.k, both.v, padded).out;
  const auto alone =
      attend(first_of(both.q, 200), first_of(both.k, 60), first_of(both.v, 60), {.mask = mask, .q_start = 0}).out;
  EXPECT_TRUE(same_bits(alone, first_of(together, 200)));
}

TEST(regroup, hidden_numbers_stay_hidden) {
  const Index bad = 64;
  for (const Mask& mask : {dilated_window(6, 1, 5), strided(7)}) {
    auto in = random_inputs({.q_len = length, .kv_len = length});
    const auto clean = attend(in.q, in.k, in.v, {.mask = mask}).out;
    for (Index d = 0; d < 8; ++d) in.k[bad * 8 + d] = in.v[bad * 8 + d] = not_a_number;
    const auto got = attend(in.q, in.k, in.v, {.mask = mask}).out;
    const auto dout = normal(clean.shape(), 5);
    const auto gradients = backward_of(in, dout, {.mask = mask});
    const std::string picture = mask.picture(length, length);
    for (Index i = 0; i < length; ++i) {
      const bool sees = picture[static_cast<std::size_t>(i * (length + 1) + bad)] == '1';
      EXPECT_EQ(std::isnan(row_of(got, i)[0]), sees) << i;
      EXPECT_EQ(std::isnan(row_of(gradients.dq, i)[0]), sees) << i;
      if (!sees) {
        EXPECT_EQ(row_of(got, i), row_of(clean, i)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace regard
