// The second pass. One work item is a block of queries of one head; it meets
// all keys, tile by tile, and shows the weights of each tile to the observers.
#include <algorithm>

#include "attention/backward.h"
#include "attention/observers/observer.h"
#include "attention/panels.h"
#include "attention/score_tiles.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

// Queries that share packed keys. Sums over blocks depend on where blocks end,
// so that depends on q_len only; long sequences have enough blocks for threads.
Index rows_of_block(const Call& call) {
  const Index chunk = call.tiling.chunk_rows;
  return kernels::padded(std::clamp(call.sizes.q_len / 8, 8 * chunk, 16 * chunk), chunk);
}

// How a tile of a block lies in memory: rows with zeros around them.
struct Margins {
  Index margin, stride, floats;
};

Margins margins_of(const Call& call, const Spot& block) {
  const Index margin = kernels::padded(kernels::tile_margin(call.kernels, call.tiling.chunk_rows), 16);
  const Index stride = call.tile_stride() + margin;
  return {margin, stride, margin + std::min(call.tiling.chunk_rows, block.rows) * stride};
}

struct ShownBuffers {
  ScoreTiles scores;
  std::vector<double*> notes;  // per observer
  float *tile, *scratch;
  std::uint8_t* hidden;
};

ShownBuffers carve(const Call& call, const Observers& observers, const Spot& block, Layout& layout) {
  const Margins around = margins_of(call, block);
  ShownBuffers buffers{ScoreTiles(call, layout, block.rows), {}, nullptr, nullptr, nullptr};
  for (const auto& observer : observers) buffers.notes.push_back(layout.doubles(observer->note_count(block)));
  buffers.tile = layout.floats(around.floats);
  buffers.scratch = layout.floats(around.stride + around.margin);
  buffers.hidden = layout.bytes(around.floats);
  return buffers;
}

class ShownBlock {
 public:
  ShownBlock(const Call& call, const RowStatistics& rows, const Observers& observers, const Spot& block);
  void run();
  void end() const;

 private:
  bool wanted(const Spot& spot) const;
  void skip(const Spot& spot) const;
  void meet_keys(const Spot& spot);
  void show(const Spot& spot, Coverage coverage);

  const Call& call_;
  const RowStatistics& rows_;
  const Observers& observers_;
  const Spot block_;
  const Margins around_;
  ShownBuffers memory_;
};

ShownBlock::ShownBlock(const Call& call, const RowStatistics& rows, const Observers& observers, const Spot& block)
    : call_(call),
      rows_(rows),
      observers_(observers),
      block_(block),
      around_(margins_of(call, block)),
      memory_(Workspace::carved([&](Layout& layout) { return carve(call, observers, block, layout); })) {
  for (std::size_t o = 0; o < observers.size(); ++o)
    std::fill_n(memory_.notes[o], observers[o]->note_count(block), 0.0);
  std::fill_n(memory_.tile, around_.floats, 0.0f);
  memory_.tile += around_.margin;
}

bool ShownBlock::wanted(const Spot& spot) const {
  return std::any_of(observers_.begin(), observers_.end(), [&](const auto& o) { return o->wants(spot); });
}

void ShownBlock::skip(const Spot& spot) const {
  for (const auto& observer : observers_)
    if (observer->wants(spot)) observer->skip(spot);
}

void ShownBlock::run() {
  if (!wanted(block_)) return;
  memory_.scores.take_queries(block_);
  const Index length = call_.length(block_.b), step = call_.tiling.key_block;
  for (Index key = 0; key < length; key += step) {
    Spot spot = block_;
    spot.key = key;
    spot.keys = std::min(step, length - key);
    if (wanted(spot)) meet_keys(spot);
  }
  Spot beyond = block_;
  beyond.key = length;
  beyond.keys = call_.sizes.kv_len - length;
  if (beyond.keys > 0) skip(beyond);
}

void ShownBlock::meet_keys(const Spot& spot) {
  if (call_.options.mask.coverage(mask_block(call_, spot)) == Coverage::none) return skip(spot);
  memory_.scores.take_keys(spot);
  for (Index row = 0; row < block_.rows; row += call_.tiling.chunk_rows) {
    Spot part = spot;
    part.row += row;
    part.rows = std::min(call_.tiling.chunk_rows, block_.rows - row);
    if (!wanted(part)) continue;
    const Coverage coverage = call_.options.mask.coverage(mask_block(call_, part));
    coverage == Coverage::none ? skip(part) : show(part, coverage);
  }
}

void ShownBlock::show(const Spot& spot, Coverage coverage) {
  const kernels::Tile tile{memory_.tile, around_.stride, spot.rows, spot.keys};
  memory_.scores.multiply(spot.row - block_.row, tile);
  finish_scores(call_, spot, one_panel(spot, coverage), tile, memory_.hidden);
  const Index first = call_.row_index(spot.b, spot.h, spot.row);
  call_.kernels.weights(tile, rows_.max.data() + first, rows_.sum.data() + first);
  // What an earlier, wider tile or the end of a vector left there.
  const Index wide = call_.tile_stride();
  for (Index i = 0; i < spot.rows && spot.keys < wide; ++i)
    std::fill_n(memory_.tile + i * tile.stride + spot.keys, wide - spot.keys, 0.0f);
  for (std::size_t o = 0; o < observers_.size(); ++o)
    if (observers_[o]->wants(spot)) observers_[o]->see({block_, spot, tile, memory_.notes[o], memory_.scratch});
}

void ShownBlock::end() const {
  for (std::size_t o = 0; o < observers_.size(); ++o) observers_[o]->end_block(block_, memory_.notes[o]);
}

// Lets the next item pass, also when this one throws.
class Passing {
 public:
  Passing(Turnstile& line, Index item) : line_(line), item_(item) {}
  ~Passing() { line_.pass(item_, Turnstile::finished); }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  Turnstile& line_;
  Index item_;
};

}  // namespace

void show_weights(const Call& call, const RowStatistics& rows, const Observers& observers) {
  const Sizes& sizes = call.sizes;
  const Index step = rows_of_block(call), blocks = (sizes.q_len + step - 1) / step;
  const Index items = sizes.batch * sizes.q_heads * blocks;
  Turnstile line(items);
  parallel_items(items, [&](Index item, int) {
    const Passing passing(line, item);
    const Index head = item / blocks, row = item % blocks * step;
    ShownBlock shown(
        call, rows, observers,
        {head / sizes.q_heads, head % sizes.q_heads, row, std::min(step, sizes.q_len - row), 0, sizes.kv_len});
    shown.run();
    if (row > 0) line.wait(item - 1, Turnstile::finished);
    shown.end();
  });
  for (const auto& observer : observers) observer->end();
}

}  // namespace regard::detail
