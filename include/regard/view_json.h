// What a picture shows, as JSON.
#pragma once

#include <string>
#include <vector>

#include "regard/heatmap.h"

namespace regard {

// {"maps": [{"title", "name", "caption", "quantity", "scale", "queries", "keys",
// "weights", "strongest", "focus"}, ...]}: labels as shown, without indices;
// quantity is weights, norms or rollout, and whatever it is, "weights" are rows of numbers with null where the mask
// hides or the value is not a number.
std::string heat_maps_json(const std::vector<HeatMap>& maps);
std::string heat_grid_json(const HeatGrid& grid);

// What a trace holds: {"model", "source", "target", "produced", "maps":
// [{"kind", "layer", "heads", "queries", "keys"}, ...]}, in the trace's order.
std::string trace_contents_json(const Trace& trace);

}  // namespace regard
