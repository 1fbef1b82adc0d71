// What a forward pass knows about each row of scores, and how rows end.
#pragma once

#include "attention/call.h"

namespace regard::detail {

// Rows [row, row + count) before their first key.
void start_rows(RowStatistics& rows, Index first, Index count);

// The sink joins, the entropy is taken, and what comes out is the factor that
// makes a row's output of its accumulated values: 0 where nothing is visible.
float finish_row(const Call& call, RowStatistics& rows, Index row, Index head);

// Finishes the rows of a spot: out = values * factor, row by row. values
// [rows, stride] may be the output's own memory.
void write_rows(const Call& call, RowStatistics& rows, const Spot& spot, const kernels::StridedRows& values,
                const OutputView& out);

// Log-sum-exp of a finished row, sink included.
float log_sum_exp(const RowStatistics& rows, Index row);

}  // namespace regard::detail
