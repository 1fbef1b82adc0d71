// Where cache sizes are read.
#pragma once

#include <string>

#include "regard/cpu.h"

namespace regard::detail {

// From the system's folders index0, index1, ... of one processor's caches, each with
// files `level`, `type` and `size` ("512K", "32M"); `otherwise` where they do not say.
CacheSizes read_cache_sizes(const std::string& folders, const CacheSizes& otherwise);

}  // namespace regard::detail
