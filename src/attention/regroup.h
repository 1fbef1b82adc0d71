// Masks with regular gaps (dilated windows, strided patterns): tiles of
// neighbouring rows and keys would be nearly empty, so rows and keys are taken
// residue by residue, each a call of its own on strided views in which the
// visible pairs lie side by side. Exact: the same pairs, summed in another order.
//
// Pairs besides the regular ones (a strided pattern's window) are one more call
// on the whole tensors; a row's two results are merged by their maxima and sums.
// The backward pass needs no merging: given the whole row's log-sum-exp, each
// call yields its share of the gradients.
#pragma once

#include <functional>
#include <string>

#include "attention/backward.h"
#include "attention/call.h"

namespace regard::detail {

// Whether a call is regrouped, and if its mask would allow it, why it is not.
// Depends on q_len and options, never on threads, what is observed, or neighbours
// in a batch.
struct RegroupChoice {
  std::optional<Regrouping> how;
  std::string obstacle;  // "dropout"; empty if there is none
};
RegroupChoice choose_regrouping(const Call& call);

// Rows and keys of one residue of one batch entry.
struct Residue {
  Index batch, gap;
  Index first_row, rows;  // rows first_row, first_row + gap, ...
  Index first_key, keys;
};
Index residue_count(const Call& call, const Regrouping& how);  // over all batch entries
Residue residue_of(const Call& call, const Regrouping& how, Index number);

// work(number) for every residue: several at a time if there are enough of them,
// else one after the other, each with all threads. No bit depends on it.
void for_each_residue(const Call& call, const Regrouping& how, const std::function<void(Index number)>& work);

// A residue's pairs as a call of its own, with what it refers to.
class ResidueCall {
 public:
  ResidueCall(const Call& whole, const Regrouping& how, const Residue& residue);
  ResidueCall(const ResidueCall&) = delete;
  ResidueCall& operator=(const ResidueCall&) = delete;
  Call& call() { return call_; }

 private:
  static AttendOptions options_for(const Call& whole, const Regrouping& how, const Residue& residue);

  Index length_;  // keys that exist
  AttendOptions options_;
  Call call_;
};

// The call whose mask shows the pairs apart from the regular ones.
AttendOptions options_apart(const Call& whole, const Regrouping& how);
Call call_with(const Call& whole, const AttendOptions& options);

// Elements first, first + step, ... of one axis.
template <class T, int Rank>
View<T, Rank> every(View<T, Rank> view, int axis, Index first, Index step, Index count) {
  auto sizes = view.sizes(), strides = view.strides();
  const Index offset = count == 0 ? 0 : first * strides[static_cast<std::size_t>(axis)];
  sizes[static_cast<std::size_t>(axis)] = count;
  strides[static_cast<std::size_t>(axis)] *= step;
  return {view.data() + offset, sizes, strides};
}
// A residue's part of something that broadcasts to [batch, q_heads, q_len, kv_len].
template <class T>
View<T, 4> pairs_of(View<T, 4> view, const Residue& residue) {
  if (view.size(0) != 1) view = view.slice(0, residue.batch, residue.batch + 1);
  if (view.size(2) != 1) view = every(view, 2, residue.first_row, residue.gap, residue.rows);
  if (view.size(3) != 1) view = every(view, 3, residue.first_key, residue.gap, residue.keys);
  return view;
}
// Of [batch, q_heads, q_len].
template <class T>
View<T, 3> rows_of(const View<T, 3>& view, const Residue& residue) {
  return every(view.slice(0, residue.batch, residue.batch + 1), 2, residue.first_row, residue.gap, residue.rows);
}
// Of q and out, and of k and v. V: InputView or OutputView.
template <class V>
V rows_of(const V& view, const Residue& residue) {
  return view.every(residue.batch, residue.first_row, residue.gap, residue.rows);
}
template <class V>
V keys_of(const V& view, const Residue& residue) {
  return view.every(residue.batch, residue.first_key, residue.gap, residue.keys);
}

void run_regrouped(const Call& call, const Regrouping& how, RowStatistics& rows, const OutputView& out);
AttendGradients differentiate_regrouped(const Call& call, const Regrouping& how, const BackwardViews& views);

}  // namespace regard::detail
