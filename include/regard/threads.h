// Threads: the one door to parallel work.
#pragma once

#include <cstdint>
#include <functional>

namespace regard {

// Number of threads parallel work uses: what set_threads said, else the
// environment variable REGARD_THREADS, else the cores this process may run on.
// Throws ArgumentError where that variable is asked and is not 1 to 1024.
int threads();

// Sets it for the whole process; 0 goes back to the default.
void set_threads(int count);

// Calls work(item, thread) once for every item in [0, items), on up to
// `threads()` threads. Items are claimed one at a time in increasing order, so
// an item may wait for an earlier one without deadlock. The first exception
// ends the claiming and is rethrown to the caller. A call from inside a
// parallel item runs on that thread alone.
void parallel_items(std::int64_t items, const std::function<void(std::int64_t item, int thread)>& work);

// Cuts [0, count) into pieces of `grain` (the last may be shorter) and calls
// work(begin, end) for each. Pieces depend on `grain` only, never on the
// number of threads, so sums kept per piece have the same bits everywhere.
void parallel_ranges(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// "OpenMP" or "std::thread", whichever this build uses.
const char* threads_backend();

}  // namespace regard
