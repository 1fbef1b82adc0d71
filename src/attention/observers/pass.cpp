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

class ShownBlock {
 public:
  ShownBlock(const Call& call, const RowStatistics& rows, const Observers& observers, const Spot& block);
  void run();
  void end() const;

 private:
  // How a tile lies in memory: rows with zeros around them.
  Index chunk_rows() const { return std::min(call_.tiling.chunk_rows, block_.rows); }
  Index margin() const { return kernels::padded(kernels::tile_margin(call_.kernels, call_.tiling.chunk_rows), 16); }
  Index stride() const { return call_.tile_stride() + margin(); }

  Workspace& prepare();
  void carve();
  bool wanted(const Spot& spot) const;
  void skip(const Spot& spot) const;
  void meet_keys(const Spot& spot);
  void show(const Spot& spot, Coverage coverage);

  const Call& call_;
  const RowStatistics& rows_;
  const Observers& observers_;
  const Spot block_;
  Workspace& workspace_;
  ScoreTiles scores_;
  std::vector<double*> notes_;  // per observer
  float *tile_ = nullptr, *scratch_ = nullptr;
  std::uint8_t* hidden_ = nullptr;
};

ShownBlock::ShownBlock(const Call& call, const RowStatistics& rows, const Observers& observers, const Spot& block)
    : call_(call),
      rows_(rows),
      observers_(observers),
      block_(block),
      workspace_(prepare()),
      scores_(call, workspace_, block.rows) {
  carve();
}

Workspace& ShownBlock::prepare() {
  Index floats = ScoreTiles::floats_for(call_, block_.rows);
  for (const auto& observer : observers_) floats += Workspace::aligned(2 * observer->note_count(block_));
  for (const Index part : {margin() + chunk_rows() * stride(), stride() + margin(), chunk_rows() * stride()})
    floats += Workspace::aligned(part);
  Workspace& workspace = Workspace::of_this_thread();
  workspace.begin(floats);
  return workspace;
}

void ShownBlock::carve() {
  for (const auto& observer : observers_) {
    const Index count = observer->note_count(block_);
    notes_.push_back(workspace_.doubles(count));
    std::fill_n(notes_.back(), count, 0.0);
  }
  const Index floats = margin() + chunk_rows() * stride();
  tile_ = workspace_.floats(floats);
  std::fill_n(tile_, floats, 0.0f);
  tile_ += margin();
  scratch_ = workspace_.floats(stride() + margin());
  hidden_ = workspace_.bytes(chunk_rows() * stride());
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
  scores_.take_queries(block_);
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
  scores_.take_keys(spot);
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
  const kernels::Tile tile{tile_, stride(), spot.rows, spot.keys};
  scores_.multiply(spot.row - block_.row, tile);
  finish_scores(call_, spot, one_panel(spot, coverage), tile, hidden_);
  const Index first = call_.row_index(spot.b, spot.h, spot.row);
  call_.kernels.weights(tile, rows_.max.data() + first, rows_.sum.data() + first);
  // What an earlier, wider tile or the end of a vector left there.
  const Index wide = call_.tile_stride();
  for (Index i = 0; i < spot.rows && spot.keys < wide; ++i)
    std::fill_n(tile_ + i * tile.stride + spot.keys, wide - spot.keys, 0.0f);
  for (std::size_t o = 0; o < observers_.size(); ++o)
    if (observers_[o]->wants(spot)) observers_[o]->see({block_, spot, tile, notes_[o], scratch_});
}

void ShownBlock::end() const {
  for (std::size_t o = 0; o < observers_.size(); ++o) observers_[o]->end_block(block_, notes_[o]);
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
