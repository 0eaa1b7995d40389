#include <optional>

#include "base/dynamic_per_token_scaled_fp8_quant.h"
#include "cuda/quantize.h"

namespace infini::ops {
namespace cuda {
namespace {

struct TokenFloat8Rule {
  static constexpr bool kHasZeroPoint = false;

  __device__ Scaling operator()(const Extremes& range) const {
    const float magnitude = most ? fmin(range.magnitude(), *most) : range.magnitude();
    const float scale = fmax(magnitude / kMostFloat8, kLeastScale);
    return {scale, true, -kMostFloat8, kMostFloat8, 0, scale};
  }

  const float* most;  // or null
};

}  // namespace
}  // namespace cuda

template <>
struct Operator<DynamicPerTokenScaledFp8Quant, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasTokenRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input,
                  const std::optional<Tensor>& scale_ub, const Tensor& result,
                  const Tensor& scale) {
    const cuda::TokenFloat8Rule rule{scale_ub ? scale_ub->data<float>() : nullptr};
    cuda::QuantizeGroups<cuda::Float8>(invocation, input, input.shape()[input.dimensions() - 1],
                                       rule, result, scale);
  }
};

INFINI_OPS_REGISTER(DynamicPerTokenScaledFp8Quant, cuda::kDevice, 0);

}  // namespace infini::ops
