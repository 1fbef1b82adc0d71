#include "attention/observers/observer.h"

namespace regard::detail {

Observers make_observers(const Call& call, const RowStatistics& rows, AttendResult& result) {
  const Observe& observe = call.options.observe;
  Observers all;
  if (observe.distance) all.push_back(observe_distance(call, result));
  if (observe.top_k > 0) all.push_back(observe_top_keys(call, rows, result));
  if (observe.key_mass) all.push_back(observe_key_mass(call, result));
  if (observe.pooled_sum) all.push_back(observe_pooled_sum(call, result));
  if (observe.pooled_max) all.push_back(observe_pooled_max(call, result));
  if (observe.segment_sum) all.push_back(observe_segment_sum(call, result));
  if (observe.diagonals) all.push_back(observe_diagonals(call, result));
  if (observe.weights) all.push_back(observe_weights(call, result));
  return all;
}

}  // namespace regard::detail
