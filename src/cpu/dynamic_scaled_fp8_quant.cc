#include "base/dynamic_scaled_fp8_quant.h"

#include <limits>

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<DynamicScaledFp8Quant, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& result, const Tensor& scale) {
    const float own = cpu::ExtremesOf(input).magnitude() / cpu::kMostFloat8;
    const float used = own >= std::numeric_limits<float>::min() ? own : cpu::kLeastScale;
    *scale.data<float>() = used;
    cpu::QuantizeTensor(input, {1 / used, false, -cpu::kMostFloat8, cpu::kMostFloat8}, result);
  }
};

INFINI_OPS_REGISTER(DynamicScaledFp8Quant, Device::Type::kCpu, 0);

}  // namespace infini::ops
