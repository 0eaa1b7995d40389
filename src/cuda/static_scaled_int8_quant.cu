#include <cstdint>
#include <optional>

#include "base/static_scaled_int8_quant.h"
#include "cuda/quantize.h"

namespace infini::ops {
namespace cuda {
namespace {

struct StaticInt8Rule {
  __device__ Scaling operator()() const {
    const std::int32_t zero_point =
        azp ? Limit(__ldg(azp), -kMostZeroPoint, std::int32_t{kMostZeroPoint}) : 0;
    return {__ldg(scale), true, -128, 127, zero_point};
  }

  const float* scale;
  const std::int32_t* azp;  // or null
};

}  // namespace
}  // namespace cuda

template <>
struct Operator<StaticScaledInt8Quant, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& scale,
                  const std::optional<Tensor>& azp, const Tensor& result) {
    const cuda::StaticInt8Rule rule{scale.data<float>(), azp ? azp->data<std::int32_t>() : nullptr};
    cuda::QuantizeTensor<std::int8_t>(invocation, input, rule, result);
  }
};

INFINI_OPS_REGISTER(StaticScaledInt8Quant, cuda::kDevice, 0);

}  // namespace infini::ops
