#include "base/fused_add_rms_norm.h"
#include "cuda/norm.h"

namespace infini::ops {

template <>
struct Operator<FusedAddRmsNorm, cuda::kDevice, 0> {
  static constexpr Limits kLimits{kSmallFloatTypes, &cuda::HasSumRows, cuda::kRowsLimit};

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& residual,
                  const Tensor& weight, double eps) {
    cuda::AddRmsNorm(invocation, input, residual, weight, eps, input, residual);
  }
};

INFINI_OPS_REGISTER(FusedAddRmsNorm, cuda::kDevice, 0);

}  // namespace infini::ops
