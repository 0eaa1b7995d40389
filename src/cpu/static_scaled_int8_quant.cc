#include "base/static_scaled_int8_quant.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cpu/quantize.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<StaticScaledInt8Quant, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& scale, const std::optional<Tensor>& azp,
                  const Tensor& result) {
    const std::int32_t zero_point =
        azp ? std::clamp(*azp->data<std::int32_t>(), -cpu::kMostZeroPoint, cpu::kMostZeroPoint) : 0;
    cpu::QuantizeTensor(input, {*scale.data<float>(), true, -128, 127, zero_point}, result);
  }
};

INFINI_OPS_REGISTER(StaticScaledInt8Quant, Device::Type::kCpu, 0);

}  // namespace infini::ops
