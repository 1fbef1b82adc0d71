#include "regard/cpu.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <optional>

#include "core/cache_sizes.h"

namespace regard {
namespace {

template <class T>
std::optional<T> first_word(const std::string& path) {
  std::ifstream file(path);
  T word;
  return file >> word ? std::optional(word) : std::nullopt;
}

// "512K" or "2M" in bytes; 0 where it says something else.
std::int64_t bytes_of(const std::string& size) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
  if (error != std::errc() || end + 1 != size.data() + size.size()) return 0;
  return *end == 'K' ? number << 10 : *end == 'M' ? number << 20 : 0;
}

// Of the cache that one core reaches.
std::int64_t cache_bytes(const std::string& folders, int level, std::int64_t fallback) {
  for (int index = 0;; ++index) {
    const std::string folder = folders + "/index" + std::to_string(index) + "/";
    const auto found = first_word<int>(folder + "level");
    if (!found) return fallback;
    if (*found != level || first_word<std::string>(folder + "type") == "Instruction") continue;
    const std::int64_t bytes = bytes_of(first_word<std::string>(folder + "size").value_or(""));
    return bytes > 0 ? bytes : fallback;
  }
}

// What the C library knows, which counts the third level of all cores of a
// processor together: asked about the levels that a core has for itself.
std::int64_t known_bytes(int name, std::int64_t fallback) {
  const long bytes = sysconf(name);
  return bytes > 0 ? bytes : fallback;
}

}  // namespace

CacheSizes detail::read_cache_sizes(const std::string& folders, const CacheSizes& otherwise) {
  return {cache_bytes(folders, 1, otherwise.l1), cache_bytes(folders, 2, otherwise.l2),
          cache_bytes(folders, 3, otherwise.l3)};
}

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
  return detail::read_cache_sizes(
      "/sys/devices/system/cpu/cpu0/cache",
      {known_bytes(_SC_LEVEL1_DCACHE_SIZE, fallback.l1), known_bytes(_SC_LEVEL2_CACHE_SIZE, fallback.l2), fallback.l3});
}

const char* version() { return REGARD_VERSION; }

}  // namespace regard
