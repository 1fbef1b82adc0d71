#include "regard/plan.h"

#include <algorithm>

#include "attention/call.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

void count_tiles(const Call& call, Index b, Index h, AttendPlan& plan) {
  const Index length = call.length(b);
  for (Index row = 0; row < call.sizes.q_len; row += plan.chunk_rows)
    for (Index key = 0; key < length; key += plan.key_block) {
      const Spot spot{b, h, row, std::min(plan.chunk_rows, call.sizes.q_len - row), key,
                      std::min(plan.key_block, length - key)};
      const Coverage coverage = call.options.mask.coverage(mask_block(call, spot));
      ++plan.tiles;
      plan.skipped_tiles += coverage == Coverage::none;
      plan.masked_tiles += coverage == Coverage::some;
    }
}

}  // namespace
}  // namespace detail

AttendPlan plan_attend(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v,
                       const AttendOptions& options) {
  detail::Call call = detail::make_call("plan_attend", q, k, v, options);
  call.tiling = detail::forward_tiling(call.sizes, call.kernels);
  AttendPlan plan;
  plan.kernel = std::string(call.kernels.name) + ", register tile " + std::to_string(call.kernels.row_tile) + " x " +
                std::to_string(call.kernels.column_tile);
  for (const auto& modifier : options.score.chain()) plan.score.push_back(modifier->name());
  plan.query_block = call.tiling.query_block;
  plan.chunk_rows = call.tiling.chunk_rows;
  plan.key_block = call.tiling.key_block;
  plan.work_items = call.sizes.batch * call.sizes.q_heads *
                    ((call.sizes.q_len + plan.query_block - 1) / plan.query_block);
  plan.threads = static_cast<int>(std::clamp<Index>(plan.work_items, 1, threads()));
  plan.workspace_bytes = 4 * detail::forward_workspace(call) * plan.threads;
  for (Index b = 0; b < call.sizes.batch; ++b)
    for (Index h = 0; h < call.sizes.q_heads; ++h) detail::count_tiles(call, b, h, plan);
  return plan;
}

std::string explain(const AttendPlan& plan) {
  std::string modifiers;
  for (const std::string& name : plan.score) modifiers += (modifiers.empty() ? "" : " + ") + name;
  const auto number = [](Index value) { return std::to_string(value); };
  return "kernel      " + plan.kernel + "\n" +
         "modifiers   " + (modifiers.empty() ? "none" : modifiers + " (run in this kernel)") + "\n" +
         "tiles       " + number(plan.chunk_rows) + " queries x " + number(plan.key_block) + " keys; " +
         number(plan.query_block) + " queries share packed keys\n" +
         "work        " + number(plan.work_items) + " items on " + number(plan.threads) + " thread(s)\n" +
         "coverage    " + number(plan.tiles) + " tiles: " + number(plan.skipped_tiles) + " skipped, " +
         number(plan.masked_tiles) + " masked pair by pair, " +
         number(plan.tiles - plan.skipped_tiles - plan.masked_tiles) + " whole\n" +
         "workspace   " + number(plan.workspace_bytes) + " bytes\n";
}

}  // namespace regard
