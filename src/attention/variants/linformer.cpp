// Linformer: projections along the sequence around exact attention.
#include "regard/linformer.h"

#include <algorithm>
#include <string>

#include "attention/call.h"
#include "attention/variants/products.h"
#include "regard/error.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

// Positions that are packed, or whose gradient is computed, at a time.
constexpr Index position_block = 256;

template <class T>
const View<const T, 3>& value_projection(const LinformerProjections<T>& projections) {
  return projections.values.given() ? projections.values : projections.keys;
}

template <class T>
void check_projection(const char* call, const char* name, const View<const T, 3>& table, const Sizes& sizes) {
  if ((table.size(0) != 1 && table.size(0) != sizes.kv_heads) || table.size(2) < sizes.kv_len)
    throw ArgumentError(std::string(call) + ": " + name + " " + table.text() +
                        " needs [kv_heads or 1,slots,length] with " + std::to_string(sizes.kv_heads) +
                        " heads and a length of at least kv_len " + std::to_string(sizes.kv_len));
}

template <class T>
Sizes check_linformer(const char* call, const LinformerInputs<T>& in) {
  const Sizes sizes = check_shapes(call, in.q.sizes(), in.k.sizes(), in.v.sizes());
  if (in.options.causal)
    throw ArgumentError(std::string(call) +
                        ": causal is not possible: each projected key mixes all positions, later "
                        "ones too; use attend with causal() or a window instead");
  check_projection(call, "projections.keys", in.projections.keys, sizes);
  check_projection(call, "projections.values", value_projection(in.projections), sizes);
  if (value_projection(in.projections).size(1) != in.projections.keys.size(1))
    throw ArgumentError(std::string(call) + ": projections.keys " + in.projections.keys.text() +
                        " and projections.values " + in.projections.values.text() + " have different slots");
  const auto& mask = in.options.key_mask;
  if (mask.given() && ((mask.size(0) != 1 && mask.size(0) != sizes.batch) || mask.size(1) != sizes.kv_len))
    throw ArgumentError(std::string(call) + ": key_mask " + mask.text() +
                        " needs [batch or 1,kv_len] = " + shape_text(Shape{sizes.batch, sizes.kv_len}));
  return sizes;
}

template <class T>
bool is_real(const LinformerOptions<T>& options, Index b, Index key) {
  const auto& mask = options.key_mask;
  return !mask.given() || mask(mask.size(0) == 1 ? 0 : b, key) != 0;
}

// Rows [key, key + count) of keys or values, with zeros for padded ones.
kernels::Matrix real_rows(const LinformerInputs<float>& in, const View<const float, 4>& x, const Spot& spot,
                          Scratch& copy) {
  const kernels::Matrix rows = rows_of(x, spot.b, spot.h, spot.key, spot.keys);
  if (!in.options.key_mask.given()) return rows;
  copy.resize(rows.rows, rows.depth);
  for (Index j = 0; j < rows.rows; ++j)
    for (Index d = 0; d < rows.depth; ++d)
      copy.row(j)[d] = is_real(in.options, spot.b, spot.key + j) ? element(rows, j, d) : 0.0f;
  return copy.matrix();
}

// Columns [key, key + count) of one head's projection, [slots, count].
kernels::Matrix projection_part(const View<const float, 3>& table, Index h, Index key, Index count) {
  const float* first = table.data() + (table.size(0) == 1 ? 0 : h) * table.stride(0) + key * table.stride(2);
  return {first, table.size(1), count, table.stride(1), table.stride(2)};
}

// [batch, kv_heads, slots, dim] = table . x, padded rows of x as zeros.
Tensor<float> projected(const LinformerInputs<float>& in, const View<const float, 4>& x,
                        const View<const float, 3>& table) {
  const Index kv_heads = x.size(1), kv_len = x.size(2), dim = x.size(3), slots = table.size(1);
  auto result = Tensor<float>::uninitialised({x.size(0), kv_heads, slots, dim});
  parallel_items(x.size(0) * kv_heads, [&](Index item, int) {
    Scratch sums(slots, dim), copy;
    PackedMatrix panels;
    sums.zero();
    for (Index key = 0; key < kv_len; key += position_block) {
      const Index keys = std::min(position_block, kv_len - key), h = item % kv_heads;
      panels.pack(real_rows(in, x, {item / kv_heads, h, 0, 0, key, keys}, copy));
      multiply(sums, projection_part(table, h, key, keys), panels, Into::sum);
    }
    for (Index s = 0; s < slots; ++s) std::copy_n(sums.row(s), dim, result.data() + (item * slots + s) * dim);
  });
  return result;
}

// dx = table^T . dprojected; zeros for padded rows.
Tensor<float> unprojected(const LinformerInputs<float>& in, const Tensor<float>& dprojected, Index kv_len,
                          const View<const float, 3>& table) {
  const Index kv_heads = dprojected.size(1), slots = dprojected.size(2), dim = dprojected.size(3);
  Tensor<float> dx({dprojected.size(0), kv_heads, kv_len, dim});
  parallel_items(dprojected.size(0) * kv_heads, [&](Index item, int) {
    PackedMatrix panels;
    panels.pack({dprojected.data() + item * slots * dim, slots, dim, dim, 1});
    Scratch part, columns;
    for (Index key = 0; key < kv_len; key += position_block) {
      const Index keys = std::min(position_block, kv_len - key);
      part.resize(keys, dim);
      // Copied first: the slots of one position may lie a large power of two apart.
      columns.resize(slots, keys);
      const kernels::Matrix from = projection_part(table, item % kv_heads, key, keys);
      for (Index s = 0; s < slots; ++s) copy_row(from, s, columns.row(s));
      multiply(part, transposed(columns.matrix()), panels);
      for (Index j = 0; j < keys; ++j)
        if (is_real(in.options, item / kv_heads, key + j))
          std::copy_n(part.row(j), dim, dx.data() + (item * kv_len + key + j) * dim);
    }
  });
  return dx;
}

// dtable [kv_heads or 1, slots, length] += dprojected . x^T, summed over the
// batch and, where heads share, over heads, in order. An item is a run of
// columns of one head's projection.
void add_projection_gradient(const LinformerInputs<float>& in, const View<const float, 4>& x,
                             const Tensor<float>& dprojected, Tensor<float>& dtable) {
  const Index kv_heads = x.size(1), kv_len = x.size(2), dim = x.size(3), slots = dprojected.size(2);
  const Index tables = dtable.size(0), length = dtable.size(2);
  const Index blocks = (kv_len + position_block - 1) / position_block;
  parallel_items(tables * blocks, [&](Index item, int) {
    const Index key = item % blocks * position_block, keys = std::min(position_block, kv_len - key);
    const Index first_head = tables == 1 ? 0 : item / blocks, heads = tables == 1 ? kv_heads : 1;
    Scratch sums(slots, keys), copy;
    PackedMatrix panels;
    sums.zero();
    for (Index n = 0; n < x.size(0) * heads; ++n) {
      const Index b = n / heads, h = first_head + n % heads;
      panels.pack(transposed(real_rows(in, x, {b, h, 0, 0, key, keys}, copy)));
      multiply(sums, {dprojected.data() + (b * kv_heads + h) * slots * dim, slots, dim, dim, 1}, panels, Into::sum);
    }
    for (Index s = 0; s < slots; ++s) {
      float* to = dtable.data() + (item / blocks * slots + s) * length + key;
      for (Index j = 0; j < keys; ++j) to[j] += sums.row(s)[j];
    }
  });
}

AttendOptions attend_options(const LinformerOptions<float>& options) {
  AttendOptions known;
  known.scale = options.scale;
  known.observe.lse = true;
  return known;
}

}  // namespace
}  // namespace detail

LinformerResult<float> linformer_attend(const LinformerInputs<float>& in) {
  detail::check_linformer("linformer_attend", in);
  LinformerResult<float> result;
  result.keys = detail::projected(in, in.k, in.projections.keys);
  result.values = detail::projected(in, in.v, detail::value_projection(in.projections));
  auto attended = attend(in.q, result.keys, result.values, detail::attend_options(in.options));
  result.out = std::move(attended.out);
  result.lse = std::move(attended.lse);
  return result;
}

LinformerGradients linformer_attend_backward(View<const float, 4> dout, const LinformerInputs<float>& in,
                                             const LinformerResult<float>& forward) {
  const char* name = "linformer_attend_backward";
  const auto sizes = detail::check_linformer(name, in);
  const Index slots = in.projections.keys.size(1);
  detail::check_equal(name, "forward.keys", forward.keys.shape(), {sizes.batch, sizes.kv_heads, slots, sizes.head_dim});
  detail::check_equal(name, "forward.values", forward.values.shape(),
                      {sizes.batch, sizes.kv_heads, slots, sizes.value_dim});
  const auto attended =
      attend_backward(dout, in.q, forward.keys, forward.values, {forward.out.view<4>(), forward.lse.view<3>()},
                      detail::attend_options(in.options));
  const auto& values = detail::value_projection(in.projections);
  LinformerGradients gradients;
  gradients.dq = attended.dq;
  gradients.dk = detail::unprojected(in, attended.dk, sizes.kv_len, in.projections.keys);
  gradients.dv = detail::unprojected(in, attended.dv, sizes.kv_len, values);
  gradients.dkeys = Tensor<float>(detail::shape_of(in.projections.keys));
  detail::add_projection_gradient(in, in.k, attended.dk, gradients.dkeys);
  if (in.projections.values.given()) gradients.dvalues = Tensor<float>(detail::shape_of(values));
  detail::add_projection_gradient(in, in.v, attended.dv,
                                  in.projections.values.given() ? gradients.dvalues : gradients.dkeys);
  return gradients;
}

namespace reference {
namespace {

Tensor<double> projected(const LinformerInputs<double>& in, const View<const double, 4>& x,
                         const View<const double, 3>& table) {
  Tensor<double> result({x.size(0), x.size(1), table.size(1), x.size(3)});
  const auto to = result.view<4>();
  for (Index b = 0; b < x.size(0); ++b)
    for (Index h = 0; h < x.size(1); ++h)
      for (Index s = 0; s < table.size(1); ++s)
        for (Index j = 0; j < x.size(2); ++j)
          for (Index d = 0; d < x.size(3) && detail::is_real(in.options, b, j); ++d)
            to(b, h, s, d) += table(table.size(0) == 1 ? 0 : h, s, j) * x(b, h, j, d);
  return result;
}

}  // namespace

LinformerResult<double> linformer_attend(const LinformerInputs<double>& in) {
  detail::check_linformer("reference::linformer_attend", in);
  LinformerResult<double> result;
  result.keys = projected(in, in.k, in.projections.keys);
  result.values = projected(in, in.v, detail::value_projection(in.projections));
  auto attended = attend(in.q, result.keys, result.values, {.scale = in.options.scale, .observe = {.lse = true}});
  result.out = std::move(attended.out);
  result.lse = std::move(attended.lse);
  return result;
}

}  // namespace reference

}  // namespace regard
