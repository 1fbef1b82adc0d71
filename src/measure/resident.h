// How far the memory of this process rises.
#pragma once

#include <functional>
#include <optional>

namespace regard::detail {

// Bytes by which resident memory rises above its present size while `work` runs
// on a thread of its own, whose scratch memory is fresh; empty where the system
// reports no peak that can be reset. Other threads' allocations count too. What
// `work` throws is thrown on. From then on malloc takes arrays of 128 KiB and more
// from the system and gives them back to it at once.
std::optional<double> peak_growth(const std::function<void()>& work);

// Of this machine, in bytes; 0 where the system does not tell.
double physical_memory();

}  // namespace regard::detail
