// Structured attention over a chain, a block of query rows at a time: scores and
// weighted sums by the kernels' product, the chain itself in double.
//
// A message of forward-backward is one number here, the log odds of "on" against
// "off", so that nothing can overflow and no normaliser is kept:
//
//   before_0 = s_0,  before_j+1 = s_j+1 + step(before_j)
//   after_n-1 = 0,   after_j = step^T(s_j+1 + after_j+1)
//   marginal_j = logistic(before_j + after_j)
#include "attention/variants/chain_attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "attention/call.h"
#include "attention/variants/products.h"
#include "attention/variants/row_loops.h"
#include "regard/threads.h"

namespace regard {
namespace {

using detail::ChainLinks;
using detail::PackedMatrix;
using detail::rows_of;
using detail::Scratch;
using detail::Sizes;

constexpr Index row_block = 64;

double logistic(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

double log_add(double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }

ChainLinks turned(const ChainLinks& links) { return {links[0], links[2], links[1], links[3]}; }

// Log odds that the next key is on, from those of this one, before its own score.
double step(const ChainLinks& links, double odds) {
  return log_add(links[1], links[3] + odds) - log_add(links[0], links[2] + odds);
}

// How `step` moves with the odds, and with each link.
struct StepSlopes {
  double odds;
  ChainLinks links;
};
StepSlopes slopes_of_step(const ChainLinks& links, double odds) {
  const double on = logistic(links[3] + odds - links[1]), off = logistic(links[2] + odds - links[0]);
  return {on - off, {-(1 - off), 1 - on, -off, on}};
}

// One query's chain; the vectors are used again from row to row.
class Chain {
 public:
  Chain(const ChainLinks& links, Index length)
      : links_(links),
        back_(turned(links)),
        before_(static_cast<std::size_t>(length)),
        after_(before_),
        marginals_(before_),
        rises_(before_) {}

  const std::vector<double>& run(const float* scores) {
    const std::size_t n = before_.size();
    before_[0] = static_cast<double>(scores[0]);
    for (std::size_t j = 1; j < n; ++j) before_[j] = static_cast<double>(scores[j]) + step(links_, before_[j - 1]);
    after_[n - 1] = 0;
    for (std::size_t j = n - 1; j-- > 0;) after_[j] = step(back_, static_cast<double>(scores[j + 1]) + after_[j + 1]);
    for (std::size_t j = 0; j < n; ++j) marginals_[j] = logistic(before_[j] + after_[j]);
    return marginals_;
  }

  // After run: slopes of sum_j dmarginals_j marginals_j for the scores, written over
  // `dmarginals`; those for the links are added.
  void run_back(const float* scores, float* dmarginals, ChainLinks& dlinks) {
    const std::size_t n = before_.size();
    for (std::size_t j = 0; j < n; ++j)
      rises_[j] = static_cast<double>(dmarginals[j]) * marginals_[j] * (1 - marginals_[j]);
    ChainLinks dturned = {};
    double from_left = rises_[0];
    dmarginals[0] = 0;
    for (std::size_t j = 1; j < n; ++j) {
      const StepSlopes slopes = slopes_of_step(back_, static_cast<double>(scores[j]) + after_[j]);
      add(dturned, slopes.links, from_left);
      const double passed = slopes.odds * from_left;
      dmarginals[j] = static_cast<float>(passed);
      from_left = rises_[j] + passed;
    }
    double from_right = rises_[n - 1];
    for (std::size_t j = n; j-- > 0;) {
      dmarginals[j] += static_cast<float>(from_right);
      if (j == 0) break;
      const StepSlopes slopes = slopes_of_step(links_, before_[j - 1]);
      add(dlinks, slopes.links, from_right);
      from_right = rises_[j - 1] + slopes.odds * from_right;
    }
    add(dlinks, turned(dturned), 1);
  }

 private:
  static void add(ChainLinks& to, const ChainLinks& slopes, double factor) {
    for (std::size_t n = 0; n < to.size(); ++n) to[n] += factor * slopes[n];
  }

  ChainLinks links_, back_;
  std::vector<double> before_, after_, marginals_, rises_;
};

// A block of one head's queries and what it computes with.
struct Block {
  const ChainInputs<float>& in;
  const Sizes& sizes;
  Index b, h;
  Index length() const { return detail::chain_length(in, sizes, b); }
  Index group() const { return h / sizes.group(); }
  kernels::Matrix keys() const { return rows_of(in.k, b, group(), 0, length()); }
  kernels::Matrix values() const { return rows_of(in.v, b, group(), 0, length()); }
};

void forward_head(const Block& at, ChainResult<float>& result) {
  const Sizes& sizes = at.sizes;
  const Index length = at.length(), head = at.b * sizes.q_heads + at.h;
  if (length == 0) return;
  PackedMatrix keys, values;
  keys.pack(detail::transposed(at.keys()), static_cast<float>(detail::chain_scale(at.in, sizes)));
  values.pack(at.values());
  Scratch scores(row_block, length), out(row_block, sizes.value_dim);
  Chain chain(detail::links_of(at.in.links, at.h), length);
  for (Index row = 0; row < sizes.q_len; row += row_block) {
    const Index rows = std::min(row_block, sizes.q_len - row);
    detail::multiply(scores, rows_of(at.in.q, at.b, at.h, row, rows), keys);
    for (Index i = 0; i < rows; ++i) {
      const auto& marginals = chain.run(scores.row(i));
      std::transform(marginals.begin(), marginals.end(), scores.row(i), [](double p) { return static_cast<float>(p); });
      if (!result.marginals.empty())
        std::copy_n(scores.row(i), length, result.marginals.data() + (head * sizes.q_len + row + i) * sizes.kv_len);
    }
    detail::multiply(out, scores.matrix(0, rows), values);
    for (Index i = 0; i < rows; ++i)
      std::copy_n(out.row(i), sizes.value_dim, result.out.data() + (head * sizes.q_len + row + i) * sizes.value_dim);
  }
}

// Gradients of one key head, from all query heads of its group in turn.
class HeadGradient {
 public:
  HeadGradient(const ChainInputs<float>& in, const Sizes& sizes, View<const float, 4> dout)
      : in_(in), sizes_(sizes), dout_(dout), scale_(static_cast<float>(detail::chain_scale(in, sizes))) {}

  // dlinks [batch, q_heads], of every head apart.
  void run(Index b, Index kv_head, ChainGradients& gradients, std::vector<ChainLinks>& dlinks) {
    const Index length = detail::chain_length(in_, sizes_, b), first = kv_head * sizes_.group();
    if (length == 0) return;
    dk_.resize(length, sizes_.head_dim);
    dv_.resize(length, sizes_.value_dim);
    dk_.zero();
    dv_.zero();
    const Block at{in_, sizes_, b, first};
    keys_.pack(detail::transposed(at.keys()), scale_);
    key_rows_.pack(at.keys(), scale_);
    value_columns_.pack(detail::transposed(at.values()));
    for (Index h = first; h < first + sizes_.group(); ++h)
      run_head({in_, sizes_, b, h}, gradients, dlinks[static_cast<std::size_t>(b * sizes_.q_heads + h)]);
    store(dk_, length, gradients.dk, b * sizes_.kv_heads + kv_head, sizes_.kv_len);
    store(dv_, length, gradients.dv, b * sizes_.kv_heads + kv_head, sizes_.kv_len);
  }

 private:
  void run_head(const Block& at, ChainGradients& gradients, ChainLinks& all_links) {
    const Index length = at.length();
    ChainLinks dlinks = {};  // of its own: neighbours in memory belong to other threads
    Chain chain(detail::links_of(in_.links, at.h), length);
    scores_.resize(row_block, length);
    slopes_.resize(row_block, length);
    Scratch dq(row_block, sizes_.head_dim);
    for (Index row = 0; row < sizes_.q_len; row += row_block) {
      const Index rows = std::min(row_block, sizes_.q_len - row);
      const kernels::Matrix q = rows_of(in_.q, at.b, at.h, row, rows), dout = rows_of(dout_, at.b, at.h, row, rows);
      detail::multiply(scores_, q, keys_);
      detail::multiply(slopes_, dout, value_columns_);
      for (Index i = 0; i < rows; ++i) {
        const auto& marginals = chain.run(scores_.row(i));
        chain.run_back(scores_.row(i), slopes_.row(i), dlinks);
        std::transform(marginals.begin(), marginals.end(), scores_.row(i),
                       [](double p) { return static_cast<float>(p); });
      }
      detail::multiply(dq, slopes_.matrix(0, rows), key_rows_);
      for (Index i = 0; i < rows; ++i)
        std::copy_n(dq.row(i), sizes_.head_dim,
                    gradients.dq.data() + ((at.b * sizes_.q_heads + at.h) * sizes_.q_len + row + i) * sizes_.head_dim);
      add_transposed(dk_, slopes_, rows, q, scale_);
      add_transposed(dv_, scores_, rows, dout, 1.0f);
    }
    all_links = dlinks;
  }

  // to += factor * left^T . right, over the block's rows.
  void add_transposed(Scratch& to, const Scratch& left, Index rows, const kernels::Matrix& right, float factor) {
    right_.pack(right, factor);
    detail::multiply(to, detail::transposed(left.matrix(0, rows)), right_, detail::Into::sum);
  }

  static void store(const Scratch& from, Index length, Tensor<float>& to, Index head, Index all) {
    for (Index j = 0; j < length; ++j)
      std::copy_n(from.row(j), from.cols(), to.data() + (head * all + j) * from.cols());
  }

  const ChainInputs<float>& in_;
  const Sizes& sizes_;
  View<const float, 4> dout_;
  float scale_;
  Scratch dk_, dv_, scores_, slopes_;
  PackedMatrix keys_, key_rows_, value_columns_, right_;
};

// Heads' shares in order of the batch; all of them where heads share the links.
Tensor<float> summed_links(const ChainInputs<float>& in, const Sizes& sizes, const std::vector<ChainLinks>& parts) {
  if (!in.links.given()) return {};
  Tensor<double> sums({in.links.size(0), 2, 2});
  for (std::size_t item = 0; item < parts.size(); ++item)
    for (std::size_t n = 0; n < 4; ++n)
      sums[4 * detail::links_head(in.links, static_cast<Index>(item) % sizes.q_heads) + static_cast<Index>(n)] +=
          parts[item][n];
  Tensor<float> rounded(sums.shape());
  std::transform(sums.values().begin(), sums.values().end(), rounded.values().begin(),
                 [](double x) { return static_cast<float>(x); });
  return rounded;
}

}  // namespace

ChainResult<float> chain_attend(const ChainInputs<float>& in, bool marginals) {
  const Sizes sizes = detail::check_chain("chain_attend", in);
  ChainResult<float> result;
  result.out = Tensor<float>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim});
  if (marginals) result.marginals = Tensor<float>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.kv_len});
  parallel_items(sizes.batch * sizes.q_heads, [&](Index item, int) {
    forward_head({in, sizes, item / sizes.q_heads, item % sizes.q_heads}, result);
  });
  return result;
}

ChainGradients chain_attend_backward(View<const float, 4> dout, const ChainInputs<float>& in) {
  const char* call = "chain_attend_backward";
  const Sizes sizes = detail::check_chain(call, in);
  const detail::Sizes4 wanted{sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim};
  if (dout.sizes() != wanted)
    throw ArgumentError(std::string(call) + ": dout " + dout.text() + " must have the shape of out " +
                        shape_text({wanted[0], wanted[1], wanted[2], wanted[3]}));
  ChainGradients gradients{Tensor<float>({sizes.batch, sizes.q_heads, sizes.q_len, sizes.head_dim}),
                           Tensor<float>({sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.head_dim}),
                           Tensor<float>({sizes.batch, sizes.kv_heads, sizes.kv_len, sizes.value_dim}),
                           {}};
  std::vector<ChainLinks> dlinks(static_cast<std::size_t>(sizes.batch * sizes.q_heads));
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index item, int) {
    HeadGradient(in, sizes, dout).run(item / sizes.kv_heads, item % sizes.kv_heads, gradients, dlinks);
  });
  gradients.dlinks = summed_links(in, sizes, dlinks);
  return gradients;
}

}  // namespace regard
