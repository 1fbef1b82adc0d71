#include "regard/cpu.h"

#include <unistd.h>

#include <fstream>

namespace regard {
namespace {

std::int64_t told(int name, std::int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

}  // namespace

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

CacheSizes cache_sizes() {
  const CacheSizes fallback;
  return {told(_SC_LEVEL1_DCACHE_SIZE, fallback.l1), told(_SC_LEVEL2_CACHE_SIZE, fallback.l2),
          told(_SC_LEVEL3_CACHE_SIZE, fallback.l3)};
}

const char* version() { return REGARD_VERSION; }

}  // namespace regard
