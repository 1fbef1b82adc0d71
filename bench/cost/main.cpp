// Experiments of docs/cost.md and docs/scaling.md. `make cost-experiments` runs
// all of them; `cost_experiments` alone says how.
#include <fmt/core.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "draw.h"
#include "recall.h"
#include "regard/file.h"
#include "regard/tensor.h"
#include "scaling.h"

namespace {

using namespace regard;
using namespace regard::bench;

constexpr const char* usage =
    "cost_experiments scaling FOLDER   scores with and without 1 / sqrt(d_k), training with and without clipping:\n"
    "                                  scaling.tsv, clipping.tsv\n"
    "cost_experiments recall FOLDER    accuracy of attention and an LSTM against distance: recall.tsv, copy.tsv\n"
    "Threads: REGARD_THREADS.\n";

void recall(const std::string& folder) {
  const KeepMemory keep;
  for (const auto& [name, task] : {std::pair{"recall", RecallTask::recall}, {"copy", RecallTask::copy}})
    write_file(fmt::format("{}/{}.tsv", folder, name), table_text(recall_table(task, {})));
  draw_recall(folder);
}

void scaling(const std::string& folder) {
  const KeepMemory keep;
  write_file(folder + "/scaling.tsv", table_text(scaling_table()));
  write_file(folder + "/clipping.tsv", table_text(clipping_table()));
  draw_scaling(folder);
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const std::map<std::string, std::function<void(const std::string&)>> commands{{"recall", recall},
                                                                                {"scaling", scaling}};
  const auto command = words.size() == 2 ? commands.find(words[0]) : commands.end();
  if (command == commands.end()) {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  try {
    command->second(words[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cost_experiments: {}\n", error.what());
    return 1;
  }
}
