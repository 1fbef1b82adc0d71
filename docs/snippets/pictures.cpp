// Reads a drawn string and says where each of its characters was read.
#include <algorithm>
#include <cstdio>

#include "regard/drawn_text.h"
#include "regard/model.h"

int main() {
  const regard::Model model = regard::load_model("models/glyphs");
  const regard::DrawnText drawn = regard::TextDrawer().draw("regard7", {.font = "DejaVu Serif"});
  const auto patches = model.patches(drawn.picture);
  const auto ids = regard::answer_pictures(model, {&patches}, {}).front().symbols;
  const auto symbols = model.target_symbols(ids);
  std::printf("%s\n", model.answer_text(symbols).c_str());

  // Head 0 of the middle layer points best.
  const regard::Trace trace = regard::record_picture_trace(model, drawn.picture, ids);
  const auto& weights = trace.find(regard::AttentionKind::cross, 1)->weights;  // [heads, characters + end, patches]
  const regard::Index keys = weights.size(2);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const float* row = weights.data() + static_cast<regard::Index>(i) * keys;
    const auto patch = std::max_element(row, row + keys) - row;
    std::printf("%s  drawn from pixel %3.0f to %3.0f, read in the patch at %s\n", symbols[i].c_str(),
                drawn.characters[i].left, drawn.characters[i].right,
                trace.source[static_cast<std::size_t>(patch)].c_str());
  }
}
