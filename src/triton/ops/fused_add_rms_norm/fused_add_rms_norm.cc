#include "base/fused_add_rms_norm.h"

#include "triton/fused_add_rms_norm.h"
#include "triton/norm.h"

namespace infini::ops {

template <>
struct Operator<FusedAddRmsNorm, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes, &triton::IsCountable, triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& residual,
                  const Tensor& weight, double eps) {
    triton::AddRmsNorm("fused_add_rms_norm", &InfiniOpsTritonFusedAddRmsNorm, invocation, input,
                       residual, weight, eps, input, residual);
  }
};

INFINI_OPS_REGISTER(FusedAddRmsNorm, Device::Type::kNvidia, 9);

}  // namespace infini::ops
