// What this machine can do at best, measured: the denominator of every speed
// figure.
#pragma once

namespace regard {

// Float multiply-adds in registers on the calling thread with the instruction
// set in use, in GFLOP/s (an FMA counts two). The best of several short bursts,
// about 50 ms in all.
double measure_peak_gflops();

// Streaming reads of memory well beyond the caches on the calling thread, in
// GB/s (10^9 bytes). About 200 ms and 256 MiB.
double measure_read_gbs();

}  // namespace regard
