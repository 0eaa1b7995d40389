#include <cstdint>

#include "base/per_token_group_fp8_quant.h"
#include "cuda/quantize.h"

namespace infini::ops {

template <>
struct Operator<PerTokenGroupFp8Quant, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasGroupRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, std::int64_t group_size,
                  double eps, double fp8_min, double fp8_max, bool scale_ue8m0,
                  const Tensor& output_q, const Tensor& output_s) {
    const auto most = static_cast<float>(fp8_max);
    const cuda::GroupRule rule{static_cast<float>(eps), most, scale_ue8m0,
                               static_cast<float>(fp8_min), most};
    cuda::QuantizeGroups<cuda::Float8>(invocation, input, group_size, rule, output_q, output_s);
  }
};

INFINI_OPS_REGISTER(PerTokenGroupFp8Quant, cuda::kDevice, 0);

}  // namespace infini::ops
