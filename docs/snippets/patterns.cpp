// Names the patterns of attention over 4,096 tokens without ever holding the
// 4096 x 4096 matrix.
#include <cstdio>

#include "regard/attend.h"
#include "regard/patterns.h"
#include "regard/random.h"

int main() {
  const regard::Index n = 4096, heads = 2, dim = 64, window = 2;
  regard::Tensor<float> q({1, heads, n, dim}), k({1, heads, n, dim}), v({1, heads, n, dim});
  regard::Random random(1);
  for (auto* x : {&q, &k, &v})
    for (float& value : x->values()) value = static_cast<float>(random.normal());
  // Head 1 looks at the token before: its query is 4 times that token's key.
  for (regard::Index i = 1; i < n; ++i)
    for (regard::Index d = 0; d < dim; ++d) q[(n + i) * dim + d] = 4 * k[(n + i - 1) * dim + d];

  const auto seen = regard::attend(q, k, v,
                                   {.mask = regard::causal(),
                                    .observe = {.entropy = true,
                                                .distance = true,
                                                .top_k = 1,
                                                .key_mass = regard::QueryRange{},
                                                .diagonals = regard::OffsetRange{-window, window}}});
  regard::HeadObservations observed{seen.diagonal_mass, seen.key_mass,    seen.distance,
                                    seen.entropy,       seen.top_weights, {}};
  for (auto* part :
       {&observed.diagonals, &observed.key_mass, &observed.distance, &observed.entropy, &observed.top_weight})
    part->reshape({heads, part->count() / heads});

  const regard::PatternSetting setting{
      .q_len = n, .kv_len = n, .visible = [](regard::Index query, std::uint8_t* visible) {
        for (regard::Index key = 0; key < n; ++key) visible[key] = key <= query;
      }};
  for (const auto& head : regard::name_patterns(observed, setting, {.window = window}))
    std::printf("%s: %.2f\n", regard::pattern_name(head.label), head.label_score());
}
