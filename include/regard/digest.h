// A short fingerprint of bytes: tells data apart, not forgers.
#pragma once

#include <cstdint>
#include <string_view>

namespace regard {

// FNV-1a, 64 bits (Fowler, Noll and Vo). Bytes in pieces give what they give in one:
// fnv1a(b, fnv1a(a)) is that of a followed by b.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t before = 14695981039346656037u) {
  for (const char byte : bytes) before = (before ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return before;
}

}  // namespace regard
