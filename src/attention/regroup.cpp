#include "attention/regroup.h"

#include <algorithm>

#include "attention/decode.h"
#include "attention/mask_blocks.h"
#include "attention/short.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// A regrouping's pairs among the rows and keys of one residue: a band, and in it
// what the rule `also` says of the true positions.
class ResidueRule final : public MaskRule {
 public:
  // q_start: of the whole call's row 0.
  ResidueRule(const Regrouping& how, const Residue& residue, Index q_start)
      : how_(how), residue_(residue), q_start_(q_start) {}

  Coverage coverage(const MaskBlock& block) const override {
    const Span queries = queries_of(block), keys = keys_of(block);
    const Index nearest = keys.first - queries.last, farthest = keys.last - queries.first;
    if (farthest < how_.first || nearest > how_.last) return Coverage::none;
    const Coverage also = how_.also ? how_.also->coverage(whole_block(block)) : Coverage::all;
    const bool whole = nearest >= how_.first && farthest <= how_.last;
    return whole || also == Coverage::none ? also : Coverage::some;
  }

  void intersect(const MaskBlock& block, std::uint8_t* visible, Index stride) const override {
    for (Index r = 0; r < block.rows; ++r) {
      const Index query = block.q_start + block.row + r;
      const auto at = [&](Index steps) { return std::clamp(query + steps - block.key, Index{0}, block.keys); };
      keep_only(visible + r * stride, block.keys, at(how_.first), at(how_.last + 1));
    }
    if (how_.also && how_.also->coverage(whole_block(block)) != Coverage::all) intersect_also(block, visible, stride);
  }

 private:
  // The rows and keys of the whole call between the block's corners.
  MaskBlock whole_block(const MaskBlock& block) const {
    const Index gap = residue_.gap;
    return {residue_.batch,
            block.head,
            residue_.first_row + block.row * gap,
            (block.rows - 1) * gap + 1,
            residue_.first_key + block.key * gap,
            (block.keys - 1) * gap + 1,
            q_start_};
  }

  // Row by row and a few keys at a time, since rules cut through few of them.
  void intersect_also(const MaskBlock& block, std::uint8_t* visible, Index stride) const {
    constexpr Index at_once = 8;
    for (Index r = 0; r < block.rows; ++r)
      for (Index key = 0; key < block.keys; key += at_once) {
        MaskBlock few = block;
        few.row += r;
        few.rows = 1;
        few.key += key;
        few.keys = std::min(at_once, block.keys - key);
        intersect_row(whole_block(few), few.keys, visible + r * stride + key);
      }
  }

  // Picks every gap-th pair of a row of the whole call.
  void intersect_row(const MaskBlock& whole, Index keys, std::uint8_t* visible) const {
    const Coverage coverage = how_.also->coverage(whole);
    if (coverage == Coverage::all) return;
    if (coverage == Coverage::none) return keep_only(visible, keys, 0, 0);
    thread_local std::vector<std::uint8_t> row;
    row.assign(static_cast<std::size_t>(whole.keys), 1);
    how_.also->intersect(whole, row.data(), whole.keys);
    for (Index j = 0; j < keys; ++j) visible[j] &= row[static_cast<std::size_t>(j * residue_.gap)];
  }

  Regrouping how_;
  Residue residue_;
  Index q_start_;
};

// Numbers first, first + gap, ... below `end`.
Index count_from(Index first, Index gap, Index end) { return first >= end ? 0 : (end - 1 - first) / gap + 1; }

// What an option needs that strided views cannot tell it.
std::string obstacle_to(const Call& call) {
  if (call.options.dropout.p > 0) return "dropout";
  for (const auto& modifier : call.options.score.chain())
    if (modifier->kind() != ScoreModifier::Kind::softcap) return "score modifier '" + modifier->name() + "'";
  return {};
}

// Enough rows of each residue that calls of their own pay. Asks for nothing that
// neighbours in a batch change, such as the padded number of keys or strides:
// bits must not depend on them.
bool is_worthwhile(const Call& call, const Regrouping& how) {
  constexpr Index least = 4;
  return how.gap <= call.sizes.q_len / least && call.sizes.q_len > short_length && !is_decoding(call);
}

}  // namespace

RegroupChoice choose_regrouping(const Call& call) {
  RegroupChoice choice{call.options.mask.regrouping(), {}};
  if (!choice.how || !is_worthwhile(call, *choice.how)) return {};
  choice.obstacle = obstacle_to(call);
  if (!choice.obstacle.empty()) choice.how.reset();
  return choice;
}

Index residue_count(const Call& call, const Regrouping& how) { return call.sizes.batch * how.gap; }

Residue residue_of(const Call& call, const Regrouping& how, Index number) {
  const Index batch = number / how.gap, key = number % how.gap;
  const Index row = modulo(key - call.q_start(batch), how.gap);
  return {batch, how.gap,
          row,   count_from(row, how.gap, call.sizes.q_len),
          key,   count_from(key, how.gap, call.sizes.kv_len)};
}

void for_each_residue(const Call& call, const Regrouping& how, const std::function<void(Index number)>& work) {
  const Index residues = residue_count(call, how);
  if (residues >= 2 * threads()) return parallel_items(residues, [&](Index number, int) { work(number); });
  for (Index number = 0; number < residues; ++number) work(number);
}

AttendOptions ResidueCall::options_for(const Call& whole, const Regrouping& how, const Residue& residue) {
  AttendOptions options = whole.options;
  const Index q_start = whole.q_start(residue.batch);
  options.mask = Mask(std::make_shared<ResidueRule>(how, residue, q_start));
  if (options.bias.given()) options.bias = pairs_of(options.bias, residue);
  options.q_start = QueryStart(floor_div(q_start + residue.first_row - residue.first_key, how.gap));
  if (how.apart) options.sink = {};
  return options;
}

ResidueCall::ResidueCall(const Call& whole, const Regrouping& how, const Residue& residue)
    : length_(count_from(residue.first_key, residue.gap, whole.length(residue.batch))),
      options_(options_for(whole, how, residue)),
      call_(call_with(whole, options_)) {
  options_.kv_lengths = {&length_, 1};
  call_.q = rows_of(whole.q, residue);
  call_.k = keys_of(whole.k, residue);
  call_.v = keys_of(whole.v, residue);
  call_.sizes.batch = 1;
  call_.sizes.q_len = residue.rows;
  call_.sizes.kv_len = residue.keys;
}

AttendOptions options_apart(const Call& whole, const Regrouping& how) {
  AttendOptions options = whole.options;
  options.mask = Mask(how.apart);
  return options;
}

Call call_with(const Call& whole, const AttendOptions& options) {
  return {whole.sizes, whole.q, whole.k, whole.v, options, broadcast(options.bias), whole.scale, {}, whole.kernels};
}

}  // namespace regard::detail
