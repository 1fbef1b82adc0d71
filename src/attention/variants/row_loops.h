// Plain loops over rows of numbers, compiled for the baseline and for AVX2.
#pragma once

#include "regard/view.h"

namespace regard::detail {

void scale_row(float* row, float factor, Index count);
// to += factor * from
void add_times(float* to, const float* from, float factor, Index count);
// to = from / divisor
void divided_row(float* to, const float* from, float divisor, Index count);
// to += from
void add_row(float* to, const float* from, Index count);
// to += value
void add_to_row(float* to, float value, Index count);
void subtract_row(float* to, const float* from, Index count);
void multiply_row(float* to, const float* from, Index count);
// to = the larger of both; a NaN in `from` counts as nothing.
void raise_row(float* to, const float* from, Index count);
// row keeps what is below 0 (and NaN), `above` gets what is above; zeros elsewhere.
void split_signs(float* row, float* above, Index count);
// The first place of the largest among row[0], ..., row[count - 1] and then their
// negatives, which follow at `count`. A NaN is never the largest; 0 where all are.
Index largest_of_both_signs(const float* row, Index count);
float sum_row(const float* row, Index count);
float sum_of_squares(const float* row, Index count);
float dot_rows(const float* a, const float* b, Index count);

}  // namespace regard::detail
