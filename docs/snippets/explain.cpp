// Which letters did each phoneme come from, by raw weights and by what happens
// without the letter?
#include <algorithm>
#include <cstdio>

#include "regard/explain.h"
#include "regard/model.h"

int main() {
  regard::Model model = regard::load_model("models/phonemes");
  const std::string text = "thought";
  const auto source = model.source_ids(text);
  const regard::AnsweredText answered{source, regard::answer(model, {source}, {}).front().symbols};
  const regard::SymbolScores scores = regard::attribute(*model.network, answered);
  const auto symbols = model.target_symbols(answered.answer);
  const auto strongest = [&](regard::Attribution method, std::size_t symbol) {
    const double* row = scores.of(method).data() + symbol * source.size();
    return text[static_cast<std::size_t>(std::max_element(row, row + source.size()) - row)];
  };
  for (std::size_t i = 0; i < symbols.size(); ++i)
    std::printf("%-2s  weights: %c  ablation: %c\n", symbols[i].c_str(), strongest(regard::Attribution::weights, i),
                strongest(regard::Attribution::ablation, i));
}
