// Linear attention: the feature map elu(x) + 1.
#include "regard/linear_attention.h"

#include <algorithm>
#include <string>

#include "attention/variants/feature_attention.h"
#include "attention/variants/feature_decoder.h"
#include "attention/variants/plain_features.h"
#include "attention/variants/row_loops.h"

namespace regard {
namespace detail {
namespace {

// elu(x) + 1 = x + 1 above 0, exp(x) below.
class EluMap final : public FeatureMap {
 public:
  explicit EluMap(Index head_dim) : head_dim_(head_dim) {}
  Index count() const override { return head_dim_; }
  bool gives_exponents() const override { return false; }

  void map(const kernels::Matrix& x, Scratch& to) const override {
    Scratch above(x.rows, head_dim_);
    for (Index i = 0; i < x.rows; ++i) {
      copy_row(x, i, to.row(i));
      split_signs(to.row(i), above.row(i), head_dim_);
    }
    const std::vector<float> zeros(static_cast<std::size_t>(x.rows), 0.0f), ones(zeros.size(), 1.0f);
    kernels::active().weights({to.row(0), to.stride(), x.rows, head_dim_}, zeros.data(), ones.data());
    for (Index i = 0; i < x.rows; ++i) add_row(to.row(i), above.row(i), head_dim_);
  }

  // The slope is 1 above 0 and the feature itself below.
  void back(const kernels::Matrix& x, Scratch& dto, Scratch& dx) const override {
    dx.resize(x.rows, head_dim_);
    map(x, dx);
    for (Index i = 0; i < x.rows; ++i)
      for (Index d = 0; d < head_dim_; ++d) {
        float& to = dx.row(i)[d];
        to = dto.row(i)[d] * std::min(to, 1.0f);
      }
  }

 private:
  Index head_dim_;
};

}  // namespace
}  // namespace detail

LinearResult<float> linear_attend(const LinearInputs& inputs, const LinearOptions& options) {
  const detail::EluMap map(inputs.q.size(3));
  return detail::feature_attend(detail::make_feature_call("linear_attend", inputs, options, map));
}

LinearGradients linear_attend_backward(View<const float, 4> dout, const LinearInputs& inputs,
                                       const LinearResult<float>& forward, const LinearOptions& options) {
  const char* name = "linear_attend_backward";
  const detail::EluMap map(inputs.q.size(3));
  const auto call = detail::make_feature_call(name, inputs, options, map);
  detail::check_feature_backward(name, call, dout, forward);
  return detail::feature_attend_backward(call, dout, forward);
}

struct LinearDecoder::State {
  detail::FeatureSteps steps{"LinearDecoder::step"};
};
LinearDecoder::LinearDecoder() : state_(std::make_unique<State>()) {}
LinearDecoder::~LinearDecoder() = default;
LinearDecoder::LinearDecoder(LinearDecoder&&) noexcept = default;
LinearDecoder& LinearDecoder::operator=(LinearDecoder&&) noexcept = default;

Tensor<float> LinearDecoder::step(const LinearInputs& inputs) {
  return state_->steps.step(inputs, detail::EluMap(inputs.q.size(3)));
}

namespace reference {
LinearResult<double> linear_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                   const LinearOptions& options) {
  return detail::plain_feature_attend("reference::linear_attend", q, k, v, options, [](const std::vector<double>& x) {
    std::vector<double> logarithms;
    for (double value : x) logarithms.push_back(value > 0 ? std::log1p(value) : value);
    return logarithms;
  });
}
}  // namespace reference

}  // namespace regard
