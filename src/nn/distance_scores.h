// Scores of tokens against vectors of distances, one head at a time: a small matrix
// [seq, distances], from which pairs pick by how far they stand apart.
#pragma once

#include "nn/node.h"

namespace regard::detail {

// One head of projected tokens, or of vectors: row i at data + i * stride.
template <class T>
struct Rows {
  T* data;
  Index stride;
  T* operator[](Index i) const { return data + i * stride; }
};

template <class T>
T dot(const T* a, const T* b, Index count) {
  return blocked_sum<T>(count, [=](Index d) { return a[d] * b[d]; });
}

// scores[i, r] = tokens_i . vectors_r, for `seq` tokens and `count` vectors.
template <class T>
Tensor<T> against_vectors(const Rows<const T>& tokens, const Rows<const T>& vectors, const Shape& seq_and_count,
                          Index dim) {
  const Index seq = seq_and_count[0], count = seq_and_count[1];
  auto scores = Tensor<T>::uninitialised({seq, count});
  for (Index i = 0; i < seq; ++i)
    for (Index r = 0; r < count; ++r) scores[i * count + r] = dot(tokens[i], vectors[r], dim);
  return scores;
}

// Tokens and vectors, or their gradients.
template <class T>
struct TokensAndVectors {
  Rows<T> tokens, vectors;
};

// The way back: both gain what `dscores` gives them.
template <class T>
void add_from_scores(const Tensor<T>& dscores, const TokensAndVectors<const T>& x, const TokensAndVectors<T>& dx,
                     Index dim) {
  const Index count = dscores.size(1);
  for (Index i = 0; i < dscores.size(0); ++i)
    for (Index r = 0; r < count; ++r) {
      const T slope = dscores[i * count + r];
      for (Index d = 0; d < dim && slope != 0; ++d) {
        dx.tokens[i][d] += slope * x.vectors[r][d];
        dx.vectors[r][d] += slope * x.tokens[i][d];
      }
    }
}

}  // namespace regard::detail
