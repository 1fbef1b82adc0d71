// The committed tables of docs/curves: tab-separated, one row a setting, the
// first column the knob.
#pragma once

#include <string>
#include <vector>

#include "regard/tensor.h"

namespace regard::bench {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<double>> rows;  // as many numbers as columns

  // Throws ArgumentError where there is no such column.
  std::vector<double> column(const std::string& name) const;
};

std::string table_text(const Table& table);
// Throws FileError naming the file and the line that is no row of numbers.
Table read_table(const std::string& path);

}  // namespace regard::bench
