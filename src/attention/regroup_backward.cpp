// The backward pass of a regrouped call: every residue's, and where the mask
// shows further pairs, theirs as well. Each takes the whole row's log-sum-exp and
// output, so that gradients only have to be added.
#include <algorithm>

#include "attention/regroup.h"
#include "regard/threads.h"

namespace regard::detail {
namespace {

BackwardViews views_of(const BackwardViews& whole, const Residue& residue) {
  const auto& [dq, dk, dv] = whole.gradients;
  return {{rows_of(dq, residue), keys_of(dk, residue), keys_of(dv, residue)},
          rows_of(whole.dout, residue),
          {rows_of(whole.forward.out, residue), rows_of(whole.forward.lse, residue)},
          whole.dlse.given() ? rows_of(whole.dlse, residue) : View<const float, 3>()};
}

// to += from, element by element.
void add(const View<float, 4>& to, const View<const float, 4>& from) {
  for (Index b = 0; b < to.size(0); ++b)
    for (Index h = 0; h < to.size(1); ++h)
      for (Index i = 0; i < to.size(2); ++i)
        for (Index j = 0; j < to.size(3); ++j) to(b, h, i, j) += from(b, h, i, j);
}

// Gradients of shared things: of the whole call, and what one residue adds.
void add_shared(AttendGradients& to, const AttendGradients& from, const Residue& residue) {
  if (!from.dbias.empty()) add(pairs_of(to.dbias.view<4>(), residue), from.dbias.view<4>());
  for (Index h = 0; h < from.dsink.count(); ++h) to.dsink[h] += from.dsink[h];
}

// dq, dk and dv of the residues go to `views`; the rest is added to `shared`.
void run_residues(const Call& call, const Regrouping& how, const BackwardViews& views, AttendGradients& shared) {
  std::vector<AttendGradients> parts(static_cast<std::size_t>(residue_count(call, how)));
  for_each_residue(call, how, [&](Index number) {
    const Residue residue = residue_of(call, how, number);
    ResidueCall part(call, how, residue);
    parts[static_cast<std::size_t>(number)] = differentiate(part.call(), views_of(views, residue));
  });
  for (Index number = 0; number < residue_count(call, how); ++number)
    add_shared(shared, parts[static_cast<std::size_t>(number)], residue_of(call, how, number));
}

// What sums of two calls are kept in before they are rounded.
struct FloatGradients {
  Tensor<float> dq, dk, dv;
  explicit FloatGradients(const Call& call)
      : dq(Tensor<float>::uninitialised(shape_of(call.q))),
        dk(Tensor<float>::uninitialised(shape_of(call.k))),
        dv(Tensor<float>::uninitialised(shape_of(call.v))) {}
};

void store_sum(const Call& call, Tensor<float>& a, const Tensor<float>& b, const OutputView& to) {
  const Index rows = a.size(2), cols = a.size(3), heads = a.size(1);
  parallel_items(a.size(0) * heads, [&](Index head, int) {
    float* sums = a.data() + head * rows * cols;
    const float* others = b.data() + head * rows * cols;
    for (Index i = 0; i < rows * cols; ++i) sums[i] += others[i];
    store_rows(call, {sums, cols, rows, cols}, to, {head / heads, head % heads, 0, rows, 0, 0});
  });
}

AttendGradients empty_gradients(const Call& call) {
  AttendGradients gradients;
  if (call.options.bias.given()) gradients.dbias = Tensor<float>(shape_of(call.options.bias));
  if (!call.options.sink.empty()) gradients.dsink = Tensor<float>({call.sizes.q_heads});
  // Modifiers with parameters are not regrouped.
  gradients.dparameters.resize(call.options.score.chain().size());
  return gradients;
}

}  // namespace

AttendGradients differentiate_regrouped(const Call& call, const Regrouping& how, const BackwardViews& views) {
  if (!how.apart) {
    AttendGradients gradients = empty_gradients(call);
    run_residues(call, how, views, gradients);
    return gradients;
  }
  FloatGradients near(call), far(call);
  const AttendOptions options = options_apart(call, how);
  Call apart = call_with(call, options);
  const auto with = [&](FloatGradients& to) {
    return BackwardViews{{to.dq, to.dk, to.dv}, views.dout, views.forward, views.dlse};
  };
  AttendGradients gradients = differentiate(apart, with(near));
  run_residues(call, how, with(far), gradients);
  store_sum(call, near.dq, far.dq, views.gradients.dq);
  store_sum(call, near.dk, far.dk, views.gradients.dk);
  store_sum(call, near.dv, far.dv, views.gradients.dv);
  return gradients;
}

}  // namespace regard::detail
