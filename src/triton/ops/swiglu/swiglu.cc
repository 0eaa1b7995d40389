#include "base/swiglu.h"

#include "triton/gated.h"
#include "triton/swiglu.h"

namespace infini::ops {

template <>
struct Operator<Swiglu, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& gate,
                  const Tensor& out) {
    triton::RunGated("swiglu", &InfiniOpsTritonSwiglu, invocation, input, gate, out);
  }
};

INFINI_OPS_REGISTER(Swiglu, Device::Type::kNvidia, 9);

}  // namespace infini::ops
