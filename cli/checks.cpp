#include "checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "commands.h"

namespace regard::cli {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

// `holds` is asked about finite numbers only; `bound` completes "X is not ...".
template <class Holds>
CLI::Validator finite_number(const std::string& bound, const std::string& shown, Holds holds) {
  const auto check = [bound, holds](std::string& text) {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return "'" + text + "' is not a number";
    if (!std::isfinite(value)) return text + " is not a finite number";
    return holds(value) ? std::string() : text + " is not " + bound;
  };
  return CLI::Validator(check, shown);
}

}  // namespace

CLI::Validator at_least(double least) {
  return finite_number(fmt::format("at least {}", least), fmt::format(">= {}", least),
                       [least](double value) { return value >= least; });
}

CLI::Validator above(double bound) {
  return finite_number(fmt::format("above {}", bound), fmt::format("> {}", bound),
                       [bound](double value) { return value > bound; });
}

CLI::Validator between(double least, double most) {
  return finite_number(fmt::format("between {} and {}", least, most), fmt::format("in [{} - {}]", least, most),
                       [least, most](double value) { return value >= least && value <= most; });
}

CLI::Validator unsigned_number() {
  const auto check = [](std::string& text) {
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure == std::errc() && end == text.data() + text.size()) return std::string();
    return fmt::format("{} is not a whole number from 0 to {}", text, largest);
  };
  return CLI::Validator(check, fmt::format("in [0 - {}]", largest));
}

CLI::Validator output_path() {
  const auto check = [](std::string& text) {
    return text.empty() || text == "-" ? std::string("name a file; /dev/stdout is the standard output") : std::string();
  };
  return CLI::Validator(check, "");
}

void drop_repeats(std::vector<std::string>& names) {
  std::vector<std::string> once;
  for (std::string& name : names)
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(std::move(name));
  names = std::move(once);
}

void refuse_same_file(const std::string& in, const std::string& out, const std::string& flag) {
  std::error_code failure;  // an output that is not there yet
  if (std::filesystem::is_regular_file(out, failure) && std::filesystem::equivalent(in, out, failure))
    throw UsageError(flag + ": " + out + " is the file that is read: name another");
}

}  // namespace regard::cli
