// The recurrence backwards. With S' the decayed state, e = v - S'^T k (delta rule)
// or v, u = beta e or e, S = S' + k u^T, and G the gradient of S, a token gives
//
//   G  += scale q dout^T              dq = scale S dout
//   du  = G^T k                       dk = G u - S' de (delta rule)
//   dbeta = du . e, de = beta du      dv = de, or du without beta
//   G  -= k de^T (delta rule)         ddecay = rows of G . S'
//   G  <- diag(exp(decay)) G
//
// States before every chunk of tokens are kept from a first pass; those inside a
// chunk are computed again.
#include <algorithm>
#include <cmath>

#include "attention/variants/linear_recurrence.h"
#include "attention/variants/row_loops.h"
#include "regard/threads.h"

namespace regard {
namespace detail {
namespace {

constexpr Index chunk_tokens = 64;

using Floats = std::vector<float>;
Floats floats(Index count) { return Floats(static_cast<std::size_t>(count)); }

class RecurrenceBackward {
 public:
  RecurrenceBackward(const RecurrenceInputs<float>& in, const Sizes& sizes, RecurrenceGradients<float>& gradients,
                     Index head)
      : in_(in),
        sizes_(sizes),
        gradients_(gradients),
        b_(head / sizes.kv_heads),
        h_(head % sizes.kv_heads),
        head_(head),
        width_(sizes.value_dim),
        scale_(scale_of(in, sizes)),
        numbers_(floats(size())),
        slope_(floats(size())),
        decayed_(floats(chunk_tokens * size())),
        errors_(floats(chunk_tokens * width_)),
        dout_(floats(width_)),
        update_(floats(width_)),
        dupdate_(floats(width_)),
        state_(in, sizes, b_, h_, numbers_.data()) {}

  void run(const View<const float, 4>& dout, const View<const float, 4>& dstate) {
    const Index chunks = (sizes_.q_len + chunk_tokens - 1) / chunk_tokens;
    Floats before = floats(chunks * size());
    state_.start();
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      std::copy(numbers_.begin(), numbers_.end(), before.begin() + chunk * size());
      replay(chunk);
    }
    for (Index r = 0; r < sizes_.head_dim && dstate.given(); ++r)
      for (Index d = 0; d < width_; ++d) slope(r)[d] = dstate(b_, h_, r, d);
    for (Index chunk = chunks - 1; chunk >= 0; --chunk) {
      std::copy_n(before.begin() + chunk * size(), size(), numbers_.begin());
      replay(chunk);
      for (Index t = end_of(chunk) - 1; t >= chunk * chunk_tokens; --t) step_back(t, dout);
    }
    if (in_.state.given()) std::copy(slope_.begin(), slope_.end(), gradients_.dstate.data() + head_ * size());
  }

 private:
  Index size() const { return sizes_.head_dim * sizes_.value_dim; }
  Index end_of(Index chunk) const { return std::min(sizes_.q_len, (chunk + 1) * chunk_tokens); }
  float* slope(Index r) { return slope_.data() + r * width_; }
  float* decayed(Index t, Index r) { return decayed_.data() + t % chunk_tokens * size() + r * width_; }
  float* error(Index t) { return errors_.data() + t % chunk_tokens * width_; }
  Index token(Index t) const { return head_ * sizes_.q_len + t; }

  void replay(Index chunk) {
    for (Index t = chunk * chunk_tokens; t < end_of(chunk); ++t) {
      state_.decay(t);
      std::copy(numbers_.begin(), numbers_.end(), decayed(t, 0));
      state_.add_token(t, error(t));
    }
  }

  void step_back(Index t, const View<const float, 4>& dout) {
    const float beta = in_.beta.given() ? beta_of(in_, b_, h_, t) : 1.0f;
    std::copy_n(error(t), width_, update_.begin());
    scale_row(update_.data(), beta, width_);
    for (Index reader = h_ * sizes_.group(); reader < (h_ + 1) * sizes_.group(); ++reader) unread(reader, t, dout);
    unwrite(t);
    if (in_.beta.given()) undo_delta(t, beta);
    std::copy_n(dupdate_.begin(), width_, gradients_.dv.data() + token(t) * width_);
    if (in_.decay.given()) undo_decay(t);
  }

  void unread(Index reader, Index t, const View<const float, 4>& dout) {
    for (Index d = 0; d < width_; ++d) dout_[static_cast<std::size_t>(d)] = dout(b_, reader, t, d);
    float* dq = gradients_.dq.data() + ((b_ * sizes_.q_heads + reader) * sizes_.q_len + t) * sizes_.head_dim;
    const float from_update = dot_rows(update_.data(), dout_.data(), width_);
    for (Index r = 0; r < sizes_.head_dim; ++r) {
      dq[r] = scale_ * (dot_rows(decayed(t, r), dout_.data(), width_) + in_.k(b_, h_, t, r) * from_update);
      add_times(slope(r), dout_.data(), scale_ * in_.q(b_, reader, t, r), width_);
    }
  }

  void unwrite(Index t) {
    float* dk = gradients_.dk.data() + token(t) * sizes_.head_dim;
    std::fill(dupdate_.begin(), dupdate_.end(), 0.0f);
    for (Index r = 0; r < sizes_.head_dim; ++r) {
      dk[r] = dot_rows(slope(r), update_.data(), width_);
      add_times(dupdate_.data(), slope(r), in_.k(b_, h_, t, r), width_);
    }
  }

  // dupdate becomes the gradient of the error.
  void undo_delta(Index t, float beta) {
    dbeta_of(t) = dot_rows(dupdate_.data(), error(t), width_);
    scale_row(dupdate_.data(), beta, width_);
    float* dk = gradients_.dk.data() + token(t) * sizes_.head_dim;
    for (Index r = 0; r < sizes_.head_dim; ++r) {
      dk[r] -= dot_rows(decayed(t, r), dupdate_.data(), width_);
      add_times(slope(r), dupdate_.data(), -in_.k(b_, h_, t, r), width_);
    }
  }

  void undo_decay(Index t) {
    const bool one = in_.decay.size(3) == 1;
    float* ddecay = gradients_.ddecay.data() + token(t) * in_.decay.size(3);
    if (one) *ddecay = 0.0f;
    for (Index r = 0; r < sizes_.head_dim; ++r) {
      const float share = dot_rows(slope(r), decayed(t, r), width_);
      if (one)
        *ddecay += share;
      else
        ddecay[r] = share;
      scale_row(slope(r), std::exp(decay_of(in_, {b_, h_, t}, r)), width_);
    }
  }

  // One a head; heads that share a beta are summed afterwards.
  float& dbeta_of(Index t) { return gradients_.dbeta[token(t)]; }

  const RecurrenceInputs<float>& in_;
  const Sizes& sizes_;
  RecurrenceGradients<float>& gradients_;
  Index b_, h_, head_, width_;
  float scale_;
  Floats numbers_, slope_, decayed_, errors_, dout_, update_, dupdate_;
  RecurrenceState state_;
};

// [batch, heads, len] -> [batch, 1, len]
Tensor<float> sum_over_heads(const Tensor<float>& each) {
  const Index heads = each.size(1), len = each.size(2);
  Tensor<float> sums({each.size(0), 1, len});
  for (Index row = 0; row < each.size(0) * heads; ++row)
    add_row(sums.data() + row / heads * len, each.data() + row * len, len);
  return sums;
}

}  // namespace
}  // namespace detail

RecurrenceGradients<float> linear_recurrence_backward(View<const float, 4> dout, const RecurrenceInputs<float>& inputs,
                                                      View<const float, 4> dstate) {
  const char* name = "linear_recurrence_backward";
  const auto sizes = detail::check_recurrence(name, inputs);
  detail::check_recurrence_gradients(name, sizes, dout, dstate);
  const auto like = [](const auto& x) {
    return x.given() ? Tensor<float>::uninitialised(detail::shape_of(x)) : Tensor<float>();
  };
  RecurrenceGradients<float> gradients{like(inputs.q),    like(inputs.k), like(inputs.v), like(inputs.decay), {},
                                       like(inputs.state)};
  if (inputs.beta.given()) gradients.dbeta = Tensor<float>::uninitialised({sizes.batch, sizes.kv_heads, sizes.kv_len});
  parallel_items(sizes.batch * sizes.kv_heads, [&](Index head, int) {
    detail::RecurrenceBackward(inputs, sizes, gradients, head).run(dout, dstate);
  });
  if (inputs.beta.given() && inputs.beta.size(1) != sizes.kv_heads)
    gradients.dbeta = detail::sum_over_heads(gradients.dbeta);
  return gradients;
}

}  // namespace regard
