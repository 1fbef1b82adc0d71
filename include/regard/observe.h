// What attend can report besides its output, in memory linear in length.
//
//   auto result = regard::attend(q, k, v, {.observe = {.entropy = true, .top_k = 8, .key_mass = QueryRange{}}});
//
// Weights are those after the softmax and before dropout, over keys only: a row
// sums to 1, or to less where a sink takes part. A row that sees no key has
// weights 0. A row in which a visible score is NaN or +inf has weights NaN, and
// so has every number that such a weight is part of.
//
// Log-sum-exp, entropy and row maximum come from the pass that computes the
// output. Everything else comes from one more pass over the scores, shared by
// all that was asked for: half the multiplications of the first, whatever is
// hidden left out.
#pragma once

#include <optional>
#include <vector>

#include "regard/tensor.h"
#include "regard/view.h"

namespace regard {

// The stages of a score: times scale; after a leading soft cap (equal to
// `scaled` without one); after modifiers, bias and mask (-inf where hidden);
// after the softmax, before dropout.
enum class Stage { scaled, capped, masked, weights };

// A rectangle of one head's scores or weights, wanted exactly.
struct Rectangle {
  Index batch = 0;
  Index head = 0;
  Index row = 0;
  Index rows = 0;
  Index key = 0;
  Index keys = 0;
  Stage stage = Stage::weights;
};

// Rows [begin, end) of the queries; without an end, to the last.
struct QueryRange {
  Index begin = 0;
  std::optional<Index> end = {};
};

// Cells of a pooled map. Cell (r, c) covers rows r * q_len / rows to
// (r + 1) * q_len / rows - 1, rounded down, and keys alike: each pair lies in
// exactly one cell. Where there are fewer queries or keys than cells, some
// cover nothing and hold 0.
struct MapSize {
  Index rows = 64;
  Index columns = 64;
};

// Segments of both axes, such as sentences: segment s covers [rows[s], rows[s + 1])
// of the queries, and the keys alike. Each begins with 0, ends with the length
// and never falls; a segment may be empty.
struct SegmentBounds {
  std::vector<Index> rows, keys;
};

// Offsets query position - key from `first` to `last`, both included. Left
// out: the smallest and the largest that a pair of any batch entry has, which
// are q_start - (kv_len - 1) and q_start + q_len - 1. With the default q_start:
// from -(q_len - 1) to kv_len - 1; offset 0 is the main diagonal of causal().
struct OffsetRange {
  std::optional<Index> first = {};
  std::optional<Index> last = {};
};

// What to report besides the output. Asking changes no bit of anything else.
// Throws ArgumentError (from attend) for ranges, sizes and rectangles that lie
// outside, and for top_k with 2^32 keys and more.
struct Observe {
  bool lse = false;       // [batch, q_heads, q_len], natural logarithm, sink included
  bool entropy = false;   // [batch, q_heads, q_len], nats, of the weights over keys
  bool row_max = false;   // [batch, q_heads, q_len], largest visible score (natural units, no sink), else -inf
  bool distance = false;  // [batch, q_heads, q_len], sum of weight * |query position - key|, in positions
  // The largest weights of each query and their keys, [batch, q_heads, q_len,
  // top_k], largest first; of equal weights, the lower key. Keys of weight 0 are
  // not listed: what is missing has key -1 and weight 0. A row of NaN has keys -1.
  Index top_k = 0;
  // Weight that each key receives from these queries, [batch, q_heads, kv_len].
  std::optional<QueryRange> key_mass = {};
  // The whole map brought down to a few cells, [batch, q_heads, rows, columns]:
  // the sum and the largest of the weights in each. See pyramid().
  std::optional<MapSize> pooled_sum = {};
  std::optional<MapSize> pooled_max = {};
  // Weight between segments, [batch, q_heads, row segments, key segments].
  std::optional<SegmentBounds> segment_sum = {};
  // Weight at each offset, [batch, q_heads, offsets], smallest offset first.
  std::optional<OffsetRange> diagonals = {};
  bool weights = false;                    // [batch, q_heads, q_len, kv_len]: quadratic memory, by request only
  std::vector<Rectangle> rectangles = {};  // each becomes [rows, keys]
};

// The observations of a result; those that were not asked for are empty.
template <class T>
struct BasicObservations {
  Tensor<T> lse, entropy, row_max, distance;
  Tensor<Index> top_keys;
  Tensor<T> top_weights;
  Tensor<T> key_mass;
  Tensor<T> pooled_sum, pooled_max, segment_sum;
  Tensor<T> diagonal_mass;
  Index first_offset = 0;  // offset of diagonal_mass's first entry
  Tensor<T> weights;
  std::vector<Tensor<T>> rectangles;
};

// How cells join into larger ones.
enum class Pooling { sum, max };

// Coarser and coarser maps of a pooled map [..., rows, columns]: the map itself,
// then one with half the cells on each axis, and so on, until both axes have at
// most the cells of `smallest`. Of an odd number of cells the last stays alone.
// Throws ArgumentError for less than two axes, and for a smallest below 1 x 1.
template <class T>
std::vector<Tensor<T>> pyramid(const Tensor<T>& map, Pooling how, const MapSize& smallest = {1, 1});

}  // namespace regard
