// Which SIMD code runs. The best instruction set of the processor is chosen at
// run time; REGARD_CPU=NAME in the environment or set_instruction_set force one.
#pragma once

#include <string>
#include <vector>

namespace regard {

// Names this processor can run, best first; "portable" is always the last.
std::vector<std::string> instruction_sets();

// The one in use.
std::string instruction_set();

// Forces one of instruction_sets(), in any case, for the whole process ("" goes
// back to the best). Not to be called while attention runs. Throws ArgumentError, listing
// the names, for one this processor can't run.
void set_instruction_set(const std::string& name);

}  // namespace regard
