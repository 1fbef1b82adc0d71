// What this machine can do at best, measured: the denominator of every speed
// figure.
#pragma once

namespace regard {

// Float multiply-adds in registers on threads() threads at once with the
// instruction set in use, in GFLOP/s (an FMA counts two). The best of many
// short bursts, about 100 ms in all.
double measure_peak_gflops();

// Streaming reads of memory beyond four times the last-level cache on threads()
// threads at once, each of four streams side by side, in GB/s (10^9 bytes). Half
// a second and 256 MiB or more.
double measure_read_gbs();

}  // namespace regard
