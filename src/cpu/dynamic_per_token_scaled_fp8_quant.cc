#include "base/dynamic_per_token_scaled_fp8_quant.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<DynamicPerTokenScaledFp8Quant, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const std::optional<Tensor>& scale_ub, const Tensor& result,
                  const Tensor& scale) {
    const float most = scale_ub ? *scale_ub->data<float>() : std::numeric_limits<float>::infinity();
    const auto rule = [=](const cpu::Extremes& range) {
      const float own = std::min(range.magnitude(), most) / cpu::kMostFloat8;
      const float used = std::max(own, cpu::kLeastScale);
      return cpu::Scaling{used, true, -cpu::kMostFloat8, cpu::kMostFloat8, 0, used};
    };
    cpu::QuantizeGroups(input, input.shape()[input.dimensions() - 1], rule, result, scale);
  }
};

INFINI_OPS_REGISTER(DynamicPerTokenScaledFp8Quant, Device::Type::kCpu, 0);

}  // namespace infini::ops
