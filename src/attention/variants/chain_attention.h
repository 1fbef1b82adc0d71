// What both forms of structured attention check, and where their links lie.
#pragma once

#include <array>
#include <cmath>
#include <string>

#include "attention/problem.h"
#include "regard/chain_attention.h"
#include "regard/error.h"

namespace regard::detail {

// links[a][b] of one head: states a, b of neighbouring keys, at 2 a + b.
using ChainLinks = std::array<double, 4>;

template <class T>
Index links_head(const View<const T, 3>& links, Index h) {
  return links.size(0) == 1 ? 0 : h;
}

template <class T>
ChainLinks links_of(const View<const T, 3>& links, Index h) {
  if (!links.given()) return {};
  const Index at = links_head(links, h);
  return {static_cast<double>(links(at, 0, 0)), static_cast<double>(links(at, 0, 1)),
          static_cast<double>(links(at, 1, 0)), static_cast<double>(links(at, 1, 1))};
}

template <class T>
Sizes check_chain(const char* call, const ChainInputs<T>& in) {
  const Sizes sizes = check_shapes(call, in.q.sizes(), in.k.sizes(), in.v.sizes());
  const auto refuse = [&](const std::string& what) { throw ArgumentError(std::string(call) + ": " + what); };
  if (in.scale && !std::isfinite(*in.scale)) refuse("scale is not finite");
  check_lengths(call, sizes, in.kv_lengths);
  if (!in.links.given()) return sizes;
  if ((in.links.size(0) != 1 && in.links.size(0) != sizes.q_heads) || in.links.size(1) != 2 || in.links.size(2) != 2)
    refuse("links " + in.links.text() + " must be [q_heads or 1,2,2] with " + std::to_string(sizes.q_heads) +
           " query heads");
  for (Index h = 0; h < in.links.size(0); ++h)
    for (double link : links_of(in.links, h))
      if (!std::isfinite(link)) refuse("links hold a number that is not finite");
  return sizes;
}

template <class T>
double chain_scale(const ChainInputs<T>& in, const Sizes& sizes) {
  return in.scale ? *in.scale : 1 / std::sqrt(static_cast<double>(sizes.head_dim));
}

template <class T>
Index chain_length(const ChainInputs<T>& in, const Sizes& sizes, Index b) {
  return in.kv_lengths.empty() ? sizes.kv_len : in.kv_lengths[static_cast<std::size_t>(b)];
}

}  // namespace regard::detail
