# A build from nothing is the first thing a newcomer waits for.

# Headers that all files of a target read are parsed once. Headers of other
# libraries only: a change of Regard's own rebuilds no more than it must.
function(regard_precompiled target)
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <filesystem> <functional> <memory> <optional>
                                              <span> <string> <vector> ${ARGN})
endfunction()

# For code that parses and prints: large templates of other libraries, and no time
# worth speaking of when it runs.
function(regard_quick target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
