// Outputs and gradients computed outside this project's code (see
// tests/data/regard/README.md): the reference in float64, the kernels in
// float32 on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "attention/compare.h"
#include "regard/file.h"
#include "regard/safetensors.h"

namespace regard {
namespace {

using Json = nlohmann::json;

const std::string folder = std::string(REGARD_TEST_DATA) + "/regard/";

Json index() { return Json::parse(read_file(folder + "gradients.json")); }

std::vector<std::string> names() {
  std::vector<std::string> all;
  const Json all_cases = index();
  for (const Json& one : all_cases.at("cases")) all.push_back(one.at("name"));
  return all;
}

// One case in the type it is computed in. Every finite input is exact in float32.
template <class T>
struct Conformance {
  const TensorFile file = read_safetensors(folder + "gradients.safetensors");
  std::string name;
  Json facts;
  double rtol = 0, atol = 0;
  Tensor<T> q, k, v, bias, sink, dout;
  Tensor<std::uint8_t> mask;
  BasicAttendOptions<T> options;

  explicit Conformance(const std::string& case_name) : name(case_name) {
    const Json all = index();
    for (const Json& one : all.at("cases"))
      if (one.at("name") == name) facts = one;
    const Json& tolerance = all.at("tolerance").at(std::is_same_v<T, double> ? "F64" : "F32");
    rtol = tolerance.at("rtol");
    atol = tolerance.at("atol");
    q = input("q"), k = input("k"), v = input("v"), dout = input("dout");
    if (has("bias")) options.bias = (bias = input("bias")).template view<4>();
    if (has("sink")) options.sink = (sink = input("sink")).values();
    set_mask();
    if (facts.at("softcap") > 0.0) options.score = softcap(facts.at("softcap"));
    options.scale = static_cast<T>(facts.at("scale").get<double>());
    options.observe.lse = true;
  }
  Conformance(const Conformance&) = delete;  // the options point into it

  bool has(const std::string& what) const { return file.has(name + ".in." + what); }
  Tensor<T> input(const std::string& what) const {
    const auto wide = to_double(file.at(name + ".in." + what), what);
    Tensor<T> tensor(wide.shape());
    for (Index i = 0; i < wide.count(); ++i) tensor[i] = static_cast<T>(wide[i]);
    return tensor;
  }

  void expect(const std::string& what, const Tensor<T>& got) const {
    const auto right = to_double(file.at(name + ".out." + what), what);
    ASSERT_EQ(got.shape(), right.shape()) << what;
    for (Index i = 0; i < right.count(); ++i) {
      const double ours = static_cast<double>(got[i]);
      if (std::isfinite(right[i]))
        ASSERT_LE(std::abs(ours - right[i]), atol + rtol * std::abs(right[i])) << what << "[" << i << "]";
      else
        ASSERT_EQ(ours, right[i]) << what << "[" << i << "]";
    }
  }

 private:
  void set_mask() {
    if (has("mask")) {
      mask = to_boolean(file.at(name + ".in.mask"), "mask");
      options.mask = mask.rank() == 2 ? boolean(std::as_const(mask).template view<2>())
                                      : boolean(std::as_const(mask).template view<4>());
    }
    if (facts.at("causal")) options.mask = options.mask & causal();
    if (facts.at("window_left") >= 0 || facts.at("window_right") >= 0)
      options.mask = options.mask & window(facts.at("window_left"), facts.at("window_right"));
    if (facts.at("alignment") == "top_left") options.q_start = top_left();
  }
};

AttendResult forward(const Conformance<float>& c) { return attend(c.q, c.k, c.v, c.options); }
reference::Result forward(const Conformance<double>& c) { return reference::attend(c.q, c.k, c.v, c.options); }
AttendGradients backward(const Conformance<float>& c, const AttendResult& r) {
  return attend_backward(c.dout, c.q, c.k, c.v, {r.out.view<4>(), r.lse.view<3>()}, c.options);
}
reference::Gradients backward(const Conformance<double>& c, const reference::Result& r) {
  return reference::attend_backward(c.dout, c.q, c.k, c.v, {r.out.view<4>(), r.lse.view<3>()}, c.options);
}

template <class T>
void expect_conforms(const Conformance<T>& c) {
  const auto result = forward(c);
  c.expect("y", result.out);
  c.expect("lse", result.lse);
  const auto gradients = backward(c, result);
  c.expect("dq", gradients.dq);
  c.expect("dk", gradients.dk);
  c.expect("dv", gradients.dv);
  if (c.has("bias")) c.expect("dbias", gradients.dbias);
  if (c.has("sink")) c.expect("dsink", gradients.dsink);
}

class GradientCase : public ::testing::TestWithParam<std::string> {};

TEST_P(GradientCase, reference_gives_the_published_numbers) { expect_conforms(Conformance<double>(GetParam())); }

TEST_P(GradientCase, kernels_give_the_published_numbers_on_every_instruction_set) {
  const Conformance<float> c(GetParam());
  testing::on_each_instruction_set([&] {
    SCOPED_TRACE(instruction_set());
    expect_conforms(c);
  });
}

INSTANTIATE_TEST_SUITE_P(conformance, GradientCase, ::testing::ValuesIn(names()));

TEST(conformance, twelve_cases_are_there) { EXPECT_EQ(names().size(), 12u); }

}  // namespace
}  // namespace regard
