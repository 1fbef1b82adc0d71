// The code of docs/cost.md.
#include <cstdio>

#include "regard/cost.h"
#include "regard/seq2seq.h"

using namespace regard;

namespace {

void formulas() {
  const MethodCost cost = method_cost("exact", {.n = 2048, .model_dim = 512, .heads = 8});
  std::printf("scores, GFLOP: %.4f\n", 1e-9 * cost.step("scores").flops);
  std::printf("attention, MB moved: %.4f\n", 1e-6 * cost.step("attention").bytes);
  const MethodCost lstm = method_cost("lstm", {.n = 2048, .model_dim = 512});
  std::printf("steps in a row: %.0f %.0f\n", cost.sequential_steps, lstm.sequential_steps);
}

void growth() {
  const auto exponent = [](const char* method) {
    std::vector<double> lengths, flops;
    for (Index n : {4096, 8192, 16384, 32768}) {
      lengths.push_back(static_cast<double>(n));
      flops.push_back(method_cost(method, {.n = n}).step("attention").flops);
    }
    return *fitted_exponent(lengths, flops);
  };
  std::printf("growth of exact, window, performer: %.2f %.2f %.2f\n", exponent("exact"), exponent("window"),
              exponent("performer"));
}

void published() {
  std::printf("weights of Base: %lld\n", static_cast<long long>(weight_count(transformer_base(), 37000, 37000)));
  std::printf("weights of Large: %lld\n", static_cast<long long>(weight_count(transformer_large(), 37000, 37000)));
}

}  // namespace

int main() {
  formulas();
  growth();
  published();
}
