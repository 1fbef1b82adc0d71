// Linformer: against its definition, every sharing, and padding before projecting.
#include "regard/linformer.h"

#include "attention/cases.h"
#include "attention/slopes.h"

namespace regard {
namespace {

using testing::message_of;
using testing::normal;
using testing::widen;

struct Case {
  std::string name;
  testing::Inputs in;
  Tensor<float> keys, values;
  Tensor<std::uint8_t> mask;

  LinformerInputs<float> inputs() const {
    LinformerInputs<float> all{in.q, in.k, in.v, {.keys = keys}};
    if (!values.empty()) all.projections.values = values;
    if (!mask.empty()) all.options.key_mask = mask;
    return all;
  }
};

Case shared(const std::string& name, Index key_tables, Index value_tables, Index length = 300) {
  Case c{name,
         testing::random_inputs(
             {.batch = 2, .q_heads = 4, .kv_heads = 2, .q_len = 33, .kv_len = 300, .head_dim = 12, .value_dim = 10}),
         normal({key_tables, 20, length}, 5, 0.06),
         {},
         {}};
  if (value_tables > 0) c.values = normal({value_tables, 20, length}, 6, 0.06);
  return c;
}

void expect_definition(const Case& c) {
  SCOPED_TRACE(c.name + " on " + instruction_set());
  const auto in = c.inputs();
  const auto got = linformer_attend(in);
  auto q = widen(c.in.q), k = widen(c.in.k), v = widen(c.in.v), keys = widen(c.keys), values = widen(c.values);
  const auto definition = [&] {
    LinformerInputs<double> wide{q, k, v, {.keys = keys}};
    if (!values.empty()) wide.projections.values = values;
    if (!c.mask.empty()) wide.options.key_mask = c.mask;
    return reference::linformer_attend(wide).out;
  };
  const auto wanted = definition();
  for (Index i = 0; i < wanted.count(); ++i) ASSERT_NEAR(got.out[i], wanted[i], 3e-6) << i;
  const auto dout = normal(got.out.shape(), 80);
  const auto wide_dout = widen(dout);
  const auto gradients = linformer_attend_backward(dout, in, got);
  const auto loss = [&] { return testing::weighed(definition(), wide_dout); };
  testing::expect_slopes("dq", gradients.dq, q, loss);
  testing::expect_slopes("dk", gradients.dk, k, loss);
  testing::expect_slopes("dv", gradients.dv, v, loss);
  testing::expect_slopes("dkeys", gradients.dkeys, keys, loss);
  if (!values.empty()) testing::expect_slopes("dvalues", gradients.dvalues, values, loss);
}

TEST(linformer, matches_its_definition_with_every_sharing) {
  testing::on_each_instruction_set([] {
    expect_definition(shared("a projection for each head", 2, 2));
    expect_definition(shared("one for all heads", 1, 1));
    expect_definition(shared("one for keys and values", 1, 0));
    expect_definition(shared("longer than the keys", 2, 1, 320));
  });
}

TEST(linformer, padding_counts_as_zeros_before_it_is_projected) {
  Case c = shared("padded", 2, 2);
  c.mask = Tensor<std::uint8_t>({2, 300}, std::uint8_t{1});
  for (Index j = 200; j < 300; ++j) c.mask[j] = 0;
  for (Index j = 0; j < 300; j += 5) c.mask[300 + j] = 0;
  expect_definition(c);
  Case dirty = c;
  for (Index b = 0; b < 2; ++b)
    for (Index j = 0; j < 300; ++j)
      if (c.mask[b * 300 + j] == 0) {
        dirty.in.k[((b * 2) * 300 + j) * 12] = testing::not_a_number;
        dirty.in.v[((b * 2 + 1) * 300 + j) * 10] = testing::infinity;
      }
  const auto clean = linformer_attend(c.inputs()), got = linformer_attend(dirty.inputs());
  EXPECT_TRUE(testing::same_bits(clean.out, got.out));
  const auto dout = normal(got.out.shape(), 81);
  const auto right = linformer_attend_backward(dout, c.inputs(), clean),
             gradients = linformer_attend_backward(dout, dirty.inputs(), got);
  EXPECT_TRUE(testing::same_bits(right.dk, gradients.dk));
  EXPECT_TRUE(testing::same_bits(right.dkeys, gradients.dkeys));
  EXPECT_TRUE(testing::same_bits(right.dvalues, gradients.dvalues));
}

// A projection that is the identity projects nothing.
TEST(linformer, with_as_many_slots_as_keys_it_can_be_exact_attention) {
  const auto in = testing::random_inputs({.q_len = 9, .kv_len = 20});
  Tensor<float> identity({1, 20, 20});
  for (Index i = 0; i < 20; ++i) identity[i * 21] = 1;
  const auto got = linformer_attend({in.q, in.k, in.v, {.keys = identity}}).out, exact = attend(in.q, in.k, in.v).out;
  for (Index i = 0; i < got.count(); ++i) EXPECT_NEAR(got[i], exact[i], 1e-6);
}

TEST(linformer, causal_is_refused_with_its_reason) {
  const Case c = shared("causal", 1, 1);
  auto in = c.inputs();
  in.options.causal = true;
  EXPECT_NE(message_of([&] { linformer_attend(in); }).find("mixes all positions"), std::string::npos);
}

TEST(linformer, bits_do_not_depend_on_threads) {
  const Case c = shared("threads", 1, 1);
  const auto run = [&](int count) {
    set_threads(count);
    const auto forward = linformer_attend(c.inputs());
    auto back = linformer_attend_backward(normal(forward.out.shape(), 82), c.inputs(), forward);
    set_threads(0);
    return std::pair{forward.out, back.dkeys};
  };
  const auto one = run(1), three = run(3);
  EXPECT_TRUE(testing::same_bits(one.first, three.first));
  EXPECT_TRUE(testing::same_bits(one.second, three.second));
}

TEST(linformer, what_does_not_fit_is_named) {
  Case c = shared("short", 1, 1, 299);
  EXPECT_NE(message_of([&] { linformer_attend(c.inputs()); }).find("[1,20,299]"), std::string::npos);
  c = shared("slots", 1, 1);
  c.values = normal({1, 21, 300}, 1);
  EXPECT_NE(message_of([&] { linformer_attend(c.inputs()); }).find("different slots"), std::string::npos);
  c = shared("mask", 1, 1);
  c.mask = Tensor<std::uint8_t>({3, 300});
  EXPECT_NE(message_of([&] { linformer_attend(c.inputs()); }).find("[3,300]"), std::string::npos);
  c = shared("forward of another projection", 1, 1);
  auto forward = linformer_attend(c.inputs());
  const auto dout = normal(forward.out.shape(), 83);
  c.keys = normal({1, 9, 300}, 5), c.values = normal({1, 9, 300}, 6);
  EXPECT_NE(message_of([&] { linformer_attend_backward(dout, c.inputs(), forward); }).find("forward.keys"),
            std::string::npos);
  forward.keys = normal({2, 2, 9, 12}, 7);
  EXPECT_NE(message_of([&] { linformer_attend_backward(dout, c.inputs(), forward); }).find("forward.values"),
            std::string::npos);
}

}  // namespace
}  // namespace regard
