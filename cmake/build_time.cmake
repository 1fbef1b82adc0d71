# A build from nothing is the first thing a newcomer waits for.

# Headers of the standard library are parsed once for rooms of many files: a second
# less a file. Large headers of other libraries gain nothing that way: what they
# instantiate is compiled again in every file. Regard's own stay out, so that a
# change of them rebuilds no more than it must.
function(regard_precompiled target)
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <filesystem> <functional> <memory> <optional>
                                              <span> <string> <vector>)
endfunction()

# For code that parses and prints: large templates of other libraries, and no time
# worth speaking of when it runs.
function(regard_quick target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
