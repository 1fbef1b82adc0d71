#include "draw.h"

#include <cmath>

#include "regard/chart.h"
#include "regard/file.h"
#include "table.h"

namespace regard::bench {
namespace {

void draw(const std::string& path, const Chart& chart) {
  write_file(path, figure_chart(chart, FigureFormat::svg, {.width_inches = 4.5}));
}

// Columns of a table as curves, under names of their own.
struct Column {
  std::string column, name;
};
std::vector<Curve> curves_of(const Table& table, const std::vector<Column>& columns) {
  std::vector<Curve> curves;
  for (const auto& [column, name] : columns)
    curves.push_back({.name = name, .x = table.column(table.columns[0]), .y = table.column(column)});
  return curves;
}

void draw_scores(const std::string& folder) {
  const Table table = read_table(folder + "/scaling.tsv");
  Chart chart{.title = "Scores with and without the division by sqrt(d_k)",
              .caption =
                  "512 random keys, components of variance 1; gradient: Euclidean norm of a row's, with respect "
                  "to its scores. Thin lines: variance d_k, variance 1, entropy ln 512 - 1/2.",
              .x = {"d_k", AxisScale::log2},
              .y = {"variance; nats; norm", AxisScale::log10}};
  chart.curves = curves_of(table, {{"variance, unscaled", "variance, undivided"},
                                   {"variance, scaled", "variance, divided"},
                                   {"entropy, unscaled", "entropy, undivided"},
                                   {"entropy, scaled", "entropy, divided"},
                                   {"median gradient, unscaled", "median gradient, undivided"},
                                   {"median gradient, scaled", "median gradient, divided"},
                                   {"mean gradient, unscaled", "mean gradient, undivided"}});
  const auto theory = [&](std::size_t curve, auto value) {
    chart.curves[curve].theory_x = chart.curves[curve].x;
    for (double d : chart.curves[curve].x) chart.curves[curve].theory_y.push_back(value(d));
  };
  theory(0, [](double d) { return d; });
  theory(1, [](double) { return 1.0; });
  theory(3, [](double) { return std::log(512) - 0.5; });
  draw(folder + "/scaling.svg", chart);
}

void draw_clipping(const std::string& folder) {
  const Table table = read_table(folder + "/clipping.tsv");
  Chart chart{.title = "Clipping gradients at a high learning rate",
              .caption =
                  "Recall at distance 16, AdamW, rate 0.01 from the first step; two layers of width 64 each. Mean "
                  "of 10 runs, of every 10 steps. Clipped: to a norm of 1.",
              .x = {"step"},
              .y = {"loss, nats", AxisScale::log10}};
  for (std::size_t i = 1; i < table.columns.size(); ++i)
    chart.curves.push_back(curves_of(table, {{table.columns[i], table.columns[i]}})[0]);
  draw(folder + "/clipping.svg", chart);
}

}  // namespace

void draw_scaling(const std::string& folder) {
  draw_scores(folder);
  draw_clipping(folder);
}

void draw_recall(const std::string& folder) {
  Chart chart{.title = "What is still known after a distance",
              .caption =
                  "Share of 8 symbols said right; guessing gives 0.125. Two layers of equal size, each trained "
                  "afresh for every distance until 0.99, 4000 steps, or 45 to 123 seconds.",
              .x = {"distance", AxisScale::log2},
              .y = {"accuracy"}};
  for (const char* task : {"recall", "copy"}) {
    const Table table = read_table(folder + "/" + task + ".tsv");
    for (const char* model : {"attention", "lstm"})
      chart.curves.push_back(curves_of(table, {{std::string(model) + ": accuracy",
                                                std::string(task) + ", " + (*model == 'l' ? "LSTM" : model)}})[0]);
  }
  draw(folder + "/recall.svg", chart);
}

}  // namespace regard::bench
