#include "measure/resident.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

namespace regard::detail {
namespace {

// A line of /proc/self/status, in bytes; 0 where there is none.
double status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == name + ":") {
      double kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  return 0;
}

// Makes the peak the present size. The kernel's own documentation gives 5 this meaning.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace

std::optional<double> peak_growth(const std::function<void()>& work) {
  // Free memory that the process still holds would hide what is taken from it. Of
  // other threads' heaps malloc_trim leaves the top alone, so large arrays have to
  // come from the system and go back to it.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  malloc_trim(0);
  if (!reset_peak()) return std::nullopt;
  const double before = status_bytes("VmRSS");
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return before > 0 ? std::optional(std::max(0.0, status_bytes("VmHWM") - before)) : std::nullopt;
}

double physical_memory() {
  const auto pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<double>(pages) * static_cast<double>(size) : 0;
}

}  // namespace regard::detail
