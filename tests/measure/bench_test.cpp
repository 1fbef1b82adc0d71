// The benchmark's cases, shrunk, against the double-precision reference: what
// is timed is also right, forward and backward.
#include "regard/bench.h"

#include <set>

#include "attention/compare.h"
#include "regard/peak.h"

namespace regard {
namespace {

using testing::errors;
using testing::expect_rule;
using testing::normal;
using testing::widen;

// Long enough for more than one tile of keys; sanitizers take 30 times as long.
#ifdef REGARD_SANITIZED
constexpr Index small_length = 70;
#else
constexpr Index small_length = 210;
#endif

class EveryCase : public ::testing::TestWithParam<BenchCase> {};

TEST_P(EveryCase, shrunk_matches_the_reference) {
  const BenchCase small = shrunk(GetParam(), small_length);
  const BenchProblem problem(small);
  AttendOptions options = problem.options();
  options.observe.lse = options.observe.entropy = true;
  const auto packed_bias = options.bias.given() ? packed(options.bias) : Tensor<float>();
  const Tensor<float> q32 = to_float(problem.q()), k32 = to_float(problem.k()), v32 = to_float(problem.v());
  const Tensor<double> q = widen(q32), k = widen(k32), v = widen(v32);
  const Tensor<double> bias = widen(packed_bias);
  reference::Options wide{.mask = options.mask,
                          .score = options.score,
                          .kv_lengths = options.kv_lengths,
                          .dropout = options.dropout,
                          .observe = options.observe};
  if (options.bias.given()) wide.bias = bias.view<4>();

  Tensor<float> out({small.batch, small.q_heads, small.q_len, small.value_dim});
  const auto got = attend_into(out, problem.q(), problem.k(), problem.v(), options);
  const auto plain = detail::plain_attend<float>(q32, k32, v32, options);
  const auto wanted = reference::attend(q, k, v, wide);
  expect_rule("out", out, plain.out, wanted.out);
  expect_rule("lse", got.lse, plain.lse, wanted.lse);
  expect_rule("entropy", got.entropy, plain.entropy, wanted.entropy);
  if (small.kind == BenchKind::observe_rows) expect_rule("row_max", got.row_max, plain.row_max, wanted.row_max);
  if (small.kind == BenchKind::observe_all) {
    testing::expect_same_summaries(got, plain, wanted);
    for (std::size_t r = 0; r < wanted.rectangles.size(); ++r)
      expect_rule("rows", got.rectangles[r], plain.rectangles[r], wanted.rectangles[r]);
  }

  if (small.storage == DType::i8) return;  // no gradients
  const auto dout = normal(out.shape(), 9);
  const auto wide_dout = widen(dout);
  Tensor<float> dq(q.shape()), dk(k.shape()), dv(v.shape());
  attend_backward_into({dq, dk, dv}, dout, problem.q(), problem.k(), problem.v(), {out, got.lse}, options);
  const auto theirs = detail::plain_attend_backward<float>(dout.view<4>(), q32, k32, v32,
                                                           {plain.out.view<4>(), plain.lse.view<3>()}, options, {});
  const auto right = reference::attend_backward(wide_dout, q, k, v, {wanted.out.view<4>(), wanted.lse.view<3>()}, wide);
  expect_rule("dq", dq, theirs.dq, right.dq);
  expect_rule("dk", dk, theirs.dk, right.dk);
  expect_rule("dv", dv, theirs.dv, right.dv);
}

std::string name_of(const ::testing::TestParamInfo<BenchCase>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(cases, EveryCase, ::testing::ValuesIn(bench_cases()), name_of);

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

TEST(bench, names_are_unique_and_say_the_dtype) {
  std::set<std::string> names;
  for (const BenchCase& c : bench_cases()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    const std::string type = c.name.substr(c.name.rfind('/') + 1);
    EXPECT_EQ(c.storage == DType::i8 ? "I8" : dtype_name(c.storage), upper(type)) << c.name;
  }
}

double pairs_of_one_head(const std::string& name) {
  for (const BenchCase& c : bench_cases())
    if (c.name == name) return BenchProblem(c).visible_pairs() / static_cast<double>(c.batch * c.q_heads);
  ADD_FAILURE() << name << " is not in the table";
  return 0;
}

TEST(bench, counts_the_pairs_that_are_visible) {
  EXPECT_EQ(pairs_of_one_head("full/n512/d64/f32"), 512.0 * 512);
  EXPECT_EQ(pairs_of_one_head("causal/n1024/d64/f32"), 1024.0 * 1025 / 2);
  EXPECT_EQ(pairs_of_one_head("window256/n8192/d64/f32"), 256.0 * 8192 - 256.0 * 255 / 2);
  EXPECT_EQ(pairs_of_one_head("documents512/n8192/d64/f32"), 512.0 * 8192);
  EXPECT_EQ(pairs_of_one_head("padding-half/n2048/d64/f32"), 2048.0 * 1024);
}

TEST(bench, a_measured_case_has_every_figure) {
  const BenchMachine machine{"cpu", "isa", 1, 100.0, 10.0};
  const BenchCase& c = bench_cases().front();
  const BenchResult result = measure_case(shrunk(c, 32), machine, 0.01);
  EXPECT_EQ(result.name, c.name);
  EXPECT_GT(result.ms, 0);
  // 4 heads of 32 x 32 pairs, 64 wide: 4 * pairs * head_dim operations.
  EXPECT_NEAR(result.gflops * result.ms, 4 * 4 * 32 * 32 * 64 * 1e-6, 1e-9);
  EXPECT_NEAR(result.percent_of_peak, result.gflops, 1e-9);
  // q, k, v and out of 4 heads.
  EXPECT_NEAR(result.percent_of_bandwidth * result.ms, 100.0 / 10.0 * 4 * 4 * 32 * 64 * 4 * 1e-6, 1e-6);
  EXPECT_FALSE(result.kernel.empty());
}

}  // namespace
}  // namespace regard
