#include "regard/plan.h"

#include <algorithm>

#include "attention/call.h"
#include "attention/decode.h"
#include "attention/regroup.h"
#include "attention/short.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

void count_tiles(const Call& call, Index b, Index h, AttendPlan& plan) {
  const Index length = call.length(b);
  for (Index row = 0; row < call.sizes.q_len; row += plan.chunk_rows)
    for (Index key = 0; key < length; key += plan.key_block) {
      const Spot spot{
          b, h, row, std::min(plan.chunk_rows, call.sizes.q_len - row), key, std::min(plan.key_block, length - key)};
      const Coverage coverage = call.options.mask.coverage(mask_block(call, spot));
      ++plan.tiles;
      plan.skipped_tiles += coverage == Coverage::none;
      plan.masked_tiles += coverage == Coverage::some;
    }
}

void count_all_tiles(const Call& call, AttendPlan& plan) {
  for (Index b = 0; b < call.sizes.batch; ++b)
    for (Index h = 0; h < call.sizes.q_heads; ++h) count_tiles(call, b, h, plan);
}

// Bytes of scratch memory: `each` floats a thread, and `shared` ones.
void set_work(AttendPlan& plan, Index items, Index each, Index shared) {
  plan.work_items = items;
  plan.threads = static_cast<int>(std::clamp<Index>(items, 1, threads()));
  plan.workspace_bytes = 4 * (each * plan.threads + shared);
}

void plan_decode(const Call& call, AttendPlan& plan) {
  plan.path = "decode: one pass over keys and values for the " + std::to_string(call.sizes.group()) +
              " query head(s) that share them, in splits of " + std::to_string(decode_split) + " keys";
  plan.query_block = plan.chunk_rows = call.sizes.q_len;
  plan.key_block = decode_block;
  set_work(plan, decode_items(call), decode_workspace(call), decode_partials(call));
  count_all_tiles(call, plan);
}

void plan_short(const Call& call, AttendPlan& plan) {
  plan.path = "short: all scores of a head in one tile, nothing packed but its keys";
  plan.query_block = plan.chunk_rows = std::max<Index>(1, call.sizes.q_len);
  plan.key_block = std::max<Index>(1, call.sizes.kv_len);
  set_work(plan, call.sizes.batch * call.sizes.q_heads, short_workspace(call), 0);
  count_all_tiles(call, plan);
}

// Blocks of queries of one head.
Index query_blocks(const Call& call, const AttendPlan& plan) {
  return (call.sizes.q_len + plan.query_block - 1) / plan.query_block;
}

void plan_streaming(Call& call, AttendPlan& plan) {
  call.tiling = forward_tiling(call.sizes, call.kernels);
  plan.path = "streaming: packed keys meet blocks of queries, tile by tile";
  plan.query_block = call.tiling.query_block;
  plan.chunk_rows = call.tiling.chunk_rows;
  plan.key_block = call.tiling.key_block;
  set_work(plan, call.sizes.batch * call.sizes.q_heads * query_blocks(call, plan), forward_workspace(call), 0);
}

// Tiles and work are those of the residues' calls, and of the one for the pairs
// apart from them.
void plan_regrouped(Call& call, const Regrouping& how, AttendPlan& plan) {
  plan_streaming(call, plan);
  plan.path = "regrouped: queries and keys by their residues modulo " + std::to_string(how.gap) +
              (how.apart ? ", merged with the pairs apart from those" : "");
  Index items = 0, sums = 0;
  if (how.apart) {
    const AttendOptions options = options_apart(call, how);
    items = plan.work_items;
    // Of the pairs apart, and of the others too where `out` cannot hold floats.
    sums = call.sizes.batch * call.sizes.q_heads * call.sizes.q_len * call.sizes.value_dim;
    if (call.q.dtype() != DType::f32) sums *= 2;
    count_all_tiles(call_with(call, options), plan);
  }
  for (Index number = 0; number < residue_count(call, how); ++number) {
    ResidueCall part(call, how, residue_of(call, how, number));
    count_all_tiles(part.call(), plan);
    items += part.call().sizes.q_heads * query_blocks(part.call(), plan);
  }
  set_work(plan, items, forward_workspace(call), sums);
}

void plan_tiles(Call& call, AttendPlan& plan) {
  const RegroupChoice choice = choose_regrouping(call);
  if (choice.how) return plan_regrouped(call, *choice.how, plan);
  plan_streaming(call, plan);
  if (!choice.obstacle.empty()) plan.path += "; not regrouped by residues because of " + choice.obstacle;
  count_all_tiles(call, plan);
}

}  // namespace
}  // namespace detail

AttendPlan plan_attend(const InputView& q, const InputView& k, const InputView& v, const AttendOptions& options) {
  detail::Call call = detail::make_call("plan_attend", q, k, v, options);
  AttendPlan plan;
  plan.kernel = std::string(call.kernels.name) + ", register tile " + std::to_string(call.kernels.row_tile) + " x " +
                std::to_string(call.kernels.column_tile);
  plan.storage =
      std::string("q ") + dtype_name(q.dtype()) + ", k " + dtype_name(k.dtype()) + ", v " + dtype_name(v.dtype());
  for (const auto& modifier : options.score.chain()) plan.score.push_back(modifier->name());
  if (detail::is_decoding(call))
    detail::plan_decode(call, plan);
  else if (detail::is_short(call))
    detail::plan_short(call, plan);
  else
    detail::plan_tiles(call, plan);
  return plan;
}

std::string explain(const AttendPlan& plan) {
  std::string modifiers;
  for (const std::string& name : plan.score) modifiers += (modifiers.empty() ? "" : " + ") + name;
  const auto number = [](Index value) { return std::to_string(value); };
  return "kernel      " + plan.kernel + "\n" + "path        " + plan.path + "\n" + "storage     " + plan.storage +
         "\n" + "modifiers   " + (modifiers.empty() ? "none" : modifiers + " (run in this kernel)") + "\n" +
         "tiles       " + number(plan.chunk_rows) + " queries x " + number(plan.key_block) + " keys; " +
         number(plan.query_block) + " queries share packed keys\n" + "work        " + number(plan.work_items) +
         " items on " + number(plan.threads) + " thread(s)\n" + "coverage    " + number(plan.tiles) +
         " tiles: " + number(plan.skipped_tiles) + " skipped, " + number(plan.masked_tiles) + " masked pair by pair, " +
         number(plan.tiles - plan.skipped_tiles - plan.masked_tiles) + " whole\n" + "workspace   " +
         number(plan.workspace_bytes) + " bytes\n";
}

}  // namespace regard
