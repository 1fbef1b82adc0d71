// The reference's observers: plain loops over one query's whole row.
#pragma once

#include <vector>

#include "attention/problem.h"
#include "regard/attend.h"

namespace regard::detail {

template <class T>
struct PlainRow {
  Index b, h, i;
  const std::vector<T>&masked, &weights;  // [kv_len]
};

// Tensors of what is asked for, with nothing in them yet.
template <class T>
void start_observations(const BasicAttendOptions<T>& options, const Sizes& sizes, BasicObservations<T>& result);

// One query's share of everything.
template <class T>
void observe_plain_row(const BasicAttendOptions<T>& options, const Sizes& sizes, const PlainRow<T>& row,
                       BasicObservations<T>& result);

}  // namespace regard::detail
