#include "regard/loss.h"

#include <algorithm>
#include <cmath>

#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

struct RowLoss {
  Index classes;
  double smoothing;

  // The loss of one row; with `gradient`, also softmax - target distribution.
  template <class T>
  double operator()(const T* logits, std::int64_t target, T* gradient, T factor) const {
    const T largest = *std::max_element(logits, logits + classes);
    T sum = 0, total = 0;
    for (Index c = 0; c < classes; ++c) {
      sum += std::exp(logits[c] - largest);
      total += logits[c];
    }
    const T lse = largest + std::log(sum);
    const T share = static_cast<T>(smoothing / static_cast<double>(classes));
    if (gradient) {
      for (Index c = 0; c < classes; ++c) gradient[c] = factor * (std::exp(logits[c] - lse) - share);
      gradient[target] -= factor * static_cast<T>(1.0 - smoothing);
    }
    const double of_target = static_cast<double>(lse - logits[target]);
    const double of_all = static_cast<double>(lse) - static_cast<double>(total) / static_cast<double>(classes);
    return (1.0 - smoothing) * of_target + smoothing * of_all;
  }
};

}  // namespace

template <class T>
Loss cross_entropy(const Tensor<T>& logits, const Tensor<std::int64_t>& targets, std::int64_t ignore, double smoothing,
                   Tensor<T>* gradient) {
  const Index classes = logits.size(-1), rows = detail::row_count(logits);
  if (rows != targets.count())
    throw ArgumentError("cross_entropy: logits " + logits.text() + " but targets " + targets.text());
  Loss loss;
  for (std::int64_t target : targets.values()) {
    if (target == ignore) continue;
    if (target < 0 || target >= classes)
      throw ArgumentError("cross_entropy: target " + std::to_string(target) + " is outside the " +
                          std::to_string(classes) + " classes");
    ++loss.tokens;
  }
  if (gradient) *gradient = Tensor<T>(logits.shape());
  const T factor = loss.tokens == 0 ? T{0} : T{1} / static_cast<T>(loss.tokens);
  Tensor<double> sums({rows});
  const RowLoss row_loss{classes, smoothing};
  detail::parallel_rows(rows, 16 * classes, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row)
      if (targets[row] != ignore)
        sums[row] = row_loss(logits.data() + row * classes, targets[row],
                             gradient ? gradient->data() + row * classes : nullptr, factor);
  });
  for (double sum : sums.values()) loss.sum += sum;
  return loss;
}

template Loss cross_entropy(const Tensor<float>&, const Tensor<std::int64_t>&, std::int64_t, double, Tensor<float>*);
template Loss cross_entropy(const Tensor<double>&, const Tensor<std::int64_t>&, std::int64_t, double, Tensor<double>*);

}  // namespace regard
