// The code of docs/reformer.md.
#include <cstdio>

#include "regard/reformer.h"

using namespace regard;

namespace {

// Values that show the weights: token i's is the i-th unit vector.
Tensor<float> unit_vectors(Index tokens) {
  Tensor<float> v({1, 1, tokens, tokens});
  for (Index i = 0; i < tokens; ++i) v[i * tokens + i] = 1;
  return v;
}

void who_meets_whom() {
  // Tokens point to one side or to the other, in turns: those of a side share a bucket.
  const Tensor<float> qk({1, 1, 8, 2}, {1, 0, -1, 0, 1, 0, -1, 0, 1, 0, -1, 0, 1, 0, -1, 0});
  const ReformerOptions options{.buckets = 2, .rounds = 1, .chunk = 8};
  const auto weights = reformer_attend(qk, unit_vectors(8), options).out;
  std::printf("who meets whom\n");
  for (Index i = 0; i < 64; ++i) std::printf("%d%s", weights[i] > 0, i % 8 == 7 ? "\n" : "");
}

void one_bucket() {
  const Tensor<float> qk({1, 1, 3, 1}, {1, 1, 1}), v({1, 1, 3, 1}, {0, 2, 4});
  // One bucket and one chunk: exact. No token sees itself while it sees another.
  const auto out = reformer_attend(qk, v, {.buckets = 1, .rounds = 1, .chunk = 3}).out;
  std::printf("means of the others: %.4f %.4f %.4f\n", out[0], out[1], out[2]);
}

}  // namespace

int main() {
  who_meets_whom();
  one_bucket();
}
