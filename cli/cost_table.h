// What `regard cost` shows: formulas and measurements side by side, as text and
// as charts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regard/chart.h"
#include "regard/cost.h"

namespace regard::cli {

// One method at all lengths.
struct CostCurves {
  std::vector<MethodCost> formula;
  std::vector<std::vector<MeasuredStep>> measured;  // empty lists where nothing was

  const std::string& name() const { return formula.front().method; }
  // Null where the step was not measured.
  const MeasuredStep* measured_step(std::size_t at, const std::string& step) const;
};

struct CostTable {
  std::vector<Index> lengths;
  std::vector<CostCurves> methods;
};

// Over the lengths at which it was measured.
std::optional<double> time_exponent(const CostTable& table, const CostCurves& curves, const std::string& step);
std::optional<double> flops_exponent(const CostTable& table, const CostCurves& curves, const std::string& step);

// Columns of the table with a single length.
int narrowest_table(bool measured);

// One line a step, a group of columns a length; as many lengths beside one
// another as `width` columns take.
std::string cost_text(const CostTable& table, bool measured, int width);

// Operations of the layers.
Chart formula_chart(const CostTable& table, const std::string& caption);
// Milliseconds of the layers, beside their operations at a rate.
Chart measured_chart(const CostTable& table, double gflops, const std::string& caption);

}  // namespace regard::cli
