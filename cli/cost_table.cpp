#include "cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "regard/terminal.h"

namespace regard::cli {
namespace {

constexpr int method_width = 10, step_width = 10, name_width = method_width + step_width;
constexpr int cell = 8, exponent_width = 8;
constexpr int wide_cell = 12;  // whole numbers up to 2^24

int group_width(bool measured) { return cell * (measured ? 5 : 3); }
int width_around(bool measured) { return name_width + exponent_width * (measured ? 2 : 1); }

// "805 M": three digits and a power of a thousand.
std::string short_number(double value) {
  constexpr std::array<const char*, 7> units = {"", " k", " M", " G", " T", " P", " E"};
  std::size_t unit = 0;
  // 999.5 would become 1000 by rounding.
  while (value >= 999.5 && unit + 1 < units.size()) value /= 1000, ++unit;
  if (value == 0) return "0";
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, unit == 0 && value >= 1 ? 0 : digits, units[unit]);
}

std::string milliseconds(double ms) {
  return fmt::format("{:.{}f}", ms, ms >= 100 ? 0 : ms >= 10 ? 1 : ms >= 1 ? 2 : 3);
}

std::string exponent_text(const std::optional<double>& exponent) {
  return exponent ? fmt::format("n^{:.2f}", *exponent) : "-";
}

struct Part {
  std::size_t begin, end;  // lengths
};

// As many lengths as fit, of about equal number.
std::vector<Part> parts_of(const CostTable& table, int group, int around, int width) {
  const auto count = table.lengths.size();
  const auto most = static_cast<std::size_t>(std::max(1, (width - around) / group));
  const std::size_t parts = (count + most - 1) / most;
  std::vector<Part> all;
  for (std::size_t i = 0; i < parts; ++i) all.push_back({count * i / parts, count * (i + 1) / parts});
  return all;
}

std::string head(const CostTable& table, const Part& part, bool measured) {
  const int group = group_width(measured);
  std::string first = fmt::format("{:<{}}", "", name_width);
  std::string second = fmt::format("{:<{}}{:<{}}", "method", method_width, "step", step_width);
  for (std::size_t at = part.begin; at < part.end; ++at) {
    first += fmt::format("{:>{}}", fmt::format("n = {}", table.lengths[at]), group);
    second += fmt::format("{:>{}}{:>{}}{:>{}}", "flop", cell, "moved", cell, "work", cell);
    if (measured) second += fmt::format("{:>{}}{:>{}}", "ms", cell, "peak", cell);
  }
  return fmt::format("{}{:>{}}\n{}{:>{}}{}\n", first, "growth", exponent_width, second, "flop", exponent_width,
                     measured ? fmt::format("{:>{}}", "ms", exponent_width) : "");
}

std::string step_line(const CostTable& table, const CostCurves& curves, std::size_t number, const Part& part,
                      bool measured) {
  const std::string& step = curves.formula[0].steps[number].step;
  std::string line = fmt::format("{:<{}}{:<{}}", number == 0 ? curves.name() : "", method_width, step, step_width);
  for (std::size_t at = part.begin; at < part.end; ++at) {
    const StepCost& cost = curves.formula[at].steps[number];
    for (double value : {cost.flops, cost.bytes, cost.workspace_bytes})
      line += fmt::format("{:>{}}", short_number(value), cell);
    if (!measured) continue;
    const MeasuredStep* time = curves.measured_step(at, step);
    line += fmt::format("{:>{}}", time ? milliseconds(time->ms) : "", cell);
    line += fmt::format("{:>{}}", time && time->peak_bytes ? short_number(*time->peak_bytes) : "", cell);
  }
  line += fmt::format("{:>{}}", exponent_text(flops_exponent(table, curves, step)), exponent_width);
  if (measured && curves.measured_step(part.begin, step))
    line += fmt::format("{:>{}}", exponent_text(time_exponent(table, curves, step)), exponent_width);
  return line + "\n";
}

std::string path_text(const std::optional<double>& layers) {
  if (!layers) return "varies";
  return std::isinf(*layers) ? "never" : fmt::format("{}", *layers);
}

std::string shape_lines(const CostTable& table, int width) {
  std::string text = terminal_wrapped(
      fmt::format("At n = {}, one layer: weights that are learned, steps that wait for one another, and through how "
                  "many layers (positions, of rnn and lstm) the last token hears of the first",
                  table.lengths.back()),
      width);
  text += fmt::format("{:<{}}{:>{}}{:>{}}{:>{}}\n", "method", method_width, "weights", wide_cell, "steps", wide_cell,
                      "path", wide_cell);
  for (const CostCurves& curves : table.methods) {
    const MethodCost& cost = curves.formula.back();
    text += fmt::format("{:<{}}{:>{}}{:>{}}{:>{}}\n", cost.method, method_width, short_number(cost.weights), wide_cell,
                        cost.sequential_steps, wide_cell, path_text(cost.path_length), wide_cell);
  }
  return text;
}

std::vector<double> as_doubles(const std::vector<Index>& numbers) { return {numbers.begin(), numbers.end()}; }

std::vector<double> layer_flops(const CostCurves& curves) {
  std::vector<double> flops;
  for (const MethodCost& cost : curves.formula) flops.push_back(cost.step("layer").flops);
  return flops;
}

}  // namespace

const MeasuredStep* CostCurves::measured_step(std::size_t at, const std::string& step) const {
  for (const MeasuredStep& one : measured[at])
    if (one.step == step) return &one;
  return nullptr;
}

std::optional<double> time_exponent(const CostTable& table, const CostCurves& curves, const std::string& step) {
  std::vector<double> lengths, times;
  for (std::size_t at = 0; at < table.lengths.size(); ++at)
    if (const MeasuredStep* one = curves.measured_step(at, step)) {
      lengths.push_back(static_cast<double>(table.lengths[at]));
      times.push_back(one->ms);
    }
  return fitted_exponent(lengths, times);
}

std::optional<double> flops_exponent(const CostTable& table, const CostCurves& curves, const std::string& step) {
  std::vector<double> flops;
  for (const MethodCost& cost : curves.formula) flops.push_back(cost.step(step).flops);
  return fitted_exponent(as_doubles(table.lengths), flops);
}

int narrowest_table(bool measured) { return group_width(measured) + width_around(measured); }

std::string cost_text(const CostTable& table, bool measured, int width) {
  std::string text;
  for (const Part& part : parts_of(table, group_width(measured), width_around(measured), width)) {
    text += head(table, part, measured);
    for (const CostCurves& curves : table.methods)
      for (std::size_t step = 0; step < curves.formula[0].steps.size(); ++step)
        text += step_line(table, curves, step, part, measured);
    text += "\n";
  }
  return text + shape_lines(table, width);
}

Chart formula_chart(const CostTable& table, const std::string& caption) {
  Chart chart{.title = "Operations and length",
              .caption = caption,
              .x = {"length n", AxisScale::log2},
              .y = {"operations", AxisScale::log10}};
  for (const CostCurves& curves : table.methods)
    chart.curves.push_back({curves.name(), as_doubles(table.lengths), layer_flops(curves)});
  return chart;
}

Chart measured_chart(const CostTable& table, double gflops, const std::string& caption) {
  Chart chart{.title = "Time and length",
              .caption = caption,
              .x = {"length n", AxisScale::log2},
              .y = {"milliseconds", AxisScale::log10}};
  for (const CostCurves& curves : table.methods) {
    Curve curve{.name = curves.name(), .theory_x = as_doubles(table.lengths), .theory_y = layer_flops(curves)};
    for (double& flops : curve.theory_y) flops /= gflops * 1e6;
    for (std::size_t at = 0; at < table.lengths.size(); ++at)
      if (const MeasuredStep* layer = curves.measured_step(at, "layer")) {
        curve.x.push_back(static_cast<double>(table.lengths[at]));
        curve.y.push_back(layer->ms);
      }
    if (!curve.x.empty()) chart.curves.push_back(std::move(curve));
  }
  return chart;
}

}  // namespace regard::cli
