#include "methods.h"

#include <algorithm>
#include <chrono>

#include "regard/attend.h"
#include "regard/error.h"
#include "regard/layers.h"
#include "regard/linear_recurrence.h"
#include "regard/linformer.h"
#include "regard/performer.h"
#include "regard/random.h"
#include "regard/reformer.h"
#include "regard/relative_attention.h"
#include "regard/rope.h"
#include "regard/sparse_masks.h"

namespace regard::bench {
namespace {

constexpr Index heads = 8, dim = 64;

LinearInputs linear_inputs(const Problem& x) { return {x.q, x.k, x.v}; }

Method exact(const std::string& name, const std::function<Mask(Index)>& mask) {
  return {name, [=](const Problem& x) { attend(x.q, x.k, x.v, {.mask = mask(x.length)}); },
          [=](const Problem& x) {
            const AttendOptions options{.mask = mask(x.length), .observe = {.lse = true}};
            const auto forward = attend(x.q, x.k, x.v, options);
            attend_backward(x.dout, x.q, x.k, x.v, {forward.out.view<4>(), forward.lse.view<3>()}, options);
          },
          mask};
}

Mask documents_of(Index length, Index each) {
  Tensor<std::int64_t> ids({1, length});
  for (Index j = 0; j < length; ++j) ids[j] = j / each;
  return documents(std::as_const(ids).view<2>());
}

Method linear(const std::string& name, bool causal) {
  return {name, [=](const Problem& x) { linear_attend(linear_inputs(x), {.causal = causal}); },
          [=](const Problem& x) {
            linear_attend_backward(x.dout, linear_inputs(x), linear_attend(linear_inputs(x), {.causal = causal}),
                                   {.causal = causal});
          }};
}

Method performer(const std::string& name, bool causal) {
  const auto features = performer_features(256, dim, 1);
  return {name, [=](const Problem& x) { performer_attend(linear_inputs(x), features, {.causal = causal}); },
          [=](const Problem& x) {
            const auto forward = performer_attend(linear_inputs(x), features, {.causal = causal});
            performer_attend_backward(x.dout, linear_inputs(x), features, forward, {.causal = causal});
          }};
}

Method linformer() {
  const auto inputs = [](const Problem& x) {
    static const Tensor<float> table = normal({2, 256, 16384}, 5, 0.05);
    return LinformerInputs<float>{x.q, x.k, x.v, {table.view<3>().slice(0, 0, 1), table.view<3>().slice(0, 1, 2)}};
  };
  return {"linformer", [=](const Problem& x) { linformer_attend(inputs(x)); },
          [=](const Problem& x) { linformer_attend_backward(x.dout, inputs(x), linformer_attend(inputs(x))); }};
}

Method reformer() {
  const auto options = [](const Problem& x) {
    return ReformerOptions{.buckets = std::max<Index>(2, x.length / 64), .rounds = 4, .chunk = 64};
  };
  return {"reformer", [=](const Problem& x) { reformer_attend(x.q, x.v, options(x)); },
          [=](const Problem& x) {
            reformer_attend_backward(x.dout, x.q, x.v, reformer_attend(x.q, x.v, options(x)), options(x));
          }};
}

// Clipped at 16, or a vector for every distance.
Method relative(const std::string& name, bool every_distance) {
  const auto run = [=](const Problem& x, bool backward) {
    const Index first = every_distance ? -(x.length - 1) : -16, distances = every_distance ? x.length : 33;
    // Any numbers do: the tables lie in the keys and values.
    RelativeInputs in{x.q, x.k, x.v, {.first = first, .keys = x.k.view<4>()[0].slice(1, 0, distances)}, {}};
    if (every_distance)
      in.options.mask = causal();
    else
      in.terms.keys = in.terms.keys.slice(0, 0, 1),
      in.terms.values = x.v.view<4>()[0].slice(0, 0, 1).slice(1, 0, distances);
    const auto forward = relative_attend(in.q, in.k, in.v, in.terms, in.options);
    if (backward) relative_attend_backward(x.dout, in, forward);
  };
  return {name, [=](const Problem& x) { run(x, false); }, [=](const Problem& x) { run(x, true); }};
}

// A layer with its four projections of width 512, as peers have it. E and F are
// shared among heads, so tokens are projected to slots before they are projected
// to keys and values: (E X) W is E (X W), and takes slots instead of tokens
// through W.
struct LinformerLayer {
  static constexpr Index slots = 256;
  explicit LinformerLayer(Index n) : length(n) {}
  Index length;
  Random random{6};
  Linear<float> query = projection("query", false), key = projection("key", false), value = projection("value", false),
                output = projection("output", true);
  Tensor<float> to_slots = normal({1, 2 * slots, length}, 5, 0.05);  // E, then F

  Linear<float> projection(const char* name, bool bias) { return {name, heads * dim, heads * dim, random, bias}; }

  // y [1, tokens, heads * dim], head by head.
  static View<const float, 4> split(const Var<float>& y) {
    return {y->value.data(), {1, heads, y->value.size(1), dim}, {0, dim, heads * dim, 1}};
  }

  Tensor<float> forward(const Tensor<float>& input) {
    Tape<float> tape;
    Linear<float> tokens;  // slots x tokens times tokens x width: the input stands where a layer has its weights
    tokens.weight.value = input;
    tokens.weight.value.reshape({length, heads * dim});
    const auto in_slots = tokens.forward(tape, tape.node(to_slots));
    const auto half = [&](Index which) {
      return tape.node(packed(in_slots->value.view<3>().slice(1, which * slots, (which + 1) * slots)));
    };
    const auto k = key.forward(tape, half(0)), v = value.forward(tape, half(1));
    tokens.weight.value.reshape({1, length, heads * dim});
    const auto q = query.forward(tape, tape.node(std::move(tokens.weight.value)));
    auto attended = Tensor<float>::uninitialised({1, length, heads * dim});
    attend_into(View<float, 4>{attended.data(), {1, heads, length, dim}, {0, dim, heads * dim, 1}}, split(q), split(k),
                split(v));
    return std::move(output.forward(tape, tape.node(std::move(attended)))->value);
  }
};

Method linformer_layer() {
  const auto layer = std::make_shared<std::unique_ptr<LinformerLayer>>();
  return {"linformer_layer", [layer](const Problem& problem) {
            if (!*layer || (*layer)->length != problem.length)
              *layer = std::make_unique<LinformerLayer>(problem.length);
            (*layer)->forward(problem.q);
          }};
}

}  // namespace

Tensor<float> normal(Shape shape, std::uint64_t seed, double size) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(size * random.normal());
  return tensor;
}

Problem::Problem(Index n)
    : length(n),
      q(normal({1, heads, n, dim}, 1)),
      k(normal({1, heads, n, dim}, 2)),
      v(normal({1, heads, n, dim}, 3)),
      dout(normal({1, heads, n, dim}, 4)) {}

double visible_share(const Mask& mask, Index length) {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(length));
  double pairs = 0;
  for (Index i = 0; i < length; ++i) {
    mask.fill({0, 0, i, 1, 0, length, 0}, row.data(), length);
    pairs += static_cast<double>(std::count(row.begin(), row.end(), std::uint8_t{1}));
  }
  return pairs / (static_cast<double>(length) * static_cast<double>(length));
}

std::vector<Method> methods() {
  const auto rope = [](const Problem& x) {
    Tensor<float> out(x.q.shape());
    rotate(out, x.q, rope_table<float>(rope_frequencies(dim), 0, x.length));
  };
  const auto recurrence = [](const Problem& x) { linear_recurrence({x.q, x.k, x.v}); };
  return {exact("full", [](Index) { return all_visible(); }),
          exact("causal", [](Index) { return causal(); }),
          exact("window256", [](Index) { return sliding_window(256); }),
          exact("dilated", [](Index) { return dilated_window(64, 0, 4); }),
          exact("strided128", [](Index) { return strided(128); }),
          exact("fixed128", [](Index) { return fixed_blocks(128, 8); }),
          exact("longformer",
                [](Index) {
                  return longformer(128, {0, 1, 2, 3});
                }),
          exact("bigbird", [](Index n) { return big_bird({.length = n}); }),
          exact("documents512", [](Index n) { return documents_of(n, 512); }),
          exact("grid64r5",
                [](Index n) {
                  return neighbourhood({n / 64, 64, 0}, 5, 5);
                }),
          exact("prefix_lm", [](Index n) { return prefix_lm(n / 4); }),
          linear("linear", false),
          linear("linear_causal", true),
          performer("performer", false),
          performer("performer_causal", true),
          linformer(),
          reformer(),
          relative("shaw", false),
          relative("transformer_xl", true),
          linformer_layer(),
          {"rope", rope},
          {"recurrence", recurrence}};
}

std::vector<Method> methods_named(const std::vector<std::string>& names) {
  const auto all = methods();
  if (names.empty()) return all;
  std::vector<Method> found;
  for (const std::string& name : names) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const Method& method) { return method.name == name; });
    if (at == all.end()) {
      std::string known;
      for (const Method& method : all) known += " " + method.name;
      throw ArgumentError("no method '" + name + "'; there are" + known);
    }
    found.push_back(*at);
  }
  return found;
}

std::vector<double> best_milliseconds(const std::vector<std::function<void()>>& calls, int rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> best(calls.size(), 1e300);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < calls.size(); ++i)
      for (double total = 0; total < 100;) {
        const auto start = Clock::now();
        calls[i]();
        const double time = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
        best[i] = std::min(best[i], time);
        total += time;
      }
  return best;
}

}  // namespace regard::bench
