// Gradients of the recurrence: the plain definition against finite differences,
// the kernels against the plain definition.
#include <functional>

#include "attention/cases.h"
#include "element_slopes.h"
#include "regard/linear_recurrence.h"

namespace regard {
namespace {

using testing::errors;
using testing::expect_element_slopes;
using testing::message_of;
using testing::normal;
using testing::widen;

// Which parts a rule has. decay: numbers a token (0: none); beta: heads (0: none).
struct Rule {
  std::string name;
  Index decay = 0, beta = 0;
  bool state = false;
};

constexpr Index key_dim = 4, value_dim = 3, kv_heads = 2;

std::vector<Rule> rules() {
  return {{"plain"},
          {"plain with a state", 0, 0, true},
          {"gated", key_dim},
          {"gated, one decay", 1, 0, true},
          {"delta", 0, kv_heads, true},
          {"delta, one beta", 0, 1},
          {"gated delta", key_dim, kv_heads, true},
          {"gated delta, one of each", 1, 1}};
}

template <class T>
struct Data {
  Tensor<T> q, k, v, decay, beta, state, dout, dstate;

  RecurrenceInputs<T> inputs() const {
    RecurrenceInputs<T> in{q, k, v};
    if (!decay.empty()) in.decay = decay;
    if (!beta.empty()) in.beta = beta;
    if (!state.empty()) in.state = state;
    return in;
  }
};

Data<float> data_of(const Rule& rule, Index len) {
  Data<float> data{normal({2, 4, len, key_dim}, 1),
                   normal({2, kv_heads, len, key_dim}, 2, 0.5),
                   normal({2, kv_heads, len, value_dim}, 3),
                   {},
                   {},
                   {},
                   normal({2, 4, len, value_dim}, 7),
                   normal({2, kv_heads, key_dim, value_dim}, 8)};
  if (rule.decay > 0) data.decay = normal({2, kv_heads, len, rule.decay}, 4);
  for (float& value : data.decay.values()) value = -0.3f * std::abs(value);
  if (rule.beta > 0) data.beta = normal({2, rule.beta, len}, 5);
  for (float& value : data.beta.values()) value = 1 / (1 + std::exp(-value));
  if (rule.state) data.state = normal({2, kv_heads, key_dim, value_dim}, 6);
  return data;
}

Data<double> widened(const Data<float>& data) {
  return {widen(data.q),    widen(data.k),     widen(data.v),    widen(data.decay),
          widen(data.beta), widen(data.state), widen(data.dout), widen(data.dstate)};
}

double loss_of(const Data<double>& data) {
  const auto result = reference::linear_recurrence(data.inputs());
  double loss = 0;
  for (Index i = 0; i < result.out.count(); ++i) loss += data.dout[i] * result.out[i];
  for (Index i = 0; i < result.state.count(); ++i) loss += data.dstate[i] * result.state[i];
  return loss;
}

TEST(recurrence_backward, the_plain_gradients_are_slopes) {
  for (const Rule& rule : rules()) {
    auto data = widened(data_of(rule, 5));
    const auto gradients = reference::linear_recurrence_backward(data.dout, data.inputs(), data.dstate);
    const auto expect = [&](const char* name, const Tensor<double>& gradient, Tensor<double>& x) {
      expect_element_slopes(
          rule.name + ": " + name, gradient, x, [&] { return loss_of(data); }, 1e-7);
    };
    expect("dq", gradients.dq, data.q);
    expect("dk", gradients.dk, data.k);
    expect("dv", gradients.dv, data.v);
    expect("ddecay", gradients.ddecay, data.decay);
    expect("dbeta", gradients.dbeta, data.beta);
    expect("dstate", gradients.dstate, data.state);
  }
}

void expect_close(const Tensor<float>& got, const Tensor<double>& wanted, const std::string& name) {
  ASSERT_EQ(got.shape(), wanted.shape()) << name;
  const auto off = errors(got, wanted);
  EXPECT_LE(off.largest_error, 3e-6 * off.largest_value + 1e-12) << name;
}

// Lengths within a chunk, at its end, and over several.
TEST(recurrence_backward, the_kernels_follow_the_plain_definition) {
  for (const Rule& rule : rules())
    for (const Index len : {1, 63, 64, 65, 150}) {
      const auto data = data_of(rule, len);
      const auto wide = widened(data);
      const std::string name = rule.name + " of " + std::to_string(len);
      const auto forward = linear_recurrence(data.inputs());
      const auto right = reference::linear_recurrence(wide.inputs());
      expect_close(forward.out, right.out, name + ": out");
      expect_close(forward.state, right.state, name + ": state");
      const auto got = linear_recurrence_backward(data.dout, data.inputs(), data.dstate);
      const auto wanted = reference::linear_recurrence_backward(wide.dout, wide.inputs(), wide.dstate);
      expect_close(got.dq, wanted.dq, name + ": dq");
      expect_close(got.dk, wanted.dk, name + ": dk");
      expect_close(got.dv, wanted.dv, name + ": dv");
      expect_close(got.ddecay, wanted.ddecay, name + ": ddecay");
      expect_close(got.dbeta, wanted.dbeta, name + ": dbeta");
      expect_close(got.dstate, wanted.dstate, name + ": dstate");
    }
}

// Two pieces: the second's gradient of its first state is what the first gets for its last.
TEST(recurrence_backward, pieces_pass_the_gradient_of_the_state_on) {
  const Rule rule{"gated delta", key_dim, kv_heads, true};
  const auto data = data_of(rule, 100);
  const auto whole = linear_recurrence_backward(data.dout, data.inputs(), data.dstate);
  const auto piece = [&](Index begin, Index end) {
    auto in = data.inputs();
    for (auto* view : {&in.q, &in.k, &in.v, &in.decay}) *view = view->slice(2, begin, end);
    in.beta = in.beta.slice(2, begin, end);
    return in;
  };
  const View<const float, 4> dout = data.dout;
  auto rest = piece(40, 100);
  const auto middle = linear_recurrence(piece(0, 40)).state;
  rest.state = middle;
  const auto second = linear_recurrence_backward(dout.slice(2, 40, 100), rest, data.dstate);
  const auto first = linear_recurrence_backward(dout.slice(2, 0, 40), piece(0, 40), second.dstate);
  expect_close(first.dk, widen(packed(View<const float, 4>(whole.dk).slice(2, 0, 40))), "dk of the first piece");
  expect_close(second.dk, widen(packed(View<const float, 4>(whole.dk).slice(2, 40, 100))), "dk of the second piece");
  expect_close(first.dstate, widen(whole.dstate), "dstate");
}

TEST(recurrence_backward, bits_do_not_depend_on_threads) {
  const auto data = data_of({"gated delta", 1, 1, true}, 130);
  set_threads(1);
  const auto one = linear_recurrence_backward(data.dout, data.inputs());
  set_threads(3);
  const auto three = linear_recurrence_backward(data.dout, data.inputs());
  set_threads(0);
  EXPECT_TRUE(testing::same_bits(one.dk, three.dk));
  EXPECT_TRUE(testing::same_bits(one.ddecay, three.ddecay));
  EXPECT_TRUE(testing::same_bits(one.dbeta, three.dbeta));
  EXPECT_TRUE(testing::same_bits(one.dstate, three.dstate));
}

TEST(recurrence_backward, what_was_not_given_has_no_gradient_and_what_does_not_fit_is_named) {
  const auto data = data_of({"plain"}, 5);
  const auto gradients = linear_recurrence_backward(data.dout, data.inputs());
  EXPECT_TRUE(gradients.ddecay.empty() && gradients.dbeta.empty() && gradients.dstate.empty());
  EXPECT_EQ(message_of([&] { linear_recurrence_backward(data.q, data.inputs()); }),
            "linear_recurrence_backward: dout has shape [2,4,5,4] but needs [2,4,5,3]");
  EXPECT_EQ(message_of([&] { linear_recurrence_backward(data.dout, data.inputs(), data.k); }),
            "linear_recurrence_backward: dstate has shape [2,2,5,4] but needs [2,2,4,3]");
}

}  // namespace
}  // namespace regard
