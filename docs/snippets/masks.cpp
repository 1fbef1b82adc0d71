// The code of docs/masks.md: every mask prints its own picture, queries down,
// keys across, 1 = may attend.
#include <cstdio>

#include "regard/attend.h"
#include "regard/sparse_masks.h"

using namespace regard;

namespace {

void show(const char* name, const Mask& mask, Index length = 12) {
  std::printf("%s\n%s\n", name, mask.picture(length, length).c_str());
}

void combine() {
  const Tensor<float> x({1, 1, 4, 2}, {1, 0, 0, 1, 1, 1, 9, 9});  // [batch, heads, tokens, head_dim]
  const Tensor<std::int64_t> ids({1, 4}, {5, 7, 6, 0});           // the last token is padding
  const auto seen = attend(x, x, x, {.mask = causal() & padding(ids, 0), .observe = {.weights = true}});
  std::printf("weights of token 1: %.4f %.4f %.4f %.4f\n", seen.weights[4], seen.weights[5], seen.weights[6],
              seen.weights[7]);
}

void pictures() {
  show("causal", causal());
  show("window", window(2, 1));
  show("sliding", sliding_window(4));

  const Tensor<std::int64_t> ids({1, 12}, {4, 8, 1, 9, 3, 3, 6, 2, 5, 0, 0, 0});
  show("padding", padding(ids, 0));
  show("padding, queries too", padding(ids, ids, 0));

  const Tensor<std::int64_t> documents_of({1, 12}, {0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2});
  show("documents", documents(documents_of) & causal());

  show("prefix", prefix_lm(5));
  show("dilated", dilated_window(3, 0, 2));
  show("strided", strided(4));
  show("fixed", fixed_blocks(4, 1));
  show("longformer", longformer(1, {0, 6}));
  show("big bird", big_bird({.length = 12, .block = 1, .random = 1}));
  show("neighbourhood", neighbourhood({.height = 3, .width = 4}, 1, 1));

  Tensor<std::uint8_t> allowed({12, 12}, 1);
  for (Index i = 0; i < 12; ++i) allowed[i * 12 + i] = 0;
  show("boolean", boolean(allowed.view<2>()));
}

}  // namespace

int main() {
  combine();
  pictures();
}
