// Checks of numbers on the command line. CLI11's own ranges write the largest
// double out in 309 digits and let NaN pass.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace regard::cli {

// `--rate: 0 is not above 0`; neither NaN nor infinity passes any of them.
CLI::Validator at_least(double least);
CLI::Validator above(double bound);
CLI::Validator between(double least, double most);

// What fits 64 bits without a sign; CLI11 itself would take -1 for 2^64 - 1.
CLI::Validator unsigned_number();

// A path that is written to. "-" is one, and never meant as one; an empty one
// comes from a variable without a value.
CLI::Validator output_path();

// Named twice is shown once.
void drop_repeats(std::vector<std::string>& names);

// Throws UsageError when `out`, which `flag` names, is the file that was read, under
// whatever name.
void refuse_same_file(const std::string& in, const std::string& out, const std::string& flag = "--out");

}  // namespace regard::cli
