// Agreement of two orders.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "regard/error.h"
#include "regard/explain.h"

namespace regard {
namespace {

constexpr double undefined = std::numeric_limits<double>::quiet_NaN();

void check_lengths(const char* call, std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size())
    throw ArgumentError(std::string(call) + ": " + std::to_string(a.size()) + " values beside " +
                        std::to_string(b.size()));
}

int sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// Ranks from 0, equals at the mean of theirs.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> found(values.size());
  for (std::size_t first = 0, last; first < order.size(); first = last) {
    for (last = first; last < order.size() && values[order[last]] == values[order[first]];) ++last;
    for (std::size_t i = first; i < last; ++i) found[order[i]] = static_cast<double>(first + last - 1) / 2;
  }
  return found;
}

}  // namespace

double kendall_tau(std::span<const double> a, std::span<const double> b) {
  check_lengths("kendall_tau", a, b);
  double agreeing = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const int x = sign(a[i] - a[j]), y = sign(b[i] - b[j]);
      agreeing += x * y;
      of_a += x * x;
      of_b += y * y;
    }
  return of_a > 0 && of_b > 0 ? agreeing / std::sqrt(of_a * of_b) : undefined;
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  check_lengths("rank_correlation", a, b);
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double middle = (static_cast<double>(a.size()) - 1) / 2;
  double both = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    both += (x[i] - middle) * (y[i] - middle);
    of_a += (x[i] - middle) * (x[i] - middle);
    of_b += (y[i] - middle) * (y[i] - middle);
  }
  return of_a > 0 && of_b > 0 ? both / std::sqrt(of_a * of_b) : undefined;
}

}  // namespace regard
