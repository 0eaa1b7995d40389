#include "base/static_scaled_fp8_quant.h"

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<StaticScaledFp8Quant, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& scale, const Tensor& result) {
    const auto factor = 1 / *scale.data<float>();
    cpu::QuantizeTensor(input, {factor, false, -cpu::kMostFloat8, cpu::kMostFloat8}, result);
  }
};

INFINI_OPS_REGISTER(StaticScaledFp8Quant, Device::Type::kCpu, 0);

}  // namespace infini::ops
