#include <cmath>
#include <cstdint>
#include <optional>

#include "base/dynamic_scaled_int8_quant.h"
#include "cuda/quantize.h"

namespace infini::ops {
namespace cuda {
namespace {

// The largest magnitude becomes 127.
struct SymmetricRule {
  static constexpr bool kHasZeroPoint = false;

  __device__ Scaling operator()(const Extremes& range) const {
    const float most = range.magnitude();
    return {most == 0 ? 0 : 127 / most, false, -128, 127, 0, most / 127};
  }
};

// The range becomes -128 to 127, and one number -1, 0 or 1.
struct AsymmetricRule {
  static constexpr bool kHasZeroPoint = true;

  __device__ Scaling operator()(const Extremes& range) const {
    if (range.is_empty()) return {0, false, -128, 127, -128, 0};
    const bool is_one = range.least == range.most;
    const float scale = is_one ? fabs(range.least) : (range.most - range.least) / 255;
    const bool has_inverse = scale >= kLeastNormal;
    const float factor = has_inverse ? 1 / scale : 0;
    constexpr auto limit = static_cast<float>(kMostZeroPoint);
    // A product in place of the quotient could be rounded once with the difference.
    const float zero_point = rintf(-128 - (has_inverse ? range.least / scale : 0));
    // That of infinity over infinity is NaN.
    const float used = zero_point != zero_point ? -128 : Limit(zero_point, -limit, limit);
    return {factor, false, -128, 127, static_cast<std::int32_t>(used), scale};
  }
};

}  // namespace
}  // namespace cuda

template <>
struct Operator<DynamicScaledInt8Quant, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasTokenRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& result,
                  const Tensor& scale, const std::optional<Tensor>& azp) {
    const std::int64_t size = input.shape()[input.dimensions() - 1];
    if (azp) {
      cuda::QuantizeGroups<std::int8_t>(invocation, input, size, cuda::AsymmetricRule{}, result,
                                        scale, &*azp);
    } else {
      cuda::QuantizeGroups<std::int8_t>(invocation, input, size, cuda::SymmetricRule{}, result,
                                        scale);
    }
  }
};

INFINI_OPS_REGISTER(DynamicScaledInt8Quant, cuda::kDevice, 0);

}  // namespace infini::ops
