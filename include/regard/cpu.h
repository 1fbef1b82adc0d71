// Facts about the processor this program runs on.
#pragma once

#include <cstdint>
#include <string>

namespace regard {

struct CacheSizes {
  std::int64_t l1 = 32 << 10;  // bytes of first-level data cache of one core
  std::int64_t l2 = 512 << 10;
  std::int64_t l3 = 8 << 20;  // shared by several cores
};

// "AMD EPYC 7B13", or "unknown" where the system does not tell.
std::string cpu_name();

// From the system; the defaults above where it does not tell.
CacheSizes cache_sizes();

// The library's version, "0.1.0".
const char* version();

}  // namespace regard
