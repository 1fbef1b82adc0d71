// bfloat16, float16 and int8 storage: what is read is what the numbers stand
// for, and results are rounded once.
#include <random>

#include "attention/cases.h"
#include "attention/kernels/kernels.h"
#include "regard/plan.h"
#include "regard/storage.h"

namespace regard {
namespace {

using namespace testing;

struct Lengths {
  Index q_len, kv_len, head_dim, value_dim;
};
// Streaming, short and decoding, at sizes that end in the middle of a vector.
const std::vector<Lengths> awkward{{1, 2, 8, 8},       {1, 300, 64, 64}, {2, 1100, 32, 24},
                                   {7, 63, 40, 20},    {64, 64, 64, 64}, {65, 191, 33, 17},
                                   {193, 193, 64, 64}, {1, 130, 20, 12}, {100, 400, 128, 96}};

template <class T>
class HalfStorage : public ::testing::Test {};
using HalfTypes = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfStorage, HalfTypes);

// The rule: at most twice the error of a plain float implementation that rounds
// its results to the storage type.
template <class T>
void expect_half_rule(const std::string& what, const Tensor<T>& got, const Tensor<float>& plain,
                      const Tensor<double>& wanted) {
  expect_rule(what, to_float(got), to_float(rounded<T>(plain)), wanted);
}

template <class T>
void expect_half_matches(const Lengths& size, const AttendOptions& plain_options) {
  SCOPED_TRACE(std::string(instruction_set()) + " q_len " + std::to_string(size.q_len) + " kv_len " +
               std::to_string(size.kv_len));
  AttendOptions options = plain_options;
  options.observe = {.lse = true, .entropy = true, .weights = true};
  const CaseSizes sizes{2, 4, 2, size.q_len, size.kv_len, size.head_dim, size.value_dim};
  const Inputs in = random_inputs(sizes);
  const auto q = rounded<T>(in.q), k = rounded<T>(in.k), v = rounded<T>(in.v);
  const Composition c{"", to_float(q), to_float(k), to_float(v), {}, {}, {}, options};
  const DoubleInputs wide(c);
  const BasicAttendResult<T> got = attend(q, k, v, options);
  const AttendResult plain = detail::plain_attend<float>(c.q, c.k, c.v, options);
  const reference::Result wanted = reference::attend(wide.q, wide.k, wide.v, wide.options);
  expect_half_rule("out", got.out, plain.out, wanted.out);
  expect_rule("lse", got.lse, plain.lse, wanted.lse);
  expect_rule("entropy", got.entropy, plain.entropy, wanted.entropy);
  expect_rule("weights", got.weights, plain.weights, wanted.weights);

  const auto dout = rounded<T>(normal(got.out.shape(), 77));
  const auto narrow_dout = to_float(dout);
  const auto wide_dout = widen(narrow_dout);
  const auto ours = attend_backward(dout, q, k, v, {got.out, got.lse}, options);
  const Tensor<float> plain_out = to_float(rounded<T>(plain.out)), &plain_lse = plain.lse;
  const auto theirs = detail::plain_attend_backward<float>(narrow_dout, c.q, c.k, c.v,
                                                           {plain_out.view<4>(), plain_lse.view<3>()}, options, {});
  const auto right = reference::attend_backward(wide_dout, wide.q, wide.k, wide.v,
                                                {wanted.out.view<4>(), wanted.lse.view<3>()}, wide.options, {});
  expect_half_rule("dq", ours.dq, theirs.dq, right.dq);
  expect_half_rule("dk", ours.dk, theirs.dk, right.dk);
  expect_half_rule("dv", ours.dv, theirs.dv, right.dv);
}

TYPED_TEST(HalfStorage, matches_the_reference) {
  on_each_instruction_set([&] {
    for (const Lengths& size : awkward) {
      expect_half_matches<TypeParam>(size, {});
      expect_half_matches<TypeParam>(size, {.mask = causal(), .score = softcap(3)});
    }
  });
}

TYPED_TEST(HalfStorage, dropout_is_that_of_float) {
  expect_half_matches<TypeParam>({60, 60, 32, 32}, {.dropout = {0.3, 5}});
  expect_half_matches<TypeParam>({150, 200, 32, 32}, {.dropout = {0.3, 5}});
  expect_half_matches<TypeParam>({1, 200, 32, 32}, {.dropout = {0.3, 5}});
}

TYPED_TEST(HalfStorage, every_number_is_read_as_itself) {
  // One key of weight 1: out is v, whatever v holds.
  on_each_instruction_set([&] {
    for (std::uint32_t first = 0; first < 65536; first += 512) {
      Tensor<TypeParam> v({1, 1, 1, 512}), one({1, 1, 1, 8});
      for (Index i = 0; i < 512; ++i) v[i].bits = static_cast<std::uint16_t>(first + static_cast<std::uint32_t>(i));
      const auto out = attend(one, one, v).out;
      for (Index i = 0; i < 512; ++i) {
        const float wanted = static_cast<float>(v[i]), got = static_cast<float>(out[i]);
        ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
            << instruction_set() << ": bits " << v[i].bits << " read as " << got;
      }
    }
  });
}

TYPED_TEST(HalfStorage, rounds_to_nearest_even_as_the_scalar_conversion_does) {
  std::mt19937 bits(3);
  Tensor<float> v({1, 1, 1, 4096});
  for (Index i = 0; i < v.count(); ++i) v[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits()));
  const std::vector<float> special{0.0f,        -0.0f,    infinity, -infinity, 65519.0f,     65520.0f, 1.00390625f,
                                   1.01171875f, 5.96e-8f, 2.98e-8f, 1e-45f,    not_a_number, 3.4e38f};
  for (std::size_t i = 0; i < special.size(); ++i) v[static_cast<Index>(i)] = special[i];
  on_each_instruction_set([&] {
    // Straight through the kernel: attention itself would multiply by a weight.
    auto got = Tensor<TypeParam>::uninitialised(v.shape());
    kernels::active().narrow_rows({v.data(), v.count(), 1, v.count()}, {got.data(), 0, storage_of<TypeParam>});
    for (Index i = 0; i < v.count(); ++i) {
      const TypeParam wanted(v[i]);
      if (std::isnan(v[i]))
        ASSERT_TRUE(std::isnan(static_cast<float>(got[i]))) << instruction_set();
      else
        ASSERT_EQ(got[i].bits, wanted.bits) << instruction_set() << ": " << v[i];
    }
  });
}

TYPED_TEST(HalfStorage, hidden_numbers_change_no_bit) {
  on_each_instruction_set([&] {
    for (const Lengths& size : {Lengths{1, 300, 64, 64}, {20, 60, 32, 32}, {150, 200, 64, 64}}) {
      const Inputs in = random_inputs({1, 2, 2, size.q_len, size.kv_len, size.head_dim, size.value_dim});
      const auto q = rounded<TypeParam>(in.q);
      auto k = rounded<TypeParam>(in.k), v = rounded<TypeParam>(in.v);
      const std::vector<Index> lengths{size.kv_len - 30};
      const AttendOptions options{.kv_lengths = lengths, .observe = {.lse = true}};
      const auto clean = attend(q, k, v, options);
      const auto gradients = attend_backward(clean.out, q, k, v, {clean.out, clean.lse}, options);
      for (Index head = 0; head < 2; ++head)
        for (Index j = size.kv_len - 30; j < size.kv_len; ++j)
          k[(head * size.kv_len + j) * size.head_dim] = v[(head * size.kv_len + j) * size.value_dim] =
              static_cast<TypeParam>(not_a_number);
      const auto dirty = attend(q, k, v, options);
      EXPECT_TRUE(same_bits(to_float(clean.out), to_float(dirty.out)));
      const auto again = attend_backward(clean.out, q, k, v, {clean.out, clean.lse}, options);
      EXPECT_TRUE(same_bits(to_float(gradients.dq), to_float(again.dq)));
      EXPECT_TRUE(same_bits(to_float(gradients.dk), to_float(again.dk)));
    }
  });
}

TEST(storage, int8_stands_for_value_times_scale) {
  on_each_instruction_set([&] {
    for (const Lengths& size : awkward) {
      const Inputs in = random_inputs({2, 4, 2, size.q_len, size.kv_len, size.head_dim, size.value_dim});
      const Quantized k = quantize(in.k), v = quantize(in.v);
      const AttendOptions options{.mask = causal()};
      const Composition c{"", in.q, to_float(k), to_float(v), {}, {}, {}, options};
      const DoubleInputs wide(c);
      expect_rule("out", attend(in.q, k, v, options).out, detail::plain_attend<float>(c.q, c.k, c.v, options).out,
                  reference::attend(wide.q, wide.k, wide.v, wide.options).out);
    }
  });
}

TEST(storage, types_mix) {
  on_each_instruction_set([&] {
    for (const Lengths& size : {Lengths{1, 300, 64, 64}, {20, 60, 32, 32}, {150, 200, 64, 64}}) {
      const Inputs in = random_inputs({1, 4, 2, size.q_len, size.kv_len, size.head_dim, size.value_dim});
      const auto k = rounded<BFloat16>(in.k);
      const auto v = rounded<Float16>(in.v);
      const auto mixed = attend(in.q, k, v);
      const auto wide = attend(in.q, to_float(k), to_float(v));
      // Decoding and packing read other types in the same order of sums.
      EXPECT_TRUE(same_bits(mixed.out, wide.out)) << instruction_set() << " kv_len " << size.kv_len;
    }
  });
}

TEST(storage, to_float_multiplies_int8_by_its_scales) {
  const Quantized x{{{1, 1, 2, 2}, {1, -2, 127, 0}}, {{1, 1, 2}, {0.5f, 2.0f}}};
  EXPECT_EQ(list(to_float(x)), (std::vector<float>{0.5f, -1.0f, 254.0f, 0.0f}));
}

TEST(storage, quantize_rounds_to_the_nearest_of_255_steps) {
  const Tensor<float> x({1, 1, 2, 4}, {1.27f, -0.635f, 0.004f, 0.016f, 0.0f, 0.0f, 0.0f, 0.0f});
  const Quantized q = quantize(x);
  EXPECT_EQ(std::vector<int>(q.values.values().begin(), q.values.values().end()),
            (std::vector<int>{127, -64, 0, 2, 0, 0, 0, 0}));
  EXPECT_NEAR(q.scales[0], 0.01, 1e-9);
  EXPECT_EQ(q.scales[1], 0.0f);
  const Tensor<float> bad({1, 1, 1, 1}, {infinity});
  EXPECT_EQ(message_of([&] { quantize(bad); }), "quantize: x holds numbers that are not finite");
}

TEST(storage, gradients_of_mixed_types_have_their_inputs_types) {
  const Inputs in = random_inputs({1, 2, 2, 70, 90, 32, 32});
  const auto k = rounded<BFloat16>(in.k);
  const auto wide_k = to_float(k);
  const AttendOptions options{.observe = {.lse = true}};
  const auto forward = attend(in.q, k, in.v, options);
  Tensor<float> dq(in.q.shape()), dv(in.v.shape());
  Tensor<BFloat16> dk(in.k.shape());
  attend_backward_into({dq, dk, dv}, forward.out, in.q, k, in.v, {forward.out, forward.lse}, options);
  const auto wanted = attend_backward(forward.out, in.q, wide_k, in.v, {forward.out, forward.lse}, options);
  EXPECT_TRUE(same_bits(dq, wanted.dq));
  EXPECT_TRUE(same_bits(dv, wanted.dv));
  EXPECT_TRUE(same_bits(to_float(dk), to_float(rounded<BFloat16>(wanted.dk))));
}

TEST(storage, empty_tensors_have_empty_results) {
  const Inputs in = random_inputs({1, 2, 2, 0, 3, 8, 8});
  const auto q = rounded<BFloat16>(in.q), k = rounded<BFloat16>(in.k), v = rounded<BFloat16>(in.v);
  const auto forward = attend(q, k, v, {.observe = {.lse = true}});
  const auto gradients = attend_backward(forward.out, q, k, v, {forward.out, forward.lse});
  EXPECT_TRUE(gradients.dq.empty());
  EXPECT_EQ(list(to_float(gradients.dk)), zeros(2 * 3 * 8));
  EXPECT_TRUE(quantize(Tensor<float>({1, 1, 4, 0})).values.empty());
}

TEST(storage, numbers_too_small_for_255_normal_steps_keep_their_size) {
  const Tensor<float> x({1, 1, 1, 2}, {189 * 0x1p-149f, -40 * 0x1p-149f});
  const auto back = to_float(quantize(x));
  for (Index i = 0; i < 2; ++i) EXPECT_NEAR(back[i], x[i], std::numeric_limits<float>::min() / 2);
}

TEST(storage, refuses_what_has_no_meaning) {
  const Inputs in = random_inputs({1, 1, 1, 2, 3, 8, 8});
  const auto q = quantize(in.q), k = quantize(in.k);
  Tensor<float> out({1, 1, 2, 8});
  Tensor<Float16> half({1, 1, 2, 8});
  const auto half_q = rounded<BFloat16>(in.q);
  EXPECT_EQ(message_of([&] { attend_into(out, q, in.k, in.v); }), "attend: q is int8; only k and v may be");
  EXPECT_EQ(message_of([&] { attend_into(half, in.q, in.k, in.v); }), "attend: out is F16 but must be F32");
  EXPECT_EQ(message_of([&] { attend_into(half, half_q, in.k, in.v); }), "attend: out is F16 but must be BF16 or F32");
  const auto forward = attend(in.q, k, in.v, {.observe = {.lse = true}});
  EXPECT_EQ(message_of([&] {
              attend_backward(forward.out, in.q, k, in.v, {forward.out, forward.lse});
            }),
            "attend_backward: k is int8, which has no gradient");
  EXPECT_EQ(message_of([&] {
              attend_backward(forward.out, half_q, in.k, in.v, {forward.out, forward.lse});
            }),
            "attend_backward: k is F32 but q is BF16; attend_backward_into takes gradients of several types");
  EXPECT_EQ(message_of([&] {
              InputView(k.values.view<4>(), View<const float, 3>(k.scales.data(), {1, 1, 2}));
            }),
            "InputView: int8 values [1,1,3,8] need scales of their first three sizes, got [1,1,2]");
}

TEST(storage, the_plan_names_it) {
  const Inputs in = random_inputs({1, 1, 1, 2, 3, 8, 8});
  EXPECT_EQ(plan_attend(in.q, rounded<BFloat16>(in.k), quantize(in.v)).storage, "q F32, k BF16, v I8");
}

}  // namespace
}  // namespace regard
