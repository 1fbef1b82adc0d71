// Whether two strided windows have an element in common.
#pragma once

#include "regard/storage.h"

namespace regard::detail {

// Exact for every layout in use: columns of one packed tensor lie apart although
// their addresses interleave. Strides so irregular that the question takes too
// long count as sharing. Neither view may overlap itself.
bool share_memory(const OutputView& a, const OutputView& b);

}  // namespace regard::detail
