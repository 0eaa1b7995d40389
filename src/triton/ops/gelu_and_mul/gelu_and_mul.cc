#include "base/gelu_and_mul.h"

#include "triton/gated.h"
#include "triton/gelu_and_mul.h"

namespace infini::ops {

template <>
struct Operator<GeluAndMul, Device::Type::kNvidia, 9> {
  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    triton::RunGatedHalves("gelu_and_mul", &InfiniOpsTritonGeluAndMul, invocation, input, out);
  }
};

INFINI_OPS_REGISTER(GeluAndMul, Device::Type::kNvidia, 9);

}  // namespace infini::ops
