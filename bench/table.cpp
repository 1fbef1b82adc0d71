#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "regard/error.h"
#include "regard/file.h"

namespace regard::bench {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '\t');) cells.push_back(cell);
  return cells;
}

}  // namespace

std::vector<double> Table::column(const std::string& name) const {
  const auto at = std::find(columns.begin(), columns.end(), name);
  if (at == columns.end()) throw ArgumentError("the table has no column '" + name + "'");
  std::vector<double> numbers;
  for (const auto& row : rows) numbers.push_back(row[static_cast<std::size_t>(at - columns.begin())]);
  return numbers;
}

std::string table_text(const Table& table) {
  std::string text = fmt::format("{}\n", fmt::join(table.columns, "\t"));
  for (const auto& row : table.rows) {
    std::vector<std::string> cells;
    // Counts are never rounded.
    for (double number : row)
      cells.push_back(number == std::floor(number) ? fmt::format("{:.15g}", number) : fmt::format("{:.4g}", number));
    text += fmt::format("{}\n", fmt::join(cells, "\t"));
  }
  return text;
}

Table read_table(const std::string& path) {
  std::istringstream file(read_file(path));
  Table table;
  std::string line;
  std::getline(file, line);
  table.columns = cells_of(line);
  for (int number = 2; std::getline(file, line); ++number) {
    std::vector<double> row;
    try {
      for (const std::string& cell : cells_of(line)) row.push_back(std::stod(cell));
    } catch (const std::exception&) {
      row.clear();
    }
    if (row.empty() || row.size() != table.columns.size())
      throw FileError(fmt::format("{}: line {} does not hold {} numbers", path, number, table.columns.size()));
    table.rows.push_back(row);
  }
  if (table.rows.empty()) throw FileError(path + ": there is no row");
  return table;
}

}  // namespace regard::bench
