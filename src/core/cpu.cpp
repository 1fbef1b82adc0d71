#include "regard/cpu.h"

#include <charconv>
#include <fstream>
#include <optional>

namespace regard {
namespace {

// The system's folders about the caches of the first processor, one for each.
const std::string cache_folder = "/sys/devices/system/cpu/cpu0/cache/index";

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

// Of the cache that one core reaches. The C library's sysconf would count the
// third level of all cores of a processor together.
std::int64_t cache_bytes(int level, std::int64_t fallback) {
  for (int index = 0;; ++index) {
    const std::string folder = cache_folder + std::to_string(index) + "/";
    const auto found = first_word<int>(folder + "level");
    if (!found) return fallback;
    if (*found != level || first_word<std::string>(folder + "type") == "Instruction") continue;
    const std::int64_t bytes = bytes_of(first_word<std::string>(folder + "size").value_or(""));
    return bytes > 0 ? bytes : fallback;
  }
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
  return {cache_bytes(1, fallback.l1), cache_bytes(2, fallback.l2), cache_bytes(3, fallback.l3)};
}

const char* version() { return REGARD_VERSION; }

}  // namespace regard
