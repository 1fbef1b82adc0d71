// Performer: positive orthogonal random features of the softmax kernel.
#include "regard/performer.h"

#include <cmath>
#include <string>
#include <utility>

#include "attention/variants/feature_attention.h"
#include "attention/variants/feature_decoder.h"
#include "attention/variants/plain_features.h"
#include "attention/variants/row_loops.h"
#include "regard/error.h"
#include "regard/random.h"

namespace regard {
namespace detail {
namespace {

float scale_of(const PerformerFeatures& features) {
  return features.scale ? *features.scale
                        : static_cast<float>(1.0 / std::sqrt(static_cast<double>(features.projection.size(1))));
}

void check_features(const char* name, const PerformerFeatures& features, Index head_dim) {
  const Tensor<float>& projection = features.projection;
  if (projection.rank() != 2 || projection.size(1) != head_dim || projection.size(0) < 1)
    throw ArgumentError(std::string(name) + ": projection " + projection.text() +
                        " needs [features,head_dim] with head_dim " + std::to_string(head_dim));
  if (!(scale_of(features) >= 0) || !std::isfinite(scale_of(features)))
    throw ArgumentError(std::string(name) + ": scale must be finite and not negative, got " +
                        std::to_string(scale_of(features)));
}

// Exponents w . x' - |x'|^2 / 2; the 1 / sqrt(features) cancels.
class RandomFeatureMap final : public FeatureMap {
 public:
  RandomFeatureMap(const char* name, const PerformerFeatures& features, Index head_dim) {
    check_features(name, features, head_dim);
    scale_ = scale_of(features);
    count_ = features.projection.size(0);
    const kernels::Matrix rows{features.projection.data(), count_, head_dim, head_dim, 1};
    to_features_.pack(transposed(rows), std::sqrt(scale_));
    from_features_.pack(rows, std::sqrt(scale_));
  }
  Index count() const override { return count_; }
  bool gives_exponents() const override { return true; }

  void map(const kernels::Matrix& x, Scratch& to) const override {
    multiply(to, x, to_features_);
    std::vector<float> row(static_cast<std::size_t>(x.depth));
    for (Index i = 0; i < x.rows; ++i) {
      copy_row(x, i, row.data());
      const float half_square = 0.5f * scale_ * sum_of_squares(row.data(), x.depth);
      for (Index f = 0; f < count_; ++f) to.row(i)[f] -= half_square;
    }
  }

  void back(const kernels::Matrix& x, Scratch& dto, Scratch& dx) const override {
    dx.resize(x.rows, x.depth);
    multiply(dx, dto.matrix(0, x.rows), from_features_);
    std::vector<float> row(static_cast<std::size_t>(x.depth));
    for (Index i = 0; i < x.rows; ++i) {
      copy_row(x, i, row.data());
      add_times(dx.row(i), row.data(), -scale_ * sum_row(dto.row(i), count_), x.depth);
    }
  }

 private:
  Index count_ = 0;
  float scale_ = 0;
  PackedMatrix to_features_, from_features_;
};

double dot(const double* a, const double* b, Index count) {
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Rows of Gaussian numbers made orthogonal (Gram-Schmidt, twice for accuracy),
// each with the length of another Gaussian row.
void orthogonal_rows(Random& random, Index rows, Index dim, double* to) {
  for (Index r = 0; r < rows; ++r) {
    double* row = to + r * dim;
    for (Index d = 0; d < dim; ++d) row[d] = random.normal();
    for (int pass = 0; pass < 2; ++pass)
      for (Index earlier = 0; earlier < r; ++earlier) {
        const double* other = to + earlier * dim;
        const double share = dot(row, other, dim);
        for (Index d = 0; d < dim; ++d) row[d] -= share * other[d];
      }
    const double size = std::sqrt(dot(row, row, dim));
    for (Index d = 0; d < dim; ++d) row[d] /= size;
  }
}

}  // namespace
}  // namespace detail

PerformerFeatures performer_features(Index features, Index head_dim, std::uint64_t seed) {
  if (features < 1 || head_dim < 1)
    throw ArgumentError("performer_features: features " + std::to_string(features) + " and head_dim " +
                        std::to_string(head_dim) + " must be at least 1");
  // A stream of their own: data drawn from Random(seed) would otherwise point where
  // the features do.
  constexpr std::uint64_t stream = 0x70657266;
  Random random(seed, stream);
  Tensor<double> rows({features, head_dim});
  for (Index first = 0; first < features; first += head_dim)
    detail::orthogonal_rows(random, std::min(head_dim, features - first), head_dim, rows.data() + first * head_dim);
  PerformerFeatures result{Tensor<float>({features, head_dim})};
  for (Index f = 0; f < features; ++f) {
    double square = 0;
    for (Index d = 0; d < head_dim; ++d) square += std::pow(random.normal(), 2);
    for (Index d = 0; d < head_dim; ++d)
      result.projection[f * head_dim + d] = static_cast<float>(std::sqrt(square) * rows[f * head_dim + d]);
  }
  return result;
}

LinearResult<float> performer_attend(const LinearInputs& inputs, const PerformerFeatures& features,
                                     const LinearOptions& options) {
  const char* name = "performer_attend";
  const detail::RandomFeatureMap map(name, features, inputs.q.size(3));
  return detail::feature_attend(detail::make_feature_call(name, inputs, options, map));
}

LinearGradients performer_attend_backward(View<const float, 4> dout, const LinearInputs& inputs,
                                          const PerformerFeatures& features, const LinearResult<float>& forward,
                                          const LinearOptions& options) {
  const char* name = "performer_attend_backward";
  const detail::RandomFeatureMap map(name, features, inputs.q.size(3));
  const auto call = detail::make_feature_call(name, inputs, options, map);
  detail::check_feature_backward(name, call, dout, forward);
  return detail::feature_attend_backward(call, dout, forward);
}

struct PerformerDecoder::State {
  PerformerFeatures features;
  detail::RandomFeatureMap map{"PerformerDecoder", features, features.projection.size(-1)};
  detail::FeatureSteps steps{"PerformerDecoder::step"};
};
PerformerDecoder::PerformerDecoder(PerformerFeatures features) : state_(new State{.features = std::move(features)}) {}
PerformerDecoder::~PerformerDecoder() = default;
PerformerDecoder::PerformerDecoder(PerformerDecoder&&) noexcept = default;
PerformerDecoder& PerformerDecoder::operator=(PerformerDecoder&&) noexcept = default;

Tensor<float> PerformerDecoder::step(const LinearInputs& inputs) {
  detail::check_features("PerformerDecoder::step", state_->features, inputs.q.size(3));
  return state_->steps.step(inputs, state_->map);
}

namespace reference {
LinearResult<double> performer_attend(View<const double, 4> q, View<const double, 4> k, View<const double, 4> v,
                                      const PerformerFeatures& features, const LinearOptions& options) {
  const char* name = "reference::performer_attend";
  detail::check_features(name, features, q.size(3));
  const Tensor<float>& w = features.projection;
  const double scale =
      features.scale ? static_cast<double>(*features.scale) : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  return detail::plain_feature_attend(name, q, k, v, options, [&](const std::vector<double>& x) {
    double square = 0;
    for (double value : x) square += scale * value * value;
    std::vector<double> exponents;
    for (Index f = 0; f < w.size(0); ++f) {
      double sum = -square / 2;
      for (std::size_t d = 0; d < x.size(); ++d)
        sum += static_cast<double>(w[f * w.size(1) + static_cast<Index>(d)]) * std::sqrt(scale) * x[d];
      exponents.push_back(sum);
    }
    return exponents;
  });
}
}  // namespace reference

}  // namespace regard
