// Short sequences in batches too large for the caches: while one head is
// computed, the next one's memory is asked for.
#include "attention/cases.h"
#include "regard/cpu.h"

namespace regard {
namespace {

using namespace testing;

constexpr CaseSizes entry_sizes{
    .q_heads = 4, .kv_heads = 2, .q_len = 33, .kv_len = 30, .head_dim = 40, .value_dim = 24};

// So many entries that queries alone outgrow half of the last-level cache, as far
// as 64 MiB go.
CaseSizes large_sizes() {
  CaseSizes sizes = entry_sizes;
  const std::int64_t bytes_of_queries = 4 * sizes.q_heads * sizes.q_len * sizes.head_dim;
  sizes.batch = std::min<std::int64_t>(cache_sizes().l3 / 2, std::int64_t{64} << 20) / bytes_of_queries + 1;
  return sizes;
}

// Entry b of a [batch, ...] tensor as a batch of its own.
Tensor<float> entry(const Tensor<float>& all, Index b) {
  Shape shape = all.shape();
  const Index count = all.count() / shape[0];
  shape[0] = 1;
  Tensor<float> one(shape);
  std::copy_n(all.data() + b * count, count, one.data());
  return one;
}

struct Passes {
  Tensor<float> out;
  AttendGradients gradients;
};
Passes passes(const Inputs& in, const Tensor<float>& dout, const std::vector<std::int64_t>& lengths) {
  const AttendOptions options{.mask = causal(), .kv_lengths = lengths};
  return {attend(in.q, in.k, in.v, options).out, backward_of(in, dout, options)};
}

TEST(short_heads, of_a_batch_beyond_the_caches_have_the_bits_they_have_alone) {
  const CaseSizes sizes = large_sizes();
  const Inputs in = random_inputs(sizes);
  const Tensor<float> dout = normal({sizes.batch, sizes.q_heads, sizes.q_len, sizes.value_dim}, 5);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(sizes.batch), sizes.kv_len);
  lengths[0] = 7;
  lengths.back() = 0;
  const auto all = passes(in, dout, lengths);
  for (const Index b : {Index{0}, Index{1}, sizes.batch / 2, sizes.batch - 2, sizes.batch - 1}) {
    SCOPED_TRACE(b);
    const auto one = passes({entry(in.q, b), entry(in.k, b), entry(in.v, b)}, entry(dout, b),
                            {lengths[static_cast<std::size_t>(b)]});
    EXPECT_TRUE(same_bits(entry(all.out, b), one.out));
    EXPECT_TRUE(same_bits(entry(all.gradients.dq, b), one.gradients.dq));
    EXPECT_TRUE(same_bits(entry(all.gradients.dk, b), one.gradients.dk));
    EXPECT_TRUE(same_bits(entry(all.gradients.dv, b), one.gradients.dv));
  }
}

}  // namespace
}  // namespace regard
