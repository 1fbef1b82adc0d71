// The one door to SIMD code: a table of functions per instruction set. Nothing
// here knows masks, modifiers or layers; a tile is numbers in memory.
//
// Words: a *panel* holds `column_tile` columns side by side, depth after depth
// ([depth][column_tile]). The last panel is filled up with zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/dtype.h"
#include "regard/view.h"

namespace regard::kernels {

// A matrix in memory of any strides (elements), stored as f32, bf16, f16 or, with
// a scale for every row, i8. Kernels widen to float as they read.
struct Matrix {
  const void* data;
  Index rows, depth;
  Index row_stride, depth_stride;
  DType dtype = DType::f32;
  const float* row_scales = nullptr;  // i8 only
  Index scale_stride = 0;

  const float* floats() const { return static_cast<const float*>(data); }  // f32 only
};

constexpr Index stored_bytes(DType dtype) { return dtype == DType::f32 ? 4 : dtype == DType::i8 ? 1 : 2; }

// The rows from `row` on.
inline Matrix rows_from(const Matrix& x, Index row) {
  Matrix rest = x;
  rest.data = static_cast<const char*>(x.data) + row * x.row_stride * stored_bytes(x.dtype);
  rest.rows -= row;
  if (x.row_scales) rest.row_scales += row * x.scale_stride;
  return rest;
}

// Rows of results in memory; neighbours in a row lie next to each other.
struct StoredRows {
  void* data;
  Index row_stride;
  DType dtype;
};

class Ahead;  // attention/kernels/ahead.h

// c[rows x cols] (+)= a[rows x depth] . b[depth x cols]
struct Product {
  const float* a;  // element (i, k) at i * a_row + k * a_depth
  Index a_row, a_depth;
  const float* b;  // panels, b_panel elements apart; a panel's depths are b_depth apart
  Index b_panel, b_depth;
  float* c;  // row-major; columns are read and written up to the next multiple of `lanes`
  Index c_row;
  Index rows, cols, depth;
  bool accumulate;
  Ahead* ahead = nullptr;  // one step after every register tile
};

// Values are read, and their sums made, as so many streams of value_run rows side by
// side. The order counts from a block's first row, so that it does not depend on how
// many rows come after or are left out.
constexpr Index value_streams = 4, value_run = 32;

// f(first, count) for each group of rows that follow one another in the order: first,
// first + value_run, ... Of a block's rows [before, before + rows), counted from `before`.
template <class F>
void for_value_groups(Index before, Index rows, F f) {
  constexpr Index window = value_streams * value_run;
  const Index end = before + rows;
  for (Index start = before / window * window; start < end; start += window)
    for (Index at = start; at < start + value_run; ++at) {
      const Index skipped = before <= at ? 0 : (before - at + value_run - 1) / value_run;
      const Index streams = end <= at ? 0 : std::min(value_streams, (end - at + value_run - 1) / value_run);
      if (streams > skipped) f(at + skipped * value_run - before, streams - skipped);
    }
}

// Which (row, depth) pairs a selected product may touch; nonzero = may. Without
// `visible`, all.
struct Selection {
  const std::uint8_t* visible;
  Index row_stride, depth_stride;
};

// Row-major rows of our own or of a caller's output.
struct StridedRows {
  float* data;
  Index stride, rows, cols;
};

// A tile of scores, row-major; `stride` leaves room for full vectors.
struct Tile {
  float* data;
  Index stride;
  Index rows, keys;
};

// Running softmax over one more block of keys.
struct SoftmaxStep {
  Tile scores;        // in: scores, -inf where hidden; out: exp(score - new maximum)
  float* row_max;     // [rows] running maximum, -inf before the first block
  float* row_sum;     // [rows] running sum of exp(score - maximum)
  float* row_spread;  // [rows] running sum of exp(s - max) * (s - max), or null
  float* out;         // [rows, out_stride] accumulator, rescaled when the maximum moves
  Index out_stride, out_cols;
};

// Softmax gradient of one tile.
struct SoftmaxGradient {
  Tile weights;         // in: scores, -inf where hidden; out: weights
  Tile gradients;       // in: d(weight); out: d(score)
  const float* lse;     // [rows]
  const float* shared;  // [rows] what every pair of the row subtracts
  const float* keep;    // [rows, weights.stride] dropout factors, or null: times d(weight) and, afterwards, the weights
  float scale;          // times d(score), last
};

struct Kernels {
  const char* name;  // "AVX2"
  int lanes;         // float lanes of one vector
  int row_tile;
  int column_tile;

  void (*product)(const Product&);
  // How many steps of `ahead` a product of that shape makes.
  Index (*product_steps)(Index rows, Index cols);
  // Pairs that are not selected add nothing, whatever a and b hold there.
  void (*product_selected)(const Product&, const Selection&);

  // Few rows of q (f32) against keys where they lie: scores[r, j] = q[r] . k[j].
  // The depth is a multiple of `lanes`, at stride 1.
  void (*dot_rows)(const Matrix& q, const Matrix& k, const Tile& scores);
  // out[r] += sum of weights[r, j] * v[j], alike, in the order of for_value_groups:
  // `before` rows of a block come before v's first.
  void (*weigh_rows)(const Tile& weights, const Matrix& v, Index before, float* out, Index out_stride);

  // to: panels of `width` rows, depth after depth, times `scale`.
  // Returns true if every element is finite.
  bool (*pack_interleaved)(const Matrix& from, Index width, float scale, float* to);
  // to: panels over the depth axis, row after row, times `scale`.
  bool (*pack_panels)(const Matrix& from, float scale, float* to);

  // to: row after row, `to_stride` apart. Returns true if every element is finite.
  bool (*widen_rows)(const Matrix& from, float* to, Index to_stride);
  // The way back, rounding to nearest even.
  void (*narrow_rows)(const StridedRows& from, const StoredRows& to);

  bool (*all_finite)(const Matrix&);
  // to[i] = from[i] * factors[i]; zeros where the factor is 0.
  void (*scale_rows)(const float* from, Index from_stride, const StridedRows& to, const float* factors);
  // sums[i] = out[i] . dout[i], without the elements whose `out` is 0.
  void (*row_dots)(const Matrix& out, const Matrix& dout, float* sums);

  void (*softmax_step)(const SoftmaxStep&);
  void (*softmax_gradient)(const SoftmaxGradient&);
  // data = exp(data - max) / sum per row; 0 where data is -inf.
  void (*weights)(const Tile&, const float* row_max, const float* row_sum);

  // What observers ask of a tile of weights. Around the keys of each row lie
  // zeros: `rows - 1` before them, tile_margin() after. Results have room for one
  // vector more.
  // sums[j] over the rows of each key; the largest, where NaN counts as such.
  void (*column_sums)(const Tile& weights, float* sums);
  void (*column_maxima)(const Tile& weights, float* maxima);
  // sums[j - i + rows - 1] over all pairs (i, j).
  void (*diagonal_sums)(const Tile& weights, float* sums);
  // sums[i] of weight * |distance0 + i - j|.
  void (*distance_sums)(const Tile& weights, float distance0, float* sums);
  // The keys of one row whose weight exceeds `limit` (>= 0), in order; returns how
  // many. `found` has room for keys + tile_margin().
  Index (*find_above)(const float* row, Index keys, float limit, std::int32_t* found);

  void (*hide)(const Tile&, const std::uint8_t* visible, Index visible_stride);
  // Whether no score is -inf.
  bool (*all_visible)(const Tile&);
  // visible = (score != -inf); returns true if every pair is visible.
  bool (*mark_visible)(const Tile&, std::uint8_t* visible, Index visible_stride);
  // score += bias; -inf where the bias is -inf, whatever the score.
  void (*add_bias)(const Tile&, const float* bias, Index row_stride, Index key_stride);

  void (*softcap)(const Tile&, float cap);
  // gradients *= derivative of the soft cap at the uncapped scores.
  void (*softcap_chain)(const Tile& gradients, const float* scores, float cap);
  // score -= slope * |distance0 + row - key|
  void (*alibi)(const Tile&, float slope, std::int32_t distance0);

  // keep[i, j] = 0 or `factor`: Philox at (key + j, row + i, head, batch).
  struct DropoutSpot {
    std::uint32_t row, head, batch;
    std::int64_t key;
    std::uint64_t seed;
    std::uint32_t threshold;
    float factor;
  };
  void (*dropout_factors)(const Tile& keep, const DropoutSpot&);
  // The same factors times the weights.
  void (*dropout)(const Tile& weights, const DropoutSpot&);
  void (*scale)(const Tile&, float factor);
  // to += from for a [rows, cols] block.
  void (*add_rows)(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index cols);

  // Runs `rounds` rounds of independent multiply-adds on every accumulator
  // register; returns the floating-point operations done. For measuring peak.
  double (*multiply_add_burst)(Index rounds, float* sink);
  // Reads `count` words (a multiple of 32) as four streams side by side, since one
  // alone gets a quarter less out of memory; returns their sum. For measuring read
  // bandwidth.
  std::uint64_t (*sum_words)(const std::uint64_t* words, Index count);
};

// The table in use: the best of this processor, or what was forced.
const Kernels& active();

inline void multiply(const Kernels& kernels, const Product& product, const Selection& select) {
  select.visible ? kernels.product_selected(product, select) : kernels.product(product);
}

// Zeros after each row of a tile of weights that observers look at.
inline Index tile_margin(const Kernels& kernels, Index rows) {
  return std::max<Index>(rows + kernels.lanes, 4 * kernels.lanes);
}

// Columns of the narrowest register tile: two vectors of four lanes.
constexpr Index narrowest_panel = 8;

inline Index padded(Index count, Index to) { return (count + to - 1) / to * to; }

}  // namespace regard::kernels
