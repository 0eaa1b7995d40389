#include "base/silu_and_mul.h"

#include "triton/gated.h"
#include "triton/silu_and_mul.h"

namespace infini::ops {

template <>
struct Operator<SiluAndMul, Device::Type::kNvidia, 9> {
  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    triton::RunGatedHalves("silu_and_mul", &InfiniOpsTritonSiluAndMul, invocation, input, out);
  }
};

INFINI_OPS_REGISTER(SiluAndMul, Device::Type::kNvidia, 9);

}  // namespace infini::ops
