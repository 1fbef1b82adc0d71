// What holds for observers whatever the numbers: ties, ranges, cells, threads,
// nothing visible, nothing finite, and what is refused.
#include <numeric>

#include "attention/observers.h"

namespace regard {
namespace {

using namespace testing;

TEST(observers, see_queries_of_any_strides) {
  const auto in = random_inputs({.q_heads = 3, .kv_heads = 3, .q_len = 70, .kv_len = 70, .head_dim = 12});
  const auto turned = packed(in.q.view<4>().transposed(2, 3)), keys = packed(in.k.view<4>().transposed(1, 2));
  const auto straight = attend(in.q, in.k, in.v, {.observe = everything()});
  const auto strided =
      attend(turned.view<4>().transposed(2, 3), keys.view<4>().transposed(1, 2), in.v, {.observe = everything()});
  EXPECT_TRUE(same_bits(straight.weights, strided.weights));
  EXPECT_TRUE(same_bits(straight.pooled_sum, strided.pooled_sum));
  EXPECT_TRUE(same_bits(straight.diagonal_mass, strided.diagonal_mass));
}

void expect_same_observations(const AttendResult& a, const AttendResult& b) {
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(a.lse, b.lse));
  EXPECT_TRUE(same_bits(a.entropy, b.entropy));
  EXPECT_TRUE(same_bits(a.row_max, b.row_max));
  EXPECT_TRUE(same_bits(a.distance, b.distance));
  EXPECT_TRUE(same_bits(a.top_weights, b.top_weights));
  EXPECT_TRUE(std::equal(a.top_keys.values().begin(), a.top_keys.values().end(), b.top_keys.values().begin(),
                         b.top_keys.values().end()));
  EXPECT_TRUE(same_bits(a.key_mass, b.key_mass));
  EXPECT_TRUE(same_bits(a.pooled_sum, b.pooled_sum));
  EXPECT_TRUE(same_bits(a.pooled_max, b.pooled_max));
  EXPECT_TRUE(same_bits(a.diagonal_mass, b.diagonal_mass));
  EXPECT_TRUE(same_bits(a.weights, b.weights));
}

TEST(observers, asked_alone_or_together_say_the_same) {
  on_each_instruction_set([] {
    const Composition c = sized("", grouped);
    AttendOptions options{.mask = causal(), .observe = everything()};
    const auto together = attend(c.q, c.k, c.v, options);
    AttendResult alone = attend(c.q, c.k, c.v, {.mask = causal()});
    const auto ask = [&](const Observe& one) {
      options.observe = one;
      return attend(c.q, c.k, c.v, options);
    };
    alone.lse = ask({.lse = true}).lse;
    alone.entropy = ask({.entropy = true}).entropy;
    alone.row_max = ask({.row_max = true}).row_max;
    alone.distance = ask({.distance = true}).distance;
    alone.top_weights = ask({.top_k = 5}).top_weights;
    alone.top_keys = ask({.top_k = 5}).top_keys;
    alone.key_mass = ask({.key_mass = QueryRange{}}).key_mass;
    alone.pooled_sum = ask({.pooled_sum = MapSize{5, 7}}).pooled_sum;
    alone.pooled_max = ask({.pooled_max = MapSize{6, 3}}).pooled_max;
    alone.diagonal_mass = ask({.diagonals = OffsetRange{}}).diagonal_mass;
    alone.weights = ask({.weights = true}).weights;
    expect_same_observations(alone, together);
  });
}

TEST(observers, say_the_same_on_any_number_of_threads) {
  on_each_instruction_set([] {
    for (const Shapes& shapes : {Shapes{.q_heads = 1, .kv_heads = 1, .q_len = 1000, .kv_len = 500}, grouped,
                                 Shapes{.q_heads = 4, .kv_heads = 4, .q_len = 3, .kv_len = 700}}) {
      const Composition c = sized("", shapes);
      const AttendOptions options{.mask = causal(), .observe = everything()};
      set_threads(1);
      const auto one = attend(c.q, c.k, c.v, options);
      for (const int count : {2, 3, 7}) {
        set_threads(count);
        expect_same_observations(attend(c.q, c.k, c.v, options), one);
      }
      set_threads(0);
    }
  });
}

TEST(observers, of_a_batch_entry_do_not_see_its_neighbours) {
  const Composition c = sized("", grouped);
  const AttendOptions options{.observe = everything()};
  const auto both = attend(c.q, c.k, c.v, options);
  const auto alone =
      attend(c.q.view<4>().slice(0, 1, 2), c.k.view<4>().slice(0, 1, 2), c.v.view<4>().slice(0, 1, 2), options);
  EXPECT_TRUE(same_bits(packed(both.key_mass.view<3>().slice(0, 1, 2)), alone.key_mass));
  EXPECT_TRUE(same_bits(packed(both.pooled_sum.view<4>().slice(0, 1, 2)), alone.pooled_sum));
  EXPECT_TRUE(same_bits(packed(both.diagonal_mass.view<3>().slice(0, 1, 2)), alone.diagonal_mass));
  EXPECT_TRUE(same_bits(packed(both.distance.view<3>().slice(0, 1, 2)), alone.distance));
}

// A query of zeros sees its keys alike: weights are equal to the last bit.
TEST(observers, top_keys_of_equal_weights_are_the_lower_ones) {
  on_each_instruction_set([] {
    Inputs in = random_inputs({.q_len = 40, .kv_len = 450});
    in.q.fill(0);
    const auto got = attend(in.q, in.k, in.v, {.observe = {.top_k = 9}});
    for (Index i = 0; i < 40; ++i)
      for (Index n = 0; n < 9; ++n) {
        EXPECT_EQ(got.top_keys[i * 9 + n], n);
        EXPECT_NEAR(got.top_weights[i * 9 + n], 1.0 / 450, 1e-8);
      }
  });
}

// Bit for bit those of the sorted weights, however many are asked for.
TEST(observers, top_keys_are_the_first_of_all_keys_ranked) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 30, .kv_len = 400});
    for (const Index count : {1, 2, 16, 17, 40, 403}) {
      const auto got = attend(in.q, in.k, in.v, {.mask = causal(), .observe = {.top_k = count, .weights = true}});
      for (Index i = 0; i < 30; ++i) {
        const auto weights = row_of(got.weights, i);
        const auto weight = [&](Index key) { return weights[static_cast<std::size_t>(key)]; };
        std::vector<Index> order(400);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return weight(a) > weight(b); });
        for (Index n = 0; n < count; ++n) {
          const Index key = n < 371 + i ? order[static_cast<std::size_t>(n)] : -1;
          ASSERT_EQ(got.top_keys[i * count + n], key) << count;
          ASSERT_EQ(got.top_weights[i * count + n], key < 0 ? 0.0f : weight(key)) << count;
        }
      }
    }
  });
}

TEST(observers, key_mass_counts_the_queries_of_its_range_only) {
  const Composition c = sized("", grouped);
  const Matrices all = matrices_of(c);
  on_each_instruction_set([&] {
    for (const auto& [begin, end] :
         {std::pair<Index, Index>(0, 130), {0, 1}, {23, 25}, {24, 48}, {97, 130}, {60, 60}}) {
      const auto got = attend(c.q, c.k, c.v, {.observe = {.key_mass = QueryRange{begin, end}}});
      expect_close("key_mass", got.key_mass, all.key_mass(begin, end));
    }
    const auto open = attend(c.q, c.k, c.v, {.observe = {.key_mass = QueryRange{100, {}}}});
    expect_close("key_mass", open.key_mass, all.key_mass(100, 130));
  });
}

TEST(observers, diagonals_of_a_range_are_those_of_the_whole) {
  on_each_instruction_set([] {
    const Composition c = sized("", grouped);
    const auto whole = attend(c.q, c.k, c.v, {.mask = causal(), .observe = {.diagonals = OffsetRange{}}});
    EXPECT_EQ(whole.first_offset, -129);
    EXPECT_EQ(whole.diagonal_mass.size(2), 130 + 217 - 1);
    for (const auto& [first, last] : {std::pair<Index, Index>(-3, 8), {0, 0}, {100, 216}, {-129, 216}}) {
      const auto got = attend(c.q, c.k, c.v, {.mask = causal(), .observe = {.diagonals = OffsetRange{first, last}}});
      EXPECT_EQ(got.first_offset, first);
      EXPECT_TRUE(same_bits(got.diagonal_mass,
                            packed(std::as_const(whole.diagonal_mass).view<3>().slice(2, first + 129, last + 130))));
    }
    const auto outside = attend(c.q, c.k, c.v, {.observe = {.diagonals = OffsetRange{900, 902}}});
    EXPECT_EQ(list(outside.diagonal_mass), zeros(2 * 4 * 3));
  });
}

TEST(observers, a_map_of_one_cell_and_one_of_every_pair_are_pools_too) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 50, .kv_len = 230});
    const auto one = attend(in.q, in.k, in.v, {.observe = {.pooled_sum = MapSize{1, 1}, .weights = true}});
    EXPECT_NEAR(one.pooled_sum[0], 50, 1e-4);
    const Observe pairs{.pooled_sum = MapSize{50, 230}, .pooled_max = MapSize{50, 230}};
    const auto every = attend(in.q, in.k, in.v, {.observe = pairs});
    EXPECT_TRUE(same_bits(every.pooled_sum, one.weights));
    EXPECT_TRUE(same_bits(every.pooled_max, one.weights));
  });
}

TEST(observers, cells_of_no_query_or_key_hold_nothing) {
  const auto in = random_inputs({.q_len = 2, .kv_len = 3});
  const auto got = attend(in.q, in.k, in.v, {.observe = {.pooled_sum = MapSize{4, 6}, .weights = true}});
  for (Index r = 0; r < 4; ++r)
    for (Index c = 0; c < 6; ++c)
      EXPECT_EQ(got.pooled_sum[r * 6 + c], r % 2 && c % 2 ? got.weights[r / 2 * 3 + c / 2] : 0.0f) << r << " " << c;
}

TEST(observers, a_pyramid_halves_a_map_down_to_its_smallest) {
  const Tensor<float> map({1, 1, 3, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  const auto sums = pyramid(map, Pooling::sum);
  ASSERT_EQ(sums.size(), 4u);
  EXPECT_TRUE(same_bits(sums[0], map));
  EXPECT_TRUE(same_bits(sums[1], Tensor<float>({1, 1, 2, 3}, {16, 24, 15, 23, 27, 15})));
  EXPECT_TRUE(same_bits(sums[2], Tensor<float>({1, 1, 1, 2}, {90, 30})));
  EXPECT_TRUE(same_bits(sums[3], Tensor<float>({1, 1, 1, 1}, {120})));
  const auto tops = pyramid(map, Pooling::max, {2, 1});
  ASSERT_EQ(tops.size(), 4u);
  EXPECT_TRUE(same_bits(tops[1], Tensor<float>({1, 1, 2, 3}, {7, 9, 10, 12, 14, 15})));
  EXPECT_EQ(tops[3].shape(), (Shape{1, 1, 2, 1}));
  const Tensor<float> negative({2, 2}, {-3, -1, -2, -4});
  EXPECT_EQ(pyramid(negative, Pooling::max).back()[0], -1.0f);
  EXPECT_EQ(pyramid(Tensor<double>({2, 0, 0}), Pooling::sum).size(), 1u);
  EXPECT_EQ(message_of([] { pyramid(Tensor<float>({4}), Pooling::sum); }),
            "pyramid: map [4] needs two axes, rows and columns");
  EXPECT_EQ(message_of([&] {
              pyramid(map, Pooling::sum, {0, 1});
            }),
            "pyramid: smallest is 0 x 1 but must be at least 1 x 1");
}

TEST(observers, a_fine_map_halved_is_the_coarse_map) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 256, .kv_len = 384});
    const auto fine =
        attend(in.q, in.k, in.v, {.observe = {.pooled_sum = MapSize{64, 64}, .pooled_max = MapSize{64, 64}}});
    const auto coarse =
        attend(in.q, in.k, in.v, {.observe = {.pooled_sum = MapSize{16, 16}, .pooled_max = MapSize{16, 16}}});
    EXPECT_TRUE(same_bits(pyramid(fine.pooled_max, Pooling::max, {16, 16}).back(), coarse.pooled_max));
    expect_close("pooled_sum", pyramid(fine.pooled_sum, Pooling::sum, {16, 16}).back(), widen(coarse.pooled_sum));
  });
}

TEST(observers, of_rows_that_see_nothing_say_so) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 5, .kv_len = 2});
    AttendOptions options{.mask = causal(), .observe = everything()};
    const auto got = attend(in.q, in.k, in.v, options);
    for (Index i = 0; i < 3; ++i) {
      EXPECT_EQ(got.row_max[i], -infinity);
      EXPECT_EQ(got.distance[i], 0.0f);
      for (Index n = 0; n < 5; ++n) EXPECT_EQ(got.top_keys[i * 5 + n], -1);
      for (Index n = 0; n < 5; ++n) EXPECT_EQ(got.top_weights[i * 5 + n], 0.0f);
    }
    // A sink takes weight, not a key's place.
    const std::vector<float> sink{50.0f};
    options.sink = sink;
    const auto drained = attend(in.q, in.k, in.v, options);
    EXPECT_TRUE(same_bits(drained.row_max, got.row_max));
    EXPECT_LT(drained.key_mass[0] + drained.key_mass[1], 1e-15f);
  });
}

TEST(observers, of_nothing_at_all_are_empty_or_zero) {
  for (const auto& [rows, keys] : {std::pair<Index, Index>(0, 4), {3, 0}, {0, 0}}) {
    const Composition c = sized("", {.q_len = rows, .kv_len = keys});
    const auto got = attend(c.q, c.k, c.v, {.observe = everything()});
    const DoubleInputs wide(c);
    reference::Options options;
    options.observe = everything();
    const auto wanted = reference::attend(wide.q, wide.k, wide.v, options);
    expect_close("row_max", got.row_max, wanted.row_max);
    expect_close("distance", got.distance, wanted.distance);
    expect_close("key_mass", got.key_mass, wanted.key_mass);
    expect_close("pooled_sum", got.pooled_sum, wanted.pooled_sum);
    expect_close("pooled_max", got.pooled_max, wanted.pooled_max);
    expect_close("diagonal_mass", got.diagonal_mass, wanted.diagonal_mass);
    EXPECT_EQ(got.diagonal_mass.count(), 0);
    EXPECT_EQ(got.top_keys.shape(), (Shape{1, 2, rows, 5}));
    for (const Index key : got.top_keys.values()) EXPECT_EQ(key, -1);
  }
}

// NaN where it is hidden does not matter; where a row sees it, that row is NaN,
// and so is what the row is part of.
TEST(observers, keep_numbers_that_are_not_finite_in_their_place) {
  Composition c = sized("", {.q_heads = 1, .kv_heads = 1, .q_len = 60, .kv_len = 60});
  for (Index d = 0; d < 8; ++d) c.k[50 * 8 + d] = d == 0 ? infinity : not_a_number;
  c.options.mask = causal();
  DoubleInputs wide(c);
  wide.options.observe = everything();
  const auto wanted = reference::attend(wide.q, wide.k, wide.v, wide.options);
  on_each_instruction_set([&] {
    SCOPED_TRACE(instruction_set());
    AttendOptions options = c.float_options();
    options.observe = everything();
    const auto got = attend(c.q, c.k, c.v, options);
    expect_close("row_max", got.row_max, wanted.row_max);
    expect_close("distance", got.distance, wanted.distance);
    expect_close("key_mass", got.key_mass, wanted.key_mass);
    expect_close("pooled_sum", got.pooled_sum, wanted.pooled_sum);
    expect_close("pooled_max", got.pooled_max, wanted.pooled_max);
    expect_close("diagonal_mass", got.diagonal_mass, wanted.diagonal_mass);
    expect_close("top_weights", got.top_weights, wanted.top_weights);
    EXPECT_EQ(got.top_keys[50 * 5], -1);
    EXPECT_NE(got.top_keys[49 * 5], -1);
    EXPECT_TRUE(std::isfinite(got.row_max[49]) && std::isnan(got.row_max[50]));
    EXPECT_TRUE(std::isfinite(got.key_mass[51]) == false && std::isnan(got.pooled_max[5 * 3]));
  });
}

// Scores of hundreds: weights that come from another order of sums than the
// row's own sum would be off by more than this.
TEST(observers, of_few_queries_fit_the_sums_of_their_own_path) {
  on_each_instruction_set([] {
    Inputs in = random_inputs({.q_heads = 4, .kv_heads = 2, .q_len = 2, .kv_len = 1500, .head_dim = 64});
    for (float& value : in.q.values()) value *= 40.0f;
    const auto got = attend(in.q, in.k, in.v,
                            {.observe = {.row_max = true,
                                         .top_k = 3,
                                         .key_mass = QueryRange{},
                                         .weights = true,
                                         .rectangles = {{0, 3, 1, 1, 0, 1500}}}});
    for (Index row = 0; row < 8; ++row) {
      double sum = 0;
      for (float weight : row_of(got.weights, row % 2, row / 2)) sum += static_cast<double>(weight);
      EXPECT_NEAR(sum, 1.0, 1e-6) << row;
      EXPECT_GT(got.row_max[row], 50.0f);
    }
    EXPECT_EQ(list(got.rectangles[0]), row_of(got.weights, 1, 3));
  });
}

TEST(observers, refuse_what_lies_outside) {
  const auto in = random_inputs({.q_len = 4, .kv_len = 6});
  const auto refusal = [&](const Observe& observe) {
    return message_of([&] { attend(in.q, in.k, in.v, {.observe = observe}); });
  };
  EXPECT_EQ(refusal({.top_k = -1}), "attend: top_k must be at least 0, got -1");
  EXPECT_EQ(refusal({.key_mass = QueryRange{-1, 2}}), "attend: key_mass of queries -1 to 2 lies outside q_len 4");
  EXPECT_EQ(refusal({.key_mass = QueryRange{0, 5}}), "attend: key_mass of queries 0 to 5 lies outside q_len 4");
  EXPECT_EQ(refusal({.key_mass = QueryRange{3, 2}}), "attend: key_mass of queries 3 to 2 lies outside q_len 4");
  EXPECT_EQ(refusal({.pooled_sum = MapSize{0, 3}}),
            "attend: pooled_sum of 0 x 3 cells must be at least 1 x 1 and at most 2^31 on an axis");
  EXPECT_EQ(refusal({.pooled_max = MapSize{2, -1}}),
            "attend: pooled_max of 2 x -1 cells must be at least 1 x 1 and at most 2^31 on an axis");
  for (const std::vector<Index>& rows : {std::vector<Index>{0, 3}, {1, 4}, {0, 3, 2, 4}, {0}, {}})
    EXPECT_EQ(refusal({.segment_sum = SegmentBounds{rows, {0, 6}}}),
              "attend: segment_sum's bounds of the queries must rise from 0 to 4, got " + shape_text(rows));
  EXPECT_EQ(refusal({.segment_sum = SegmentBounds{{0, 4}, {0, 7}}}),
            "attend: segment_sum's bounds of the keys must rise from 0 to 6, got [0,7]");
  EXPECT_EQ(refusal({.diagonals = OffsetRange{3, 1}}), "attend: diagonals end at offset 1, before their first, 3");
}

}  // namespace
}  // namespace regard
