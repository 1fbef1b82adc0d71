// Experiments of docs/cost.md and docs/scaling.md, built by `make
// cost-experiments`; without arguments it says how they are run.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "draw.h"
#include "published.h"
#include "recall.h"
#include "regard/file.h"
#include "regard/tensor.h"
#include "scaling.h"

namespace {

using namespace regard;
using namespace regard::bench;

using Words = std::vector<std::string>;

constexpr const char* usage =
    "cost_experiments scaling FOLDER                scores with and without 1 / sqrt(d_k), training with and without\n"
    "                                               clipping: scaling.tsv, clipping.tsv\n"
    "cost_experiments published FOLDER              Base and Large, counted and timed: published.tsv\n"
    "cost_experiments recall FOLDER [DISTANCE...]   accuracy of attention and an LSTM against distance: recall.tsv,\n"
    "                                               copy.tsv; named distances only take the place of their rows\n"
    "Threads: REGARD_THREADS.\n";

// `old` with the rows of `fresh` in place of those with the same knob, or at its end.
Table with_rows(Table old, const Table& fresh) {
  for (const auto& row : fresh.rows) {
    const auto known = std::find_if(old.rows.begin(), old.rows.end(), [&](const auto& r) { return r[0] == row[0]; });
    if (known == old.rows.end())
      old.rows.push_back(row);
    else
      *known = row;
  }
  return old;
}

void recall(const std::string& folder, const Words& distances) {
  const KeepMemory keep;
  RecallPlan plan;
  if (!distances.empty()) plan.distances.clear();
  for (const std::string& distance : distances) plan.distances.push_back(std::stoll(distance));
  for (const auto& [name, task] : {std::pair{"recall", RecallTask::recall}, {"copy", RecallTask::copy}}) {
    const std::string path = fmt::format("{}/{}.tsv", folder, name);
    const Table table = recall_table(task, plan);
    write_file(path, table_text(distances.empty() ? table : with_rows(read_table(path), table)));
  }
  draw_recall(folder);
}

void scaling(const std::string& folder) {
  const KeepMemory keep;
  write_file(folder + "/scaling.tsv", table_text(scaling_table()));
  write_file(folder + "/clipping.tsv", table_text(clipping_table()));
  draw_scaling(folder);
}

int run(const Words& words) {
  const std::string command = words.size() >= 2 ? words[0] : "";
  if (command == "recall")
    recall(words[1], {words.begin() + 2, words.end()});
  else if (command == "scaling" && words.size() == 2)
    scaling(words[1]);
  else if (command == "published" && words.size() == 2)
    write_file(words[1] + "/published.tsv", table_text(published_table()));
  else {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "cost_experiments: {}\n", error.what());
    return 1;
  }
}
