#include "regard/longformer.h"

#include <algorithm>

#include "nn/attend_heads.h"
#include "nn/node.h"
#include "regard/error.h"

namespace regard {
namespace {

using Positions = std::vector<std::vector<Index>>;  // one list per batch entry

[[noreturn]] void refuse(const std::string& what) { throw ArgumentError("LongformerAttention: " + what); }

template <class T>
Positions checked_positions(const LongformerCall<T>& call, Index batch, Index seq) {
  Positions lists = call.global_positions;
  if (lists.empty()) lists.emplace_back();
  if (lists.size() != 1 && static_cast<Index>(lists.size()) != batch)
    refuse("global_positions has " + std::to_string(lists.size()) + " lists but batch is " + std::to_string(batch));
  if (static_cast<Index>(lists.size()) != batch) lists.assign(static_cast<std::size_t>(batch), lists.front());
  for (Index b = 0; b < batch; ++b) {
    auto sorted = lists[static_cast<std::size_t>(b)];
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) refuse("global position " + std::to_string(*twice) + " is listed twice");
    for (Index position : sorted) {
      if (position < 0 || position >= seq)
        refuse("global position " + std::to_string(position) + " but seq is " + std::to_string(seq));
      if (!call.present.empty() && call.present[b * seq + position] == 0)
        refuse("global position " + std::to_string(position) + " of batch entry " + std::to_string(b) + " is padded");
    }
  }
  return lists;
}

template <class T>
Tensor<std::int64_t> checked_presence(const LongformerCall<T>& call, Index batch, Index seq) {
  if (call.present.empty()) return Tensor<std::int64_t>({batch, seq}, std::int64_t{1});
  if (call.present.shape() != Shape{batch, seq})
    refuse("present " + call.present.text() + " but the tokens are " + shape_text(Shape{batch, seq}));
  return call.present;
}

Index most_of(const Positions& lists) {
  std::size_t most = 0;
  for (const auto& list : lists) most = std::max(most, list.size());
  return static_cast<Index>(most);
}

// Real tokens that are not global see a window and the global tokens.
Mask local_mask(Index each_side, const Positions& lists, const Tensor<std::int64_t>& present) {
  const Index seq = present.size(1);
  Tensor<std::int64_t> rows = present, is_global(present.shape()), one(present.shape(), std::int64_t{1});
  for (std::size_t b = 0; b < lists.size(); ++b)
    for (Index position : lists[b]) {
      rows[static_cast<Index>(b) * seq + position] = 0;
      is_global[static_cast<Index>(b) * seq + position] = 1;
    }
  return (window(each_side, each_side) | documents(one, is_global)) & padding(rows, present, 0);
}

// Global tokens see every real token; places beyond an entry's list see none.
Mask global_mask(const Positions& lists, const Tensor<std::int64_t>& present) {
  Tensor<std::int64_t> rows({present.size(0), most_of(lists)});
  for (std::size_t b = 0; b < lists.size(); ++b)
    std::fill_n(rows.data() + static_cast<Index>(b) * rows.size(1), lists[b].size(), 1);
  return padding(rows, present, 0);
}

// work(row of x, row of the gathered tensor) for every global token; both counted
// over the whole batch.
template <class F>
void for_each_global(const Positions& lists, Index seq, F work) {
  const Index most = most_of(lists);
  for (std::size_t b = 0; b < lists.size(); ++b)
    for (std::size_t n = 0; n < lists[b].size(); ++n)
      work(static_cast<Index>(b) * seq + lists[b][n], static_cast<Index>(b) * most + static_cast<Index>(n));
}

// Adds row `from` of x to row `to` of y.
template <class T>
void add_row(const Tensor<T>& x, Index from, Tensor<T>& y, Index to) {
  const Index width = x.size(-1);
  for (Index d = 0; d < width; ++d) y[to * width + d] += x[from * width + d];
}

// x [batch, seq, width] -> the global tokens' rows [batch, most, width], zeros
// where an entry has fewer.
template <class T>
Var<T> gather(Tape<T>& tape, const Var<T>& x, const Positions& lists) {
  const Index seq = x->value.size(1);
  auto rows = tape.node(Tensor<T>({x->value.size(0), most_of(lists), x->value.size(2)}));
  for_each_global(lists, seq, [&](Index token, Index place) { add_row(x->value, token, rows->value, place); });
  tape.record([=] {
    if (rows->gradient.empty()) return;
    Tensor<T> dx(x->value.shape());
    for_each_global(lists, seq, [&](Index token, Index place) { add_row(rows->gradient, place, dx, token); });
    detail::pass_on(*x, std::move(dx));
  });
  return rows;
}

// x with the gathered rows added where they came from.
template <class T>
Var<T> put_back(Tape<T>& tape, const Var<T>& x, const Var<T>& rows, const Positions& lists) {
  const Index seq = x->value.size(1);
  auto sum = tape.node(x->value);
  for_each_global(lists, seq, [&](Index token, Index place) { add_row(rows->value, place, sum->value, token); });
  tape.record([=] {
    if (sum->gradient.empty()) return;
    Tensor<T> drows(rows->value.shape());
    for_each_global(lists, seq, [&](Index token, Index place) { add_row(sum->gradient, token, drows, place); });
    detail::pass_on(*rows, std::move(drows));
    detail::pass_on(*x, std::move(sum->gradient));
  });
  return sum;
}

}  // namespace

template <class T>
LongformerAttention<T>::LongformerAttention(const std::string& name, const LongformerConfig& given, Random& random)
    : config(given) {
  const Index width = config.model_dim;
  if (config.heads < 1 || width % config.heads != 0)
    throw ArgumentError(name + ": model_dim " + std::to_string(width) + " is not a multiple of " +
                        std::to_string(config.heads) + " heads");
  if (config.each_side < 0) throw ArgumentError(name + ": each_side is " + std::to_string(config.each_side));
  const auto linear = [&](const char* part, Index out) {
    return Linear<T>(name + part, width, out, random, config.bias);
  };
  query = linear(".query", width);
  key_value = linear(".key_value", 2 * width);
  global_query = linear(".global_query", width);
  global_key_value = linear(".global_key_value", 2 * width);
  output = linear(".output", width);
}

template <class T>
Var<T> LongformerAttention<T>::forward(Tape<T>& tape, const Var<T>& x, const LongformerCall<T>& call) {
  if (x->value.rank() != 3) refuse("x " + x->value.text() + " must be [batch, seq, model_dim]");
  const Index batch = x->value.size(0), seq = x->value.size(1);
  const auto present = checked_presence(call, batch, seq);
  const auto lists = checked_positions(call, batch, seq);
  const MultiHeadConfig heads{config.model_dim, config.heads, config.heads, config.dropout, config.bias};
  auto context = detail::attend_heads(tape, heads, query.forward(tape, x), key_value.forward(tape, x),
                                      {.mask = local_mask(config.each_side, lists, present), .seen = call.local});
  if (most_of(lists) > 0 || call.global) {
    const auto rows = detail::attend_heads(tape, heads, global_query.forward(tape, gather(tape, x, lists)),
                                           global_key_value.forward(tape, x),
                                           {.mask = global_mask(lists, present), .seen = call.global});
    context = put_back(tape, context, rows, lists);
  }
  return output.forward(tape, context);
}

template <class T>
void LongformerAttention<T>::collect(Parameters<T>& list) {
  for (Linear<T>* part : {&query, &key_value, &global_query, &global_key_value, &output}) part->collect(list);
}

template class LongformerAttention<float>;
template class LongformerAttention<double>;

}  // namespace regard
