// Gradients of a whole model in double held to central differences.
#pragma once

#include "element_slopes.h"
#include "regard/loss.h"
#include "regard/seq2seq.h"

namespace regard::testing {

// Of the training loss with label smoothing 0.1 and the model's dropout, by every weight.
inline void expect_exact_gradients(const std::string& what, Seq2Seq<double>& model, const SourceBatch<double>& source,
                                   const Tensor<std::int64_t>& input, const Tensor<std::int64_t>& target) {
  const auto loss = [&](bool backward) {
    Tape<double> tape(true, 3);
    const auto logits = model.decode(tape, model.encode(tape, source), source.ids, input);
    Tensor<double> gradient;
    const double mean = cross_entropy(logits->value, target, 0, 0.1, &gradient).mean();
    if (backward) tape.backward(logits, std::move(gradient));
    return mean;
  };
  const auto parameters = model.parameters();
  for (auto* p : parameters) p->gradient.fill(0);
  loss(true);
  for (auto* p : parameters)
    expect_element_slopes(
        what + ", " + p->name, Tensor<double>(p->gradient), p->value, [&] { return loss(false); }, 1e-7);
}

}  // namespace regard::testing
