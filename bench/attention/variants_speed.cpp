// variants_speed N METHOD...: milliseconds of one forward pass (and one with the
// backward pass where there is one), best of several; 8 heads of 64, batch 1, as
// many threads as REGARD_THREADS says. Masks also get the share of pairs they
// show, and how many times that share of the time without a mask they take.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "regard/attend.h"
#include "regard/linear_recurrence.h"
#include "regard/linformer.h"
#include "regard/nystrom.h"
#include "regard/performer.h"
#include "regard/random.h"
#include "regard/reformer.h"
#include "regard/relative_attention.h"
#include "regard/rope.h"
#include "regard/sparse_masks.h"

namespace {

using namespace regard;

constexpr Index heads = 8, dim = 64;

Tensor<float> normal(Shape shape, std::uint64_t seed, double size = 1) {
  Tensor<float> tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values()) value = static_cast<float>(size * random.normal());
  return tensor;
}

double milliseconds(const std::function<void()>& work) {
  double best = 1e300, total = 0;
  for (int run = 0; run < 30 && (run < 2 || total < 1500); ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const double time = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, time);
    total += time;
  }
  return best;
}

struct Data {
  explicit Data(Index n)
      : length(n),
        q(normal({1, heads, n, dim}, 1)),
        k(normal({1, heads, n, dim}, 2)),
        v(normal({1, heads, n, dim}, 3)),
        dout(normal({1, heads, n, dim}, 4)) {}
  LinearInputs linear() const { return {q, k, v}; }
  Index length;
  Tensor<float> q, k, v, dout;
};

struct Method {
  std::string name;
  std::function<void(const Data&)> forward, both;
  std::function<Mask(Index)> mask = {};
};

Method exact(const std::string& name, const std::function<Mask(Index)>& mask) {
  return {name, [=](const Data& x) { attend(x.q, x.k, x.v, {.mask = mask(x.length)}); },
          [=](const Data& x) {
            const AttendOptions options{.mask = mask(x.length), .observe = {.lse = true}};
            const auto forward = attend(x.q, x.k, x.v, options);
            attend_backward(x.dout, x.q, x.k, x.v, {forward.out.view<4>(), forward.lse.view<3>()}, options);
          },
          mask};
}

// Visible pairs over all pairs, of head 0.
double visible_share(const Mask& mask, Index length) {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(length));
  double pairs = 0;
  for (Index i = 0; i < length; ++i) {
    mask.fill({0, 0, i, 1, 0, length, 0}, row.data(), length);
    pairs += static_cast<double>(std::count(row.begin(), row.end(), std::uint8_t{1}));
  }
  return pairs / (static_cast<double>(length) * static_cast<double>(length));
}

Mask documents_of(Index length, Index each) {
  Tensor<std::int64_t> ids({1, length});
  for (Index j = 0; j < length; ++j) ids[j] = j / each;
  return documents(std::as_const(ids).view<2>());
}

Method linear(const std::string& name, bool causal) {
  return {name, [=](const Data& x) { linear_attend(x.linear(), {.causal = causal}); },
          [=](const Data& x) {
            linear_attend_backward(x.dout, x.linear(), linear_attend(x.linear(), {.causal = causal}),
                                   {.causal = causal});
          }};
}

Method performer(const std::string& name, bool causal) {
  const auto features = performer_features(256, dim, 1);
  return {name, [=](const Data& x) { performer_attend(x.linear(), features, {.causal = causal}); },
          [=](const Data& x) {
            const auto forward = performer_attend(x.linear(), features, {.causal = causal});
            performer_attend_backward(x.dout, x.linear(), features, forward, {.causal = causal});
          }};
}

Method linformer() {
  const auto inputs = [](const Data& x) {
    static const Tensor<float> table = normal({2, 256, 16384}, 5, 0.05);
    return LinformerInputs<float>{x.q, x.k, x.v, {table.view<3>().slice(0, 0, 1), table.view<3>().slice(0, 1, 2)}};
  };
  return {"linformer", [=](const Data& x) { linformer_attend(inputs(x)); },
          [=](const Data& x) { linformer_attend_backward(x.dout, inputs(x), linformer_attend(inputs(x))); }};
}

Method nystrom() {
  const auto inputs = [](const Data& x) { return NystromInputs<float>{x.q, x.k, x.v, {}}; };
  return {"nystrom", [=](const Data& x) { nystrom_attend(inputs(x)); },
          [=](const Data& x) { nystrom_attend_backward(x.dout, inputs(x), nystrom_attend(inputs(x))); }};
}

Method reformer() {
  const auto options = [](const Data& x) {
    return ReformerOptions{.buckets = std::max<Index>(2, x.length / 64), .rounds = 4, .chunk = 64};
  };
  return {"reformer", [=](const Data& x) { reformer_attend(x.q, x.v, options(x)); },
          [=](const Data& x) {
            reformer_attend_backward(x.dout, x.q, x.v, reformer_attend(x.q, x.v, options(x)), options(x));
          }};
}

// Clipped at 16, or a vector for every distance.
Method relative(const std::string& name, bool every_distance) {
  const auto run = [=](const Data& x, bool backward) {
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
  return {name, [=](const Data& x) { run(x, false); }, [=](const Data& x) { run(x, true); }};
}

std::vector<Method> methods() {
  const auto rope = [](const Data& x) {
    Tensor<float> out(x.q.shape());
    rotate(out, x.q, rope_table<float>(rope_frequencies(dim), 0, x.length));
  };
  const auto recurrence = [](const Data& x) { linear_recurrence({x.q, x.k, x.v}); };
  const auto recurrence_both = [recurrence](const Data& x) {
    recurrence(x);
    linear_recurrence_backward(x.dout, {x.q, x.k, x.v});
  };
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
          nystrom(),
          reformer(),
          relative("shaw", false),
          relative("transformer_xl", true),
          {"rope", rope, {}},
          {"recurrence", recurrence, recurrence_both}};
}

}  // namespace

int main(int count, char** arguments) {
  const Data data(count > 1 ? std::stoll(arguments[1]) : 1024);
  const std::vector<std::string> wanted(arguments + std::min(count, 2), arguments + count);
  double full = 0, full_both = 0;  // the first method's
  for (const Method& method : methods()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), method.name) == wanted.end()) continue;
    const double forward = milliseconds([&] { method.forward(data); });
    fmt::print("{:6} {:18} forward {:9.2f} ms", data.length, method.name, forward);
    const double both = method.both ? milliseconds([&] { method.both(data); }) : 0;
    if (method.both) fmt::print(", with backward {:9.2f} ms", both);
    if (method.name == "full") full = forward, full_both = both;
    if (method.mask && full > 0) {
      const double share = visible_share(method.mask(data.length), data.length);
      fmt::print("; {:7.4f} of all pairs, times their share {:5.2f} and {:5.2f}", share, forward / full / share,
                 both / full_both / share);
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
}
