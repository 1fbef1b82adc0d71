#include "draw.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "regard/chart.h"
#include "regard/file.h"
#include "table.h"

namespace regard::bench {
namespace {

Chart chart_of(const Table& table, const std::string& title, const std::string& caption) {
  Chart chart{.title = title, .caption = caption, .x = {table.columns[0], AxisScale::log2}};
  for (std::size_t i = 1; i < table.columns.size(); ++i)
    chart.curves.push_back({table.columns[i], table.column(table.columns[0]), table.column(table.columns[i])});
  return chart;
}

void draw(const std::string& folder, const std::string& name, const Chart& chart) {
  write_file(folder + "/" + name + ".svg", figure_chart(chart, FigureFormat::svg, {.width_inches = 4.5}));
}

void draw_error(const std::string& folder, const std::string& name, const std::string& title,
                const std::string& caption, AxisScale knob = AxisScale::log2) {
  Chart chart = chart_of(read_table(folder + "/" + name + ".tsv"), title, caption);
  chart.x.scale = knob;
  chart.y = {"relative error", AxisScale::log10};
  draw(folder, name, chart);
}

// The length from which a curve stays below `exact`, between measured lengths by
// a straight line through their logarithms; 0 where it is below from the first
// length on, infinite where it is not at the last.
double crossover(const std::vector<double>& lengths, const std::vector<double>& exact,
                 const std::vector<double>& times) {
  const auto lead = [&](std::size_t i) { return std::log(times[i] / exact[i]); };
  std::size_t last = lengths.size() - 1;
  if (lead(last) >= 0) return std::numeric_limits<double>::infinity();
  while (last > 0 && lead(last - 1) < 0) --last;
  if (last == 0) return 0;
  const double share = lead(last - 1) / (lead(last - 1) - lead(last));
  return lengths[last - 1] * std::pow(lengths[last] / lengths[last - 1], share);
}

// 1370 as 1400.
int two_digits(double length) {
  const double unit = std::pow(10, std::floor(std::log10(length)) - 1);
  return static_cast<int>(std::lround(length / unit) * std::lround(unit));
}

std::string crossover_row(const Table& table, std::size_t column) {
  const auto lengths = table.column(table.columns[0]), exact = table.column(table.columns[1]);
  const double from = crossover(lengths, exact, table.column(table.columns[column]));
  const double at_end = table.rows.back()[1] / table.rows.back()[column];
  const std::string length = from == 0          ? fmt::format("below {}", lengths.front())
                             : std::isinf(from) ? fmt::format("not up to {}", lengths.back())
                                                : fmt::format("about {}", two_digits(from));
  return fmt::format("{}\t{}\t{}\t{:.1f}\n", table.columns[column], table.columns[1], length, at_end);
}

}  // namespace

void draw_curves(const std::string& folder) {
  const std::string against = "Euclidean norm of the difference from exact attention / norm of the exact output. ";
  draw_error(
      folder, "performer-error", "Performer: error and number of features",
      against + "Random: 1024 tokens, 4 heads of 64. Model: heads of 32 of all encoder layers. Mean of 5 draws.");
  draw_error(folder, "linformer-error", "Linformer: error and number of slots",
             against + "1024 tokens. Averages over equal stretches, and random projections.");
  draw_error(folder, "linformer-words-error", "Linformer: projections fitted to words of 8 letters",
             against + "The model's encoder, all layers and heads.", AxisScale::linear);
  draw_error(folder, "reformer-error", "Reformer: error and number of rounds",
             against + "Exact attention has the same shared queries and keys. 1024 tokens, chunks of 64, 16 buckets.");
  std::string crossovers = "method\tagainst\tfaster from length\ttimes faster at the longest\n";
  for (const auto& [name, title] : {std::pair{"times-full", "Every token sees every token"},
                                    std::pair{"times-causal", "Every token sees itself and earlier ones"}}) {
    const Table table = read_table(folder + "/" + name + ".tsv");
    Chart chart = chart_of(table, title, "8 heads of 64, float32, forward, one thread; best of several.");
    chart.y = {"milliseconds", AxisScale::log10};
    draw(folder, name, chart);
    for (std::size_t column = 2; column < table.columns.size(); ++column) crossovers += crossover_row(table, column);
  }
  write_file(folder + "/crossover.tsv", crossovers);
}

}  // namespace regard::bench
