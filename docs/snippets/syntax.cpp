// The code of docs/syntax.md: a sentence's tree as mask and as bias, and keys that
// are chosen in runs.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "regard/attend.h"
#include "regard/chain_attention.h"
#include "regard/conllu.h"
#include "regard/pair_bias.h"
#include "regard/tree.h"

using namespace regard;

namespace {

TreeSentence sentence() {
  const std::string text =
      "1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n"
      "2\tcat\tcat\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
      "3\tsat\tsit\tVERB\t_\t_\t0\troot\t_\t_\n"
      "4\ton\ton\tADP\t_\t_\t5\tcase\t_\t_\n"
      "5\tmats\tmat\tNOUN\t_\t_\t3\tobl\t_\t_\n";
  return parse_conllu(text, "the page").front();  // read_conllu(path) reads a file
}

void as_mask(const Tensor<std::int32_t>& distances) {
  const auto near = tree_neighbours(distances, 1);  // a word, its governor and its dependents
  std::printf("%s\n", boolean(near.view<2>()).picture(5, 5).c_str());
}

void as_bias(const Tensor<std::int32_t>& distances) {
  const Tensor<float> q({1, 1, 5, 4}), v({1, 1, 5, 1}, {1, 2, 3, 4, 5});
  const Tensor<float> table({3, 1}, {0, 0, std::log(0.5f)});  // distance 0, 1, 2 and farther; one head
  const AttendOptions options{.score = pair_bias(table, distances), .observe = {.lse = true, .weights = true}};
  const auto seen = attend(q, q, v, options);
  std::printf("'sat' attends %.3f %.3f %.3f %.3f %.3f\n", seen.weights[10], seen.weights[11], seen.weights[12],
              seen.weights[13], seen.weights[14]);
  const Tensor<float> dout({1, 1, 5, 1}, {0, 0, 1, 0, 0});
  const auto gradients = attend_backward(dout, q, q, v, {seen.out.view<4>(), seen.lse.view<3>()}, options);
  for (double slope : gradients.dparameters[0]) std::printf("%.5f ", slope);
  std::printf("d(out of 'sat') / d(table)\n");
}

void as_chain() {
  const Tensor<float> q({1, 1, 1, 1}, {1}), v({1, 1, 7, 1});
  const Tensor<float> k({1, 1, 7, 1}, {-2, 2, 0, 2, -2, 2, -2});  // the scores themselves, as q is 1
  for (const float both_on : {0.0f, 4.0f, -4.0f}) {
    const Tensor<float> links({1, 2, 2}, {0, 0, 0, both_on});
    const auto seen = chain_attend({q, k, v, links, 1.0}, true);
    std::printf("link %2.0f:", static_cast<double>(both_on));
    for (float p : seen.marginals.values()) std::printf(" %.2f", static_cast<double>(p));
    std::printf("\n");
  }
}

}  // namespace

int main() {
  const auto distances = tree_distances(sentence().heads());
  as_mask(distances);
  as_bias(distances);
  as_chain();
}
