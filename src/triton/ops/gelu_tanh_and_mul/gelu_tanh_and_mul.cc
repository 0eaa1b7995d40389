#include "base/gelu_tanh_and_mul.h"

#include "triton/gated.h"
#include "triton/gelu_tanh_and_mul.h"

namespace infini::ops {

template <>
struct Operator<GeluTanhAndMul, Device::Type::kNvidia, 9> {
  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& out) {
    triton::RunGatedHalves("gelu_tanh_and_mul", &InfiniOpsTritonGeluTanhAndMul, invocation, input,
                           out);
  }
};

INFINI_OPS_REGISTER(GeluTanhAndMul, Device::Type::kNvidia, 9);

}  // namespace infini::ops
