#include "base/static_scaled_fp8_quant.h"
#include "cuda/quantize.h"

namespace infini::ops {
template <>
struct Operator<StaticScaledFp8Quant, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& scale,
                  const Tensor& result) {
    cuda::QuantizeTensor<cuda::Float8>(invocation, input, cuda::Float8Rule{scale.data<float>()},
                                       result);
  }
};

INFINI_OPS_REGISTER(StaticScaledFp8Quant, cuda::kDevice, 0);

}  // namespace infini::ops
