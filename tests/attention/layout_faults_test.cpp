// Faults of layout and memory: strides, sizes, page ends, shared heads.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "attention/cases.h"

namespace regard {
namespace {

using namespace testing;

using Wide = View<const float, 4>;

// The same numbers under other strides: axes stored in the order `axes`, those
// in `reversed` from last to first, `gap` elements between neighbours.
class Restrided {
 public:
  Restrided(const Tensor<float>& from, std::array<int, 4> axes, std::array<bool, 4> reversed, Index gap) {
    std::array<Index, 4> sizes, strides;
    Index stride = gap;
    for (int place = 3; place >= 0; --place) {
      const auto axis = static_cast<std::size_t>(axes[static_cast<std::size_t>(place)]);
      sizes[axis] = from.size(static_cast<int>(axis));
      strides[axis] = stride;
      stride *= sizes[axis];
    }
    memory_ = Tensor<float>({stride}, -7.0f);
    Index first = 0;
    for (std::size_t axis = 0; axis < 4; ++axis)
      if (reversed[axis]) {
        first += strides[axis] * (sizes[axis] - 1);
        strides[axis] = -strides[axis];
      }
    view_ = {memory_.data() + first, sizes, strides};
    Index at = 0;
    for_each([&](float& value) { value = from[at++]; });
  }
  Restrided(const Restrided&) = delete;

  View<float, 4> view() const { return view_; }
  Tensor<float> copy() const { return packed(view_); }
  // Numbers in the gaps; they must stay what they were.
  Index untouched() const { return std::count(memory_.values().begin(), memory_.values().end(), -7.0f); }

 private:
  template <class F>
  void for_each(F visit) {
    for (Index a = 0; a < view_.size(0); ++a)
      for (Index b = 0; b < view_.size(1); ++b)
        for (Index c = 0; c < view_.size(2); ++c)
          for (Index d = 0; d < view_.size(3); ++d) visit(view_(a, b, c, d));
  }
  Tensor<float> memory_;
  View<float, 4> view_;
};

struct Layout {
  std::array<int, 4> axes;
  std::array<bool, 4> reversed;
  Index gap;
};
const std::vector<Layout> layouts{
    {{0, 2, 1, 3}, {false, false, false, false}, 1},  // (batch, row, head, depth)
    {{0, 1, 3, 2}, {false, false, false, false}, 1},  // depth and rows exchanged
    {{3, 2, 1, 0}, {false, false, false, false}, 1}, {{0, 1, 2, 3}, {true, true, true, true}, 1},
    {{0, 1, 2, 3}, {false, false, true, false}, 1},  {{1, 0, 2, 3}, {false, true, false, true}, 3}};

TEST(layout, inputs_of_any_strides_equal_their_packed_copies) {
  on_each_instruction_set([] {
    const auto in = random_inputs(
        {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 31, .kv_len = 62, .head_dim = 20, .value_dim = 9});
    const auto bias = normal({2, 4, 31, 62}, 5), dout = normal({2, 4, 31, 9}, 6);
    const AttendOptions options{.mask = causal(), .bias = bias.view<4>(), .observe = {.lse = true}};
    const auto wanted = attend(in.q, in.k, in.v, options);
    const auto gradients = backward_of(in, dout, options);
    for (const auto& [axes, reversed, gap] : layouts) {
      const Restrided q(in.q, axes, reversed, gap), k(in.k, axes, reversed, gap), v(in.v, axes, reversed, gap);
      const Restrided strange_bias(bias, axes, reversed, gap), strange_dout(dout, axes, reversed, gap);
      const Restrided strange_out(wanted.out, axes, reversed, gap);
      AttendOptions strange = options;
      strange.bias = strange_bias.view();
      const auto got = attend(q.view(), k.view(), v.view(), strange);
      EXPECT_TRUE(same_bits(got.out, wanted.out) && same_bits(got.lse, wanted.lse));
      const auto ours = attend_backward(strange_dout.view(), q.view(), k.view(), v.view(),
                                        {strange_out.view(), got.lse.view<3>()}, strange);
      EXPECT_TRUE(same_bits(ours.dq, gradients.dq) && same_bits(ours.dk, gradients.dk));
      EXPECT_TRUE(same_bits(ours.dv, gradients.dv) && same_bits(ours.dbias, gradients.dbias));
    }
  });
}

TEST(layout, outputs_of_any_strides_get_the_same_bits_and_nothing_else_is_written) {
  on_each_instruction_set([] {
    const auto in = random_inputs(
        {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 31, .kv_len = 140, .head_dim = 20, .value_dim = 9});
    const auto dout = normal({2, 4, 31, 9}, 6);
    const auto wanted = attend(in.q, in.k, in.v, {.observe = {.lse = true}});
    const auto gradients = backward_of(in, dout, {});
    for (const auto& [axes, reversed, gap] : layouts) {
      const Restrided out(Tensor<float>(wanted.out.shape()), axes, reversed, gap);
      const Restrided dq(in.q, axes, reversed, gap), dk(in.k, axes, reversed, gap), dv(in.v, axes, reversed, gap);
      const Index gaps = out.untouched();
      EXPECT_TRUE(attend_into(out.view(), in.q, in.k, in.v).out.empty());
      EXPECT_TRUE(same_bits(out.copy(), wanted.out));
      EXPECT_EQ(out.untouched(), gaps);
      attend_backward_into({dq.view(), dk.view(), dv.view()}, dout, in.q, in.k, in.v,
                           {wanted.out.view<4>(), wanted.lse.view<3>()});
      EXPECT_TRUE(same_bits(dq.copy(), gradients.dq));
      EXPECT_TRUE(same_bits(dk.copy(), gradients.dk));
      EXPECT_TRUE(same_bits(dv.copy(), gradients.dv));
    }
  });
}

TEST(layout, one_key_repeated_by_stride_zero_reads_as_many) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_heads = 3, .kv_heads = 3, .q_len = 4, .kv_len = 50});
    const auto repeat = [](const Tensor<float>& x) { return Wide(x.data(), {1, 3, 50, 8}, {0, 0, 0, 1}); };
    const auto got = attend(in.q, repeat(in.k), repeat(in.v));
    const auto k = packed(repeat(in.k)), v = packed(repeat(in.v));
    EXPECT_TRUE(same_bits(got.out, attend(in.q, k, v).out));
  });
}

TEST(layout, a_transposed_mask_reads_by_its_strides) {
  Tensor<std::uint8_t> tall({7, 5});
  for (Index i = 0; i < 35; ++i) tall[i] = i % 3 != 1;
  const auto turned = std::as_const(tall).view<2>().transposed(0, 1);
  const auto copy = packed(turned);
  on_each_instruction_set([&] {
    const auto in = random_inputs({.q_len = 5, .kv_len = 7});
    EXPECT_TRUE(same_bits(attend(in.q, in.k, in.v, {.mask = boolean(turned)}).out,
                          attend(in.q, in.k, in.v, {.mask = boolean(copy.view<2>())}).out));
  });
}

TEST(layout, axes_of_size_one_may_have_odd_strides) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 1, .kv_len = 9});
    const Wide q(in.q.data(), {1, 1, 1, 8}, {12345, -99, 7, 1});
    EXPECT_TRUE(same_bits(attend(q, in.k, in.v).out, attend(in.q, in.k, in.v).out));
    Tensor<float> out({1, 1, 1, 8});
    attend_into(View<float, 4>{out.data(), {1, 1, 1, 8}, {0, 0, 0, 1}}, in.q, in.k, in.v);
    EXPECT_TRUE(same_bits(out, attend(in.q, in.k, in.v).out));
  });
}

TEST(layout, outputs_that_share_memory_are_refused) {
  const auto in = random_inputs({.q_len = 4, .kv_len = 4});
  Tensor<float> memory({64});
  const auto refused = [&](std::array<Index, 4> strides) {
    return message_of([&] { attend_into(View<float, 4>{memory.data(), {1, 1, 4, 8}, strides}, in.q, in.k, in.v); });
  };
  EXPECT_EQ(refused({32, 32, 0, 1}), "attend: out [1,1,4,8] has elements that share memory (strides [32,32,0,1])");
  EXPECT_EQ(refused({32, 32, 7, 1}), "attend: out [1,1,4,8] has elements that share memory (strides [32,32,7,1])");
  EXPECT_EQ(refused({32, 32, 1, 1}), "attend: out [1,1,4,8] has elements that share memory (strides [32,32,1,1])");
  EXPECT_EQ(refused({0, 0, 8, 1}), "nothing was refused");
  const auto forward = attend(in.q, in.k, in.v, {.observe = {.lse = true}});
  Tensor<float> dq({1, 1, 4, 8}), dk = dq, dv = dq;
  EXPECT_EQ(message_of([&] {
              attend_backward_into({dq, View<float, 4>{dk.data(), {1, 1, 4, 8}, {0, 0, 0, 1}}, dv}, forward.out, in.q,
                                   in.k, in.v, {forward.out.view<4>(), forward.lse.view<3>()});
            }),
            "attend_backward: dk [1,1,4,8] has elements that share memory (strides [0,0,0,1])");
}

TEST(layout, every_head_reads_its_own_slice) {
  on_each_instruction_set([] {
    Tensor<float> v({2, 4, 2, 16});  // (batch, row, head, depth)
    for (Index i = 0; i < v.count(); ++i) v[i] = static_cast<float>(i / 16 % 2 + 1);
    const auto x = normal({2, 4, 2, 16}, 1);
    const auto heads = [](const Tensor<float>& t) { return t.view<4>().transposed(1, 2); };
    const auto got = attend(heads(x), heads(x), heads(v));
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 2; ++h)
        for (Index i = 0; i < 4; ++i)
          for (float value : row_of(got.out, i, h, b)) EXPECT_NEAR(value, h + 1, 1e-6);
  });
}

TEST(layout, grouped_heads_are_repeated_not_tiled) {
  on_each_instruction_set([] {
    auto in = random_inputs({.q_heads = 4, .kv_heads = 2, .q_len = 3, .kv_len = 5});
    for (Index i = 0; i < in.v.count(); ++i) in.v[i] = static_cast<float>(i / 40);
    const auto out = attend(in.q, in.k, in.v).out;
    for (Index h = 0; h < 4; ++h)
      for (Index i = 0; i < 3; ++i)
        for (float value : row_of(out, i, h)) EXPECT_NEAR(value, h / 2, 1e-6) << "head " << h;
  });
}

// Scores are 0 and s; with q = k = 1 in 32 places s = 32 * scale = sqrt(32).
TEST(layout, values_may_have_another_size_and_the_scale_is_of_the_keys) {
  on_each_instruction_set([] {
    const Tensor<float> q({1, 1, 16, 32}, 1.0f);
    Tensor<float> k({1, 1, 2, 32});
    for (Index d = 32; d < 64; ++d) k[d] = 1.0f;
    Tensor<float> v({1, 1, 2, 24});
    for (Index d = 24; d < 48; ++d) v[d] = 1.0f;
    const auto out = attend(q, k, v).out;
    EXPECT_EQ(out.shape(), (Shape{1, 1, 16, 24}));
    const double wanted = 1 / (1 + std::exp(-std::sqrt(32.0)));
    for (float value : out.values()) EXPECT_NEAR(value, wanted, 1e-6);
  });
}

// Memory that ends where a page begins that nobody may touch.
class PageEnd {
 public:
  explicit PageEnd(const Tensor<float>& numbers) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(numbers.count());
    const std::size_t usable = (bytes + page - 1) / page * page;
    size_ = usable + page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + usable, page, PROT_NONE);
    data_ = reinterpret_cast<float*>(base_ + usable - bytes);
    std::memcpy(data_, numbers.data(), bytes);
    std::copy_n(numbers.shape().begin(), 4, sizes_.begin());
  }
  PageEnd(const PageEnd&) = delete;
  ~PageEnd() { munmap(base_, size_); }
  View<float, 4> view() const { return {data_, sizes_}; }

 private:
  char* base_;
  std::size_t size_;
  float* data_;
  std::array<Index, 4> sizes_;
};

TEST(memory_bounds, nothing_is_read_or_written_past_the_end_of_a_page) {
  on_each_instruction_set([] {
    for (Index keys = 1; keys <= 70; ++keys) {
      const Index rows = keys % 8 + 1, head_dim = keys % 3 == 0 ? 64 : keys % 3 == 1 ? 19 : 5;
      const auto in = random_inputs({.q_len = rows, .kv_len = keys, .head_dim = head_dim, .value_dim = head_dim});
      const auto bias_numbers = normal({1, 1, rows, keys}, 4), dout_numbers = normal({1, 1, rows, head_dim}, 5);
      const PageEnd q(in.q), k(in.k), v(in.v), out(dout_numbers), bias(bias_numbers), dout(dout_numbers);
      const PageEnd dq(in.q), dk(in.k), dv(in.v);
      AttendOptions options{.mask = causal(), .bias = bias_numbers.view<4>(), .observe = {.lse = true}};
      const auto wanted = attend(in.q, in.k, in.v, options);
      const auto gradients = backward_of(in, dout_numbers, options);
      options.bias = bias.view();
      const auto got = attend_into(out.view(), q.view(), k.view(), v.view(), options);
      ASSERT_TRUE(same_bits(packed(out.view()), wanted.out)) << keys;
      attend_backward_into({dq.view(), dk.view(), dv.view()}, dout.view(), q.view(), k.view(), v.view(),
                           {out.view(), got.lse.view<3>()}, options);
      ASSERT_TRUE(same_bits(packed(dq.view()), gradients.dq) && same_bits(packed(dk.view()), gradients.dk)) << keys;
    }
  });
}

TEST(empty_sizes, masks_are_never_asked_about_no_rows) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_len = 0, .kv_len = 5});
    Tensor<std::int64_t> none({1, 0}), ids({1, 5});
    const Mask mask = documents(std::as_const(none).view<2>(), std::as_const(ids).view<2>());
    EXPECT_TRUE(attend(in.q, in.k, in.v, {.mask = mask}).out.empty());
    const auto gradients = backward_of(in, Tensor<float>({1, 1, 0, 8}), {.mask = mask});
    EXPECT_EQ(list(gradients.dk), zeros(in.k.count()));
  });
}

TEST(empty_sizes, give_empty_or_zero_results_and_never_a_crash) {
  on_each_instruction_set([] {
    const std::vector<CaseSizes> cases{
        {.batch = 0, .q_len = 3, .kv_len = 4},
        {.q_heads = 0, .kv_heads = 2, .q_len = 3, .kv_len = 4},
        {.q_heads = 0, .kv_heads = 0, .q_len = 3, .kv_len = 4},
        {.q_len = 0, .kv_len = 4},
        {.q_len = 3, .kv_len = 4, .value_dim = 0},
        {.batch = 0, .q_heads = 3952, .kv_heads = 16, .q_len = 10, .kv_len = 10, .head_dim = 64}};
    for (const CaseSizes& s : cases) {
      const auto in = random_inputs(s);
      const auto got =
          attend(in.q, in.k, in.v, {.mask = causal(), .observe = {.lse = true, .entropy = true, .weights = true}});
      EXPECT_EQ(got.out.shape(), (Shape{s.batch, s.q_heads, s.q_len, s.value_dim}));
      EXPECT_EQ(got.weights.shape(), (Shape{s.batch, s.q_heads, s.q_len, s.kv_len}));
      EXPECT_TRUE(got.out.empty());
      const auto gradients = backward_of(in, Tensor<float>(got.out.shape()), {.mask = causal()});
      EXPECT_EQ(gradients.dq.shape(), in.q.shape());
      EXPECT_EQ(list(gradients.dk), zeros(in.k.count()));
      EXPECT_EQ(list(gradients.dv), zeros(in.v.count()));
    }
  });
}

TEST(empty_sizes, no_keys_give_zeros_and_minus_infinity) {
  on_each_instruction_set([] {
    const auto in = random_inputs({.q_heads = 2, .kv_heads = 1, .q_len = 3, .kv_len = 0});
    const auto got = attend(in.q, in.k, in.v, {.observe = {.lse = true, .entropy = true, .weights = true}});
    EXPECT_EQ(list(got.out), zeros(48));
    EXPECT_EQ(list(got.entropy), zeros(6));
    EXPECT_EQ(list(got.lse), std::vector<float>(6, -infinity));
    EXPECT_EQ(got.weights.shape(), (Shape{1, 2, 3, 0}));
    EXPECT_EQ(list(backward_of(in, normal({1, 2, 3, 8}, 4), {}).dq), zeros(48));
  });
}

}  // namespace
}  // namespace regard
