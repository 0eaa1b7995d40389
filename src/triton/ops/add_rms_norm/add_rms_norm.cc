#include "base/add_rms_norm.h"

#include "triton/add_rms_norm.h"
#include "triton/norm.h"

namespace infini::ops {

template <>
struct Operator<AddRmsNorm, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes, &triton::IsCountable, triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& residual,
                  const Tensor& weight, double eps, const Tensor& out, const Tensor& residual_out) {
    triton::AddRmsNorm("add_rms_norm", &InfiniOpsTritonAddRmsNorm, invocation, input, residual,
                       weight, eps, out, residual_out);
  }
};

INFINI_OPS_REGISTER(AddRmsNorm, Device::Type::kNvidia, 9);

}  // namespace infini::ops
